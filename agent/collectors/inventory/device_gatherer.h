// Reads the devices of this host off the main loop, so that one whose driver or firmware never answers hides no other:
// a device that takes too long keeps its last reading, is told as a limitation, and is not asked again before the
// first question was answered. Threads that do not come back are bounded.
// All methods on the main loop's thread, where done is also called: once for each start, with the inventory, or with
// Timeout when not even the listing came back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "agent/collectors/inventory/inventory_reader.h"
#include "lib/base/clock.h"

namespace weft::inventory {

class DeviceGatherer {
 public:
  struct Options {
    InventoryOptions inventory;       // gids is ignored: each device has its own
    Nanos patience_ns = 2 * kSecond;  // for one device, and for the listing
    std::size_t max_stuck = 16;       // devices; with that many no device is read any more
  };
  using Work = std::function<void()>;
  using Run = std::function<void(Work)>;

  // spawn: runs work that may block on a thread of its own; post: runs work on the main loop, from any thread.
  // Both may outlive this object.
  DeviceGatherer(Options options, std::shared_ptr<const FileReader> files, Run spawn, Run post, const Clock& clock,
                 std::function<void(Result<model::Inventory>)> done);
  ~DeviceGatherer();

  // Nothing while busy. also: done on the reading thread before anything is listed.
  void start(Work also = [] {});
  bool busy() const { return job_ != nullptr; }
  // Gives up on what takes too long; once a second or so.
  void tick();
  // Since it was made.
  const ReadCounts& counts() const { return counts_; }

 private:
  struct Job;
  struct Alive;
  static void list(const std::shared_ptr<Job>& job, const Work& also);
  static void work(const std::shared_ptr<Job>& job, std::uint64_t worker);
  void finish(const std::shared_ptr<Job>& job);
  void returned(const std::string& device);

  const Options options_;
  std::shared_ptr<const FileReader> files_;
  Run spawn_, post_;
  const Clock& clock_;
  std::function<void(Result<model::Inventory>)> done_;
  std::shared_ptr<Alive> alive_;
  std::shared_ptr<Job> job_;
  bool listing_stuck_ = false;
  std::uint64_t seen_steps_ = 0;  // of the job
  Nanos stepped_ns_ = 0;          // when that last changed
  std::set<std::string> stuck_;
  std::map<std::string, model::RdmaDevice> last_;
  std::map<std::string, std::shared_ptr<GidMemory>> gids_;
  ReadCounts counts_;
};

}  // namespace weft::inventory
