// How late weftd itself was scheduled: a heartbeat every 10 ms, whose lateness is the gap. It notices real-time CPU
// hogs, a stolen virtual CPU and a stopped guest; a window with a gap accuses nobody else.
// Where every beat was on time for a while, every 20 ms do until one is late: a gap in quiet shows up to 20 ms shorter
// than it was, those that follow up to 10.
// Folding is pure; HealthMonitor is the thread that beats: 50 or 100 wake-ups a second, each about 30 us of CPU.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "lib/base/clock.h"
#include "lib/base/files.h"
#include "lib/model/path.h"

namespace weft::health {

inline constexpr Nanos kBeat_ns = 10 * kMillisecond;
inline constexpr Nanos kCalmBeat_ns = 20 * kMillisecond;
inline constexpr Nanos kCalmLateness_ns = 10 * kMillisecond;  // more than that ends the calm
inline constexpr Nanos kCalmAfter_ns = 2 * kSecond;           // of beats on time
inline constexpr Nanos kNoticeable_ns = 20 * kMillisecond;    // lateness that counts into total_gap_ns

// One thread, or under a lock.
class GapFold {
 public:
  explicit GapFold(Nanos now) : window_start_(now), due_(now + kBeat_ns), calm_from_(now + kCalmAfter_ns) {}

  // The heartbeat ran at `now`; returns when the next one is due.
  Nanos beat(Nanos now);
  // Closes the window. A beat that is overdue right now counts into it, and only its rest into the next one: whoever
  // asks may run while the heartbeat does not.
  model::HostHealth take(Nanos now);

 private:
  void count(Nanos now);

  Nanos window_start_;
  Nanos due_;
  Nanos calm_from_;
  Nanos counted_until_ = 0;  // of the current lateness, what total_gap_ns already has
  Nanos max_gap_ = 0;
  Nanos total_gap_ = 0;
};

class HealthMonitor {
 public:
  // clock, files outlive it. proc_root: "/proc".
  HealthMonitor(const Clock& clock, const FileReader& files, std::string proc_root);
  ~HealthMonitor();  // waits for the next beat
  HealthMonitor(const HealthMonitor&) = delete;
  HealthMonitor& operator=(const HealthMonitor&) = delete;

  // The window since the last call, with CPU pressure where the kernel tells it. responder_low_water and
  // probes_throttled are the caller's. Thread safe.
  model::HostHealth take_window();

 private:
  void run();

  const Clock& clock_;
  const FileReader& files_;
  const std::string proc_root_;
  std::mutex mutex_;
  bool stop_ = false;
  GapFold fold_;
  std::thread thread_;
};

}  // namespace weft::health
