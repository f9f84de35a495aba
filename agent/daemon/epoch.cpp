#include "agent/daemon/epoch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "lib/base/fd.h"
#include "lib/base/result.h"

namespace weft::agent {
namespace {

// A torn write must not look like a number, hence a new file and rename.
std::string write_atomically(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  const Fd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) return errno_error(errno, "cannot write " + temporary).message();
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(file.get()) != 0 ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    return errno_error(errno, "cannot write " + path).message();
  }
  return "";
}

}  // namespace

std::uint64_t next_epoch(const FileReader& files, const std::string& state_dir, const Clock& clock,
                         std::string& problem) {
  const std::string path = state_dir + "/epoch";
  std::uint64_t last = 0;
  if (const auto text = read_trimmed(files, path)) {
    std::uint64_t value = 0;
    const auto parsed = std::from_chars(text->data(), text->data() + text->size(), value);
    // A clock that once was far ahead must not leave no room for later epochs.
    if (parsed.ec == std::errc{} && value < (std::uint64_t{1} << 63)) last = value;
  }
  const auto now = static_cast<std::uint64_t>(std::max<Nanos>(clock.wall_ns(), 0));
  const std::uint64_t epoch = std::max(now, last + 1);
  ::mkdir(state_dir.c_str(), 0755);  // the last part only; what fails here fails below with its reason
  problem = write_atomically(path, std::to_string(epoch) + "\n");
  return epoch;
}

}  // namespace weft::agent
