// When which path is due. Paths are spread evenly over their interval with a little jitter, so that probes of many
// targets do not bunch, and what was missed while the process slept is skipped, never sent in a burst. A turn that is
// near takes its place beside one that is due, for waking up costs more than sending does; the pace stays the same.
// Pure over the time passed in; not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <vector>

#include "lib/base/clock.h"

namespace weft::probes {

class Pacer {
 public:
  using Id = std::uint64_t;
  struct Due {
    Id id = 0;
    Nanos late_ns = 0;  // how long after its time it was asked for; 0 for one that went along early
  };

  explicit Pacer(std::uint64_t seed) : random_(seed | 1) {}

  // Starts, or changes the rate of, one path. A rate of zero or less stops it.
  void set(Id id, double per_second, Nanos now);
  void remove(Id id);
  // The next path whose time has come, rescheduled for its next turn; absent when none is due. Asked again with the
  // same time, also one that would be due within 10 ms, and within a quarter of its interval.
  std::optional<Due> pop(Nanos now);
  std::optional<Nanos> next_due();

 private:
  struct Path {
    Nanos interval_ns = 0;
    Nanos turn_ns = 0;         // the undisturbed time of the next turn
    std::uint64_t ticket = 0;  // of its one valid place in the queue
  };
  struct Place {
    Nanos due_ns;
    Id id;
    std::uint64_t ticket;
    bool operator>(const Place& other) const { return due_ns > other.due_ns; }
  };
  void enqueue(Id id, Path& path, bool jitter);
  void drop_invalid();
  std::uint64_t next_random();

  std::map<Id, Path> paths_;
  std::priority_queue<Place, std::vector<Place>, std::greater<>> queue_;
  std::uint64_t random_;
  std::optional<Nanos> popped_at_;
  std::uint64_t tickets_ = 0;
  std::uint64_t started_ = 0;
};

}  // namespace weft::probes
