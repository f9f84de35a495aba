#include "lib/localise/delay.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace weft::localise {
namespace {

constexpr double kLearn = 0.05;
constexpr unsigned kAdoptAfter = 300;  // a change that stays this long unblamed is how the path is now
constexpr unsigned kRecent = 3;

double quantile(std::vector<double>& values, double q) {
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

const Bucket* bucket_of(const Path& path, std::int64_t slot) {
  const Bucket& bucket = path.ring[static_cast<std::size_t>(slot) % kSlots];
  return bucket.slot == slot && bucket.rtt() >= 0 ? &bucket : nullptr;
}

void learn(Path& path, const Bucket& bucket) {
  const auto rtt = static_cast<double>(bucket.rtt());
  const double rate = std::max(kLearn, 1.0 / (path.learned + 1));
  if (path.learned == 0) {
    path.base_ns = rtt;
    path.spread_ns = path.siblings_spread_ns = rtt / 4;
  }
  double off = rtt - path.base_ns;
  // A heavy tail moves the base no more than an ordinary second does.
  const double bound = 3 * std::max(path.spread_ns, 0.02 * path.base_ns) + 1000;
  off = std::clamp(off, -bound, bound);
  path.base_ns += rate * off;
  path.spread_ns += rate * (std::fabs(off) - path.spread_ns);
  if (bucket.has_siblings) {
    const double most = 3 * std::max(path.siblings_spread_ns, 0.02 * path.base_ns) + 1000;
    path.siblings_spread_ns += rate * (std::min(std::fabs(bucket.off_siblings_ns), most) - path.siblings_spread_ns);
  }
  path.learned = std::min(path.learned + 1, 1'000'000U);
}

}  // namespace

void classify_delay(Evidence& evidence, const DelayConfig& config, Nanos now) {
  auto& paths = evidence.paths();
  const std::int64_t now_slot = now / kSecond;
  const auto floor = static_cast<double>(config.floor_ns);
  const auto threshold = [&](const Path& path, double spread_ns) {
    return std::max(floor, config.spread_factor * std::max({spread_ns, 0.02 * path.base_ns, 1000.0}));
  };

  // Another course is another round trip: forget what was learned on the old one.
  for (Path& path : paths) {
    const Nanos changed = path.placed();
    if (changed != 0 && static_cast<std::uint64_t>(changed) != path.route_revision) {
      path.route_revision = static_cast<std::uint64_t>(changed);
      path.learned = 0;
      path.late_run = 0;
    }
  }

  std::vector<double> values;
  for (std::int64_t slot = now_slot - kRecent; slot <= now_slot; ++slot) {
    values.clear();
    for (const Path& path : paths) {
      const Bucket* bucket = path.mature() ? bucket_of(path, slot) : nullptr;
      if (bucket != nullptr) values.push_back(static_cast<double>(bucket->rtt()) - path.base_ns);
    }
    // What all are late by has no place in the fabric (the machine under the lab, a fabric-wide load).
    const double common = values.size() < 4 ? 0 : std::max(0.0, quantile(values, 0.25));

    for (const auto& members : evidence.by_pair()) {
      values.clear();
      bool all_mature = true;
      for (const std::uint32_t i : members) {
        if (bucket_of(paths[i], slot) != nullptr) all_mature = all_mature && paths[i].mature();
      }
      for (const std::uint32_t i : members) {
        if (const Bucket* bucket = bucket_of(paths[i], slot)) {
          values.push_back(static_cast<double>(bucket->rtt()) - (all_mature ? paths[i].base_ns : 0));
        }
      }
      const bool siblings = values.size() >= 3;
      const double reference = siblings ? quantile(values, 0.25) : 0;
      for (const std::uint32_t i : members) {
        Path& path = paths[i];
        if (bucket_of(path, slot) == nullptr) continue;
        Bucket& bucket = path.ring[static_cast<std::size_t>(slot) % kSlots];
        const auto rtt = static_cast<double>(bucket.rtt());
        bucket.judged_delay = siblings || path.mature();
        // While the past is young, twice the siblings' time is the least that counts.
        const double allowed = all_mature ? threshold(path, path.siblings_spread_ns)
                                          : std::max({floor, reference, 4 * kMicrosecond * 1.0});
        const double to_siblings = rtt - (all_mature ? path.base_ns : 0) - reference;
        const double to_past = path.mature() ? rtt - path.base_ns - common : 0;
        bucket.has_siblings = siblings && all_mature;
        bucket.off_siblings_ns = to_siblings;
        bucket.late_to_siblings = siblings && to_siblings > allowed;
        bucket.late_to_past = path.mature() && to_past > 2 * threshold(path, path.spread_ns);
        bucket.late_by_ns = bucket.late_to_siblings ? to_siblings : bucket.late_to_past ? to_past : 0;
      }
    }
  }

  for (Path& path : paths) {
    for (unsigned i = 0; i < kSlots; ++i) {
      Bucket& bucket = path.ring[i];
      if (bucket.slot < 0 || bucket.learned || bucket.slot >= now_slot - kRecent || bucket.rtt() < 0) continue;
      bucket.learned = true;
      const bool late = bucket.late_to_siblings || bucket.late_to_past;
      path.late_run = late ? path.late_run + 1 : 0;
      if (path.late_run > kAdoptAfter) path.learned = 0;
      if ((path.usable_delay >> i & 1U) == 0 || bucket.doubtful || (late && path.late_run <= kAdoptAfter)) continue;
      learn(path, bucket);
    }
  }
}

}  // namespace weft::localise
