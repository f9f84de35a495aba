#include "agent/collectors/health/scheduling_gaps.h"

#include <algorithm>
#include <chrono>

#include "agent/collectors/health/cpu_pressure.h"

#include "lib/base/thread_name.h"

namespace weft::health {

void GapFold::count(Nanos now) {
  const Nanos late = now - due_;
  if (late <= 0) return;
  max_gap_ = std::max(max_gap_, late);
  if (late <= kNoticeable_ns) return;
  total_gap_ += now - std::max(due_, counted_until_);
  counted_until_ = now;
}

Nanos GapFold::beat(Nanos now) {
  count(now);
  if (now - due_ > kCalmLateness_ns) calm_from_ = now + kCalmAfter_ns;
  due_ = std::max(now, due_) + (now < calm_from_ ? kBeat_ns : kCalmBeat_ns);
  return due_;
}

model::HostHealth GapFold::take(Nanos now) {
  count(now);
  model::HostHealth health;
  health.window_ns = std::max<Nanos>(now - window_start_, 1);
  health.max_gap_ns = max_gap_;
  health.total_gap_ns = total_gap_;
  window_start_ = now;
  max_gap_ = total_gap_ = 0;
  return health;
}

HealthMonitor::HealthMonitor(const Clock& clock, const FileReader& files, std::string proc_root)
    : clock_(clock), files_(files), proc_root_(std::move(proc_root)), fold_(clock.monotonic_ns()), thread_([this] {
        run();
      }) {}

HealthMonitor::~HealthMonitor() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  thread_.join();
}

void HealthMonitor::run() {
  name_this_thread("weft-health");
  for (;;) {
    Nanos wait = 0;
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
      const Nanos now = clock_.monotonic_ns();
      wait = std::max<Nanos>(fold_.beat(now) - now, 0);
    }
    // A condition variable could be woken to stop, but costs twice as much at each beat.
    std::this_thread::sleep_for(std::chrono::nanoseconds(wait));
  }
}

model::HostHealth HealthMonitor::take_window() {
  const auto pressure = read_cpu_pressure(files_, proc_root_);
  std::lock_guard lock(mutex_);
  model::HostHealth health = fold_.take(clock_.monotonic_ns());
  if (pressure) health.cpu_pressure_some = *pressure;
  return health;
}

}  // namespace weft::health
