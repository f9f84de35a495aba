#include "lib/localise/evidence.h"

#include <algorithm>

namespace weft::localise {
namespace {

constexpr std::size_t kMaxPaths = 200'000;
constexpr std::uint32_t kMaxCount = 1'000'000;  // in one window: more is no probe rate
constexpr Nanos kMaxRtt = 10 * kSecond;
constexpr Nanos kIdle = 120 * kSecond;

std::uint16_t plus(std::uint16_t have, std::uint32_t more) {
  return static_cast<std::uint16_t>(std::min<std::uint64_t>(60'000, std::uint64_t{have} + more));
}

// Negative within a software clock's grain means "less than can be told".
Nanos clean_rtt(const std::optional<Nanos>& rtt) {
  if (!rtt || *rtt < -kMillisecond || *rtt > kMaxRtt) return -1;
  return std::max<Nanos>(0, *rtt);
}

struct EcnCounts {
  std::uint32_t capable, ce, bleached;
};

EcnCounts clean_ecn(const model::DirectionCounts& counts, std::uint32_t at_most) {
  if (counts.ce > counts.ecn_capable || counts.ecn_capable > at_most || counts.bleached > at_most) return {0, 0, 0};
  return {counts.ecn_capable, counts.ce, counts.bleached};
}

}  // namespace

bool Evidence::add(const model::PathWindow& window, EndpointId from, EndpointId to, Nanos received) {
  for (const std::uint32_t count : {window.sent, window.acked, window.lost_unknown, window.forward.lost,
                                    window.back.lost, window.late, window.forward.ecn_capable}) {
    if (count > kMaxCount) return false;
  }
  const std::uint32_t decided = window.acked + window.lost_unknown + window.forward.lost + window.back.lost;
  if (decided > window.sent || from == to) return false;
  const Key key{from, to, window.key.forward_port, window.key.return_port};
  auto found = index_.find(key);
  if (found == index_.end()) {
    if (paths_.size() >= kMaxPaths) return false;
    const auto pair = pairs_.emplace(std::minmax(from, to), static_cast<std::uint32_t>(pairs_.size())).first->second;
    Path path;
    path.from = from;
    path.to = to;
    path.forward_port = key.forward_port;
    path.return_port = key.return_port;
    path.pair = pair;
    found = index_.emplace(key, static_cast<std::uint32_t>(paths_.size())).first;
    paths_.push_back(path);
    by_pair_stale_ = true;
  }
  Path& path = paths_[found->second];
  const std::int64_t slot = received / kSecond;
  Bucket& bucket = path.ring[static_cast<std::size_t>(slot) % kSlots];
  if (bucket.slot > slot) return false;
  if (bucket.slot != slot) bucket = Bucket{};
  const Nanos median = clean_rtt(window.rtt_median_ns);
  const Nanos p90 = clean_rtt(window.rtt_p90_ns);
  if (median >= 0 && window.acked > 0) {
    const std::uint32_t before = bucket.rtt_median < 0 ? 0 : bucket.acked;
    bucket.rtt_median = before == 0 ? median
                                    : static_cast<Nanos>((static_cast<double>(bucket.rtt_median) * before +
                                                          static_cast<double>(median) * window.acked) /
                                                         (before + window.acked));
    bucket.rtt_p90 = std::max(bucket.rtt_p90, p90);
    const Nanos least = clean_rtt(window.rtt_min_ns);
    if (least >= 0) bucket.rtt_min = bucket.rtt_min < 0 ? least : std::min(bucket.rtt_min, least);
  }
  bucket.slot = slot;
  bucket.received = received;
  bucket.sent = plus(bucket.sent, decided);
  bucket.acked = plus(bucket.acked, window.acked);
  bucket.lost_unknown = plus(bucket.lost_unknown, window.lost_unknown);
  bucket.lost_out = plus(bucket.lost_out, window.forward.lost);
  bucket.lost_back = plus(bucket.lost_back, window.back.lost);
  bucket.late = plus(bucket.late, window.late);
  // Late acknowledgements carry their marks too, so arrivals may exceed what was sent in this very window.
  const std::uint32_t at_most = 2 * window.sent + window.late + 16;
  const EcnCounts out = clean_ecn(window.forward, at_most);
  const EcnCounts back = clean_ecn(window.back, at_most);
  bucket.ecn_out = plus(bucket.ecn_out, out.capable);
  bucket.ce_out = plus(bucket.ce_out, out.ce);
  bucket.bleached_out = plus(bucket.bleached_out, out.bleached);
  bucket.ecn_back = plus(bucket.ecn_back, back.capable);
  bucket.ce_back = plus(bucket.ce_back, back.ce);
  bucket.bleached_back = plus(bucket.bleached_back, back.bleached);
  path.last_received = received;
  return true;
}

void Evidence::forget() {
  paths_.clear();
  index_.clear();
  pairs_.clear();
  by_pair_.clear();
  by_pair_stale_ = true;
}

void Evidence::expire(Nanos now) {
  bool any = false;
  for (std::size_t i = 0; i < paths_.size();) {
    if (now - paths_[i].last_received <= kIdle) {
      ++i;
      continue;
    }
    any = true;
    index_.erase({paths_[i].from, paths_[i].to, paths_[i].forward_port, paths_[i].return_port});
    if (i + 1 != paths_.size()) {
      paths_[i] = paths_.back();
      index_[{paths_[i].from, paths_[i].to, paths_[i].forward_port, paths_[i].return_port}] =
          static_cast<std::uint32_t>(i);
    }
    paths_.pop_back();
  }
  if (!any) return;
  by_pair_stale_ = true;
  if (pairs_.size() <= 2 * paths_.size() + 1'000) return;
  pairs_.clear();
  for (Path& path : paths_) {
    path.pair =
        pairs_.emplace(std::minmax(path.from, path.to), static_cast<std::uint32_t>(pairs_.size())).first->second;
  }
}

const std::vector<std::vector<std::uint32_t>>& Evidence::by_pair() {
  if (by_pair_stale_) {
    by_pair_.assign(pairs_.size(), {});
    for (std::uint32_t i = 0; i < paths_.size(); ++i) by_pair_[paths_[i].pair].push_back(i);
    by_pair_stale_ = false;
  }
  return by_pair_;
}

}  // namespace weft::localise
