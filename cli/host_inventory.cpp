#include "cli/host_inventory.h"

#include <sys/utsname.h>

#include <mutex>
#include <utility>
#include <vector>

#include "agent/collectors/inventory/inventory_reader.h"
#include "cli/bounded_call.h"
#include "cli/host_name.h"
#include "weft_config.h"

namespace weft::cli {
namespace {

// Remembers what is being read, for the words of whoever gave up waiting for it. Thread safe.
class WatchedFiles final : public FileReader {
 public:
  explicit WatchedFiles(std::shared_ptr<const FileReader> files) : files_(std::move(files)) {}
  Result<std::string> read(const std::string& path, std::size_t limit) const override {
    begin(path);
    return files_->read(path, limit);
  }
  Result<std::vector<std::string>> list(const std::string& path) const override {
    begin(path);
    return files_->list(path);
  }
  Result<std::string> read_link(const std::string& path) const override {
    begin(path);
    return files_->read_link(path);
  }
  std::string last() const {
    std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  void begin(const std::string& path) const {
    std::lock_guard lock(mutex_);
    last_ = path;
  }
  const std::shared_ptr<const FileReader> files_;
  mutable std::mutex mutex_;
  mutable std::string last_;
};

}  // namespace

Result<model::Inventory> host_inventory(const std::string& sys_root, Nanos within_ns,
                                        std::shared_ptr<const FileReader> files) {
  const auto watched = std::make_shared<WatchedFiles>(std::move(files));
  BoundedCall<model::Inventory> reading(
      [watched, sys_root] { return inventory::read_inventory(*watched, sys_root, own_host_name()); });
  std::optional<model::Inventory> out = reading.wait(within_ns);
  if (!out) {
    const std::string path = watched->last();
    return gave_up("reading " + (path.empty() ? sys_root : path), within_ns);
  }
  utsname system{};
  if (::uname(&system) == 0) out->kernel = system.release;
  out->version = WEFT_VERSION;
  return std::move(*out);
}

}  // namespace weft::cli
