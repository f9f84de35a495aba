#include "cli/ping_stats.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace weft::cli {
namespace {

constexpr std::uint8_t kEcnMask = 3, kNotEct = 0, kCe = 3;

void arrive(DirectionSummary& total, DirectionSummary& port, std::optional<std::uint8_t> tos,
            std::optional<std::uint8_t> hop_limit, std::uint8_t sent_hop_limit) {
  for (DirectionSummary* d : {&total, &port}) {
    if (tos) {
      const std::uint8_t ecn = *tos & kEcnMask;
      d->ecn_capable += ecn != kNotEct;
      d->ce += ecn == kCe;
      d->bleached += ecn == kNotEct;
    }
    if (hop_limit && *hop_limit <= sent_hop_limit) d->hops = static_cast<unsigned>(sent_hop_limit - *hop_limit);
  }
}

}  // namespace

void Quantiles::add(Nanos value) {
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = count_ == 0 ? value : std::max(max_, value);
  ++count_;
  if (samples_.size() < kMax) {
    samples_.push_back(value);
    return;
  }
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  if (const std::uint64_t at = random_ % count_; at < kMax) samples_[at] = value;
}

void Quantiles::add(const Quantiles& other) {
  if (other.count_ == 0) return;
  const Nanos low = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  const Nanos high = count_ == 0 ? other.max_ : std::max(max_, other.max_);
  const std::uint64_t all = count_ + other.count_;
  for (const Nanos value : other.samples_) add(value);
  count_ = all;
  min_ = low;
  max_ = high;
}

namespace {

std::vector<PortSummary> fold(const std::vector<PortSummary>& ports, std::uint16_t PortSummary::*kept,
                              std::uint16_t PortSummary::*dropped, DirectionSummary PortSummary::*way) {
  std::vector<PortSummary> out;
  for (const PortSummary& port : ports) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const auto& p) { return p.*kept == port.*kept; });
    if (same == out.end()) {
      out.push_back(port);
      out.back().*dropped = 0;
      continue;
    }
    same->sent += port.sent;
    same->lost += port.lost;
    same->rtt.add(port.rtt);
    for (auto direction : {&PortSummary::forward, &PortSummary::back}) {
      DirectionSummary& sum = (*same).*direction;
      const DirectionSummary& more = port.*direction;
      sum.lost += more.lost;
      sum.ecn_capable += more.ecn_capable;
      sum.ce += more.ce;
      sum.bleached += more.bleached;
      if (more.hops) sum.hops = more.hops;
    }
  }
  const auto badness = [&](const PortSummary& p) {
    const auto share = [](std::uint64_t part, std::uint64_t whole) {
      return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    return std::tuple(share((p.*way).lost, p.sent), share(p.lost, p.sent), share((p.*way).ce, (p.*way).ecn_capable),
                      p.rtt.at(0.5).value_or(0));
  };
  std::stable_sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return badness(a) > badness(b); });
  return out;
}

}  // namespace

std::vector<PortSummary> by_forward_port(const std::vector<PortSummary>& ports) {
  return fold(ports, &PortSummary::forward_port, &PortSummary::return_port, &PortSummary::forward);
}

std::vector<PortSummary> by_return_port(const std::vector<PortSummary>& ports) {
  return fold(ports, &PortSummary::return_port, &PortSummary::forward_port, &PortSummary::back);
}

std::optional<Nanos> Quantiles::at(double quantile) const {
  if (samples_.empty()) return std::nullopt;
  std::vector<Nanos> sorted = samples_;
  const double rank = std::ceil(quantile * static_cast<double>(sorted.size()));
  const std::size_t index = static_cast<std::size_t>(std::clamp(rank, 1.0, static_cast<double>(sorted.size()))) - 1;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(index), sorted.end());
  return sorted[index];
}

bool PingStats::add(const probes::ProbeOutcome& o) {
  using probes::ProbeResult;
  if (limit_ > 0 && o.sequence > limit_) return false;
  // Late and duplicate come after the probe's end was already told.
  if (o.result == ProbeResult::Duplicate) {
    ++total_.duplicate;
    return true;
  }
  if (o.result == ProbeResult::Late) {
    const auto port = by_ports_.find({o.key.forward_port, o.key.return_port});
    if (port == by_ports_.end() || port->second.lost == 0) return true;
    --port->second.lost;
    --total_.lost;
    ++total_.late;
    return true;
  }
  ++decided_;
  if (!o.error.empty()) total_.last_error = o.error;
  switch (o.result) {
    case ProbeResult::LocalError:
      ++total_.local_error;
      return true;
    case ProbeResult::Overslept:
      ++total_.overslept;
      return true;
    case ProbeResult::Stale:
      ++total_.stale;
      return true;
    default:
      break;
  }
  PortSummary& port = by_ports_[{o.key.forward_port, o.key.return_port}];
  port.forward_port = o.key.forward_port;
  port.return_port = o.key.return_port;
  ++total_.sent;
  ++port.sent;
  if (o.result == ProbeResult::Timeout) {
    ++total_.lost;
    ++port.lost;
    return true;
  }
  ++total_.acked;
  arrive(total_.forward, port.forward, o.forward_tos, o.forward_hop_limit, hop_limit_);
  arrive(total_.back, port.back, o.back_tos, o.back_hop_limit, hop_limit_);
  if (o.result == ProbeResult::AckWithoutTimes) ++total_.without_times;
  if (o.result == ProbeResult::BadTimestamp) ++total_.bad_timestamp;
  if (o.result != ProbeResult::Ok) return true;
  if (o.rtt_ns) {
    total_.rtt.add(*o.rtt_ns);
    port.rtt.add(*o.rtt_ns);
  }
  if (o.prober_delay_ns) total_.prober_delay.add(*o.prober_delay_ns);
  if (o.responder_delay_ns) total_.responder_delay.add(*o.responder_delay_ns);
  return true;
}

void PingStats::add(const model::PathWindow& w) {
  total_.rung = std::max(total_.rung.value_or(w.rung), w.rung);
  total_.forward.lost += w.forward.lost;
  total_.back.lost += w.back.lost;
  const auto it = by_ports_.find({w.key.forward_port, w.key.return_port});
  if (it == by_ports_.end()) return;
  it->second.forward.lost += w.forward.lost;
  it->second.back.lost += w.back.lost;
}

PingSummary PingStats::summary() const {
  PingSummary out = total_;
  // The windows may know of probes past the limit, and may lag: the outcomes are the count, windows only split it.
  const auto settle = [](DirectionSummary& forward, DirectionSummary& back, std::uint64_t lost) {
    forward.lost = std::min(forward.lost, lost);
    back.lost = std::min(back.lost, lost - forward.lost);
  };
  settle(out.forward, out.back, out.lost);
  out.lost_unknown = out.lost - out.forward.lost - out.back.lost;
  for (const auto& [key, port] : by_ports_) {
    out.ports.push_back(port);
    settle(out.ports.back().forward, out.ports.back().back, port.lost);
  }
  const auto badness = [](const PortSummary& p) {
    const double sent = static_cast<double>(std::max<std::uint64_t>(1, p.sent));
    return std::tuple(static_cast<double>(p.lost) / sent, static_cast<double>(p.forward.ce + p.back.ce) / sent,
                      p.rtt.at(0.5).value_or(0));
  };
  std::stable_sort(out.ports.begin(), out.ports.end(),
                   [&](const PortSummary& a, const PortSummary& b) { return badness(a) > badness(b); });
  return out;
}

}  // namespace weft::cli
