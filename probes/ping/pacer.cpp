#include "probes/ping/pacer.h"

#include <algorithm>
#include <cmath>

namespace weft::probes {
namespace {

constexpr double kGolden = 0.6180339887498949;  // successive multiples modulo 1 leave no large gap, however many
constexpr Nanos kJitterShare = 10;              // up to a tenth of the interval
constexpr Nanos kGoAlong = 10 * kMillisecond;   // how early a turn may go along with another
constexpr Nanos kGoAlongShare = 4;              // of the interval, at most a quarter

}  // namespace

std::uint64_t Pacer::next_random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

void Pacer::set(Id id, double per_second, Nanos now) {
  if (!(per_second > 0)) {
    remove(id);
    return;
  }
  const auto interval = static_cast<Nanos>(std::min(1e9 / per_second, 3600e9));
  const auto [at, added] = paths_.try_emplace(id);
  Path& path = at->second;
  if (!added && path.interval_ns == interval) return;
  path.interval_ns = std::max<Nanos>(interval, 1);
  const double phase = std::fmod(static_cast<double>(started_++) * kGolden, 1.0);
  path.turn_ns = now + static_cast<Nanos>(phase * static_cast<double>(path.interval_ns));
  enqueue(id, path, false);
}

void Pacer::remove(Id id) { paths_.erase(id); }

void Pacer::enqueue(Id id, Path& path, bool jitter) {
  path.ticket = ++tickets_;
  Nanos due = path.turn_ns;
  if (jitter) {
    const auto most = static_cast<std::uint64_t>(path.interval_ns / kJitterShare);
    if (most > 0) due += static_cast<Nanos>(next_random() % most);
  }
  queue_.push({due, id, path.ticket});
}

void Pacer::drop_invalid() {
  while (!queue_.empty()) {
    const auto at = paths_.find(queue_.top().id);
    if (at != paths_.end() && at->second.ticket == queue_.top().ticket) return;
    queue_.pop();
  }
}

std::optional<Nanos> Pacer::next_due() {
  drop_invalid();
  if (queue_.empty()) return std::nullopt;
  return queue_.top().due_ns;
}

std::optional<Pacer::Due> Pacer::pop(Nanos now) {
  drop_invalid();
  if (queue_.empty()) return std::nullopt;
  const Place place = queue_.top();
  Path& path = paths_[place.id];
  if (place.due_ns > now) {
    const Nanos early = std::min(kGoAlong, path.interval_ns / kGoAlongShare);
    if (popped_at_ != now || place.due_ns - now > early) return std::nullopt;
  }
  popped_at_ = now;
  queue_.pop();
  path.turn_ns += path.interval_ns;
  if (path.turn_ns <= now)
    path.turn_ns += (now - path.turn_ns) / path.interval_ns * path.interval_ns + path.interval_ns;
  enqueue(place.id, path, true);
  return Due{place.id, std::max<Nanos>(now - place.due_ns, 0)};
}

}  // namespace weft::probes
