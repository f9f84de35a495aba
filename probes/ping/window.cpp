#include "probes/ping/window.h"

#include <algorithm>
#include <utility>

namespace weft::probes {
namespace {

constexpr std::uint8_t kHopLimitSent = 64;
constexpr std::size_t kMaxRtts = 4096;  // of one path in one second

void add_header(model::DirectionCounts& counts, std::optional<std::uint8_t> tos,
                std::optional<std::uint8_t> hop_limit) {
  if (tos) {
    const std::uint8_t ecn = *tos & 3;
    if (ecn == 0) {
      ++counts.bleached;
    } else {
      ++counts.ecn_capable;
      if (ecn == 3) ++counts.ce;
    }
  }
  if (hop_limit && *hop_limit <= kHopLimitSent) counts.hops = static_cast<std::uint8_t>(kHopLimitSent - *hop_limit);
}

void keep_max(std::optional<Nanos>& most, std::optional<Nanos> value) {
  if (value && (!most || *most < *value)) most = value;
}

void add_loss(model::PathWindow& window, Loss loss, std::uint32_t by) {
  switch (loss) {
    case Loss::Unknown:
      window.lost_unknown += by;
      window.sent += by;
      break;
    case Loss::Forward:
      window.forward.lost += by;
      window.sent += by;
      break;
    case Loss::Back:
      window.back.lost += by;
      window.sent += by;
      break;
    case Loss::Stale:
      window.stale += by;
      break;
  }
}

// Smallest value that at least the given share of all are not above.
Nanos rank(const std::vector<Nanos>& sorted, std::size_t percent) {
  return sorted[(sorted.size() * percent + 99) / 100 - 1];
}

std::int64_t second_of(Nanos now) { return now / kSecond; }

}  // namespace

WindowFolder::WindowFolder(Nanos settle_ns, Nanos grace_ns, std::size_t max_closed)
    : settle_ns_(settle_ns), grace_ns_(grace_ns), max_closed_(max_closed) {}

WindowFolder::Open& WindowFolder::open(const model::PathKey& key, std::uint64_t epoch, Nanos now) {
  const auto [at, fresh] = open_.try_emplace({second_of(now), key});
  Open& entry = at->second;
  entry.window.key = key;
  entry.window.responder_epoch = epoch;
  if (fresh) entry.window.rung = rung_;
  return entry;
}

std::int64_t WindowFolder::acked(const model::PathKey& key, std::uint64_t epoch, Nanos now, const AckFacts& facts) {
  Open& entry = open(key, epoch, now);
  model::PathWindow& window = entry.window;
  window.rung = std::max(window.rung, facts.rung);
  ++window.sent;
  ++window.acked;
  if (facts.without_times) ++window.acked_without_times;
  if (facts.bad_timestamp) ++window.bad_timestamp;
  add_header(window.forward, facts.forward_tos, facts.forward_hop_limit);
  add_header(window.back, facts.back_tos, facts.back_hop_limit);
  keep_max(window.prober_delay_max_ns, facts.prober_delay_ns);
  keep_max(window.responder_delay_max_ns, facts.responder_delay_ns);
  if (facts.rtt_ns && entry.rtts_ns.size() < kMaxRtts) entry.rtts_ns.push_back(*facts.rtt_ns);
  return second_of(now);
}

void WindowFolder::uncount_acked(const model::PathKey& key, std::int64_t window, bool without_times) {
  const auto at = open_.find({window, key});
  if (at == open_.end()) return;
  --at->second.window.sent;
  --at->second.window.acked;
  if (without_times) --at->second.window.acked_without_times;
  ++at->second.window.overslept;
}

std::int64_t WindowFolder::lost(const model::PathKey& key, std::uint64_t epoch, Nanos now, Loss loss) {
  add_loss(open(key, epoch, now).window, loss, 1);
  return second_of(now);
}

bool WindowFolder::move(const model::PathKey& key, std::int64_t window, Loss from, Loss to) {
  const auto at = open_.find({window, key});
  if (at == open_.end()) return false;
  // Unsigned: adding the two's complement of one takes one away.
  add_loss(at->second.window, from, static_cast<std::uint32_t>(-1));
  add_loss(at->second.window, to, 1);
  return true;
}

void WindowFolder::aside(const model::PathKey& key, std::uint64_t epoch, Nanos now, Aside what) {
  model::PathWindow& window = open(key, epoch, now).window;
  switch (what) {
    case Aside::Late:
      ++window.late;
      break;
    case Aside::Duplicate:
      ++window.duplicate;
      break;
    case Aside::LocalError:
      ++window.local_error;
      break;
    case Aside::Overslept:
      ++window.overslept;
      break;
    case Aside::Throttled:
      ++window.throttled;
      break;
  }
}

void WindowFolder::close_due(Nanos now) {
  last_close_ = now;
  for (auto at = open_.begin(); at != open_.end() && (at->first.first + 1) * kSecond + settle_ns_ <= now;) {
    Open& entry = at->second;
    if (entry.window.lost_unknown > 0 && (at->first.first + 1) * kSecond + grace_ns_ > now) {
      ++at;
      continue;
    }
    if (!entry.rtts_ns.empty()) {
      std::sort(entry.rtts_ns.begin(), entry.rtts_ns.end());
      entry.window.rtt_min_ns = entry.rtts_ns.front();
      entry.window.rtt_median_ns = rank(entry.rtts_ns, 50);
      entry.window.rtt_p90_ns = rank(entry.rtts_ns, 90);
      entry.window.rtt_max_ns = entry.rtts_ns.back();
    }
    totals_.lost_forward += entry.window.forward.lost;
    totals_.lost_back += entry.window.back.lost;
    totals_.lost_unknown += entry.window.lost_unknown;
    totals_.ce_forward += entry.window.forward.ce;
    totals_.ce_back += entry.window.back.ce;
    closed_.push_back(std::move(entry.window));
    at = open_.erase(at);
  }
  if (closed_.size() > max_closed_) {
    const std::size_t excess = closed_.size() - max_closed_;
    closed_.erase(closed_.begin(), closed_.begin() + static_cast<std::ptrdiff_t>(excess));
    dropped_ += excess;
  }
}

std::optional<Nanos> WindowFolder::next_close() const {
  if (open_.empty()) return std::nullopt;
  const Nanos end = (open_.begin()->first.first + 1) * kSecond;
  return end + settle_ns_ > last_close_ ? end + settle_ns_ : end + grace_ns_;
}

std::vector<model::PathWindow> WindowFolder::take() { return std::exchange(closed_, {}); }

}  // namespace weft::probes
