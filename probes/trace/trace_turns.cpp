// Who is asked next: paths under suspicion, then routers on trial, then courses.
#include <algorithm>
#include <limits>
#include <tuple>

#include "probes/trace/trace_schedule.h"

namespace weft::probes {
namespace {

constexpr Nanos kUnknownBusy = std::numeric_limits<Nanos>::max();
constexpr Nanos kHoldBack = 30 * kSecond;
constexpr double kSuspectTokens = 2;  // one answer of a router is left to those who know less
constexpr Nanos kTrialSpacing = 20 * kMillisecond;

}  // namespace

// Lower goes first.
unsigned TraceSchedule::priority(const Trace& trace, std::uint8_t ttl) const {
  const Hop& hop = trace.hops[ttl - 1U];
  const Seen& s = seen(trace, ttl);
  const std::size_t distinct = s.ports_by_address.size();
  if (hop.address.empty()) {
    if (hop.unanswered >= limits_.tries) return 5;
    if (distinct != 1) return 0;
    return shared_address(trace, ttl).empty() ? 1 : 3;
  }
  return distinct >= 2 ? 2 : 4;
}

TraceSchedule::Payer TraceSchedule::payer(const Trace& trace, std::uint8_t ttl, double tokens, Nanos now) {
  const Hop& hop = trace.hops[ttl - 1U];
  const Seen& s = seen(trace, ttl);
  std::string best = hop.address;
  if (best.empty()) {
    double most = -1e9;
    const auto consider = [&](const std::string& router) {
      if (const double has = routers_.tokens(router, now); has > most) {
        most = has;
        best = router;
      }
    };
    for (const auto& [address, ports] : s.ports_by_address) consider(address);
    if (!s.host.empty()) consider(s.host);
  }
  if (best.empty()) {
    // Nobody known there: one at a time, so that a burst does not use up a shared router before its name is known;
    // more at once the more it looks like plain silence.
    const unsigned allowed = std::min(1 + s.timeouts_unknown, kMaxUnknownInFlight);
    return {"", s.in_flight_unknown < allowed ? 0 : kUnknownBusy};
  }
  const auto wait = routers_.wait(best, tokens, now);
  return {best, wait.value_or(kUnknownBusy)};
}

std::uint16_t TraceSchedule::new_token() {
  do ++last_token_;
  while (last_token_ == 0 || pending_.contains(last_token_));
  return last_token_;
}

std::optional<TraceSend> TraceSchedule::next(Nanos now) {
  expire(now);
  if (pending_.size() >= 32768) return std::nullopt;
  if (auto suspect = next_suspect(now)) return suspect;
  if (overall_.refill(now, limits_.rate_per_s, limits_.burst) < 1) return std::nullopt;
  // First, for a router that answers well makes the rest quick.
  if (auto trial = next_trial(now)) return trial;

  using Rank = std::tuple<unsigned, Nanos, std::uint8_t, std::uint64_t>;
  std::optional<Rank> best;
  std::string best_router;
  const bool suspected = anything_suspected();
  for (auto& [id, trace] : traces_) {
    for (std::size_t i = 0; i < trace.hops.size(); ++i) {
      const Hop& hop = trace.hops[i];
      if (hop.in_flight || hop.due > now) continue;
      const auto ttl = static_cast<std::uint8_t>(i + 1);
      const Rank rank{priority(trace, ttl), hop.due, ttl, id};
      if (suspected && held_back(hop, now)) continue;
      if (best && !(rank < *best)) continue;
      Payer p = payer(trace, ttl, 1, now);
      if (p.wait_ns != 0) continue;
      best = rank;
      best_router = std::move(p.router);
    }
  }
  if (!best) return std::nullopt;

  const auto ttl = std::get<2>(*best);
  const auto id = std::get<3>(*best);
  Trace& trace = traces_.at(id);
  overall_.tokens -= 1;
  if (best_router.empty()) {
    ++seen_[seen_key(trace, ttl)].in_flight_unknown;
  } else {
    routers_.take(best_router, 1, now);
  }
  trace.hops[ttl - 1U].in_flight = true;
  ++trace.hops[ttl - 1U].asked;
  return make(id, trace, ttl, best_router, Purpose::Course, now);
}

TraceSend TraceSchedule::make(std::uint64_t id, Trace& trace, std::uint8_t ttl, const std::string& charged,
                              Purpose purpose, Nanos now) {
  TraceProbe probe;
  probe.source = trace.source;
  probe.destination = trace.destination;
  probe.source_port = trace.request.source_port;
  probe.destination_port = trace.request.destination_port;
  probe.tos = static_cast<std::uint8_t>((trace.request.traffic_class & 0xfc) | 2);
  probe.ttl = ttl;
  probe.token = new_token();
  ++stats_.sent;
  pending_.emplace(probe.token, Pending{id, ttl, charged, probe, now, false, purpose});
  return TraceSend{probe, trace.request.netdev};
}

// What is known need not be asked again just while answers are wanted to tell links apart.
bool TraceSchedule::held_back(const Hop& hop, Nanos now) const {
  return !hop.address.empty() && now - hop.due < kHoldBack && !routers_.willing(hop.address);
}

bool TraceSchedule::anything_suspected() const {
  return std::any_of(traces_.begin(), traces_.end(),
                     [](const auto& t) { return t.second.request.probes_per_hop_per_s > 0; });
}

std::optional<TraceSend> TraceSchedule::next_suspect(Nanos now) {
  const double rate = limits_.suspect_rate_per_s;
  if (suspect_bucket_.refill(now, rate, std::max(1.0, rate / 10)) < 1) return std::nullopt;
  std::uint64_t id = 0;
  std::size_t index = 0;
  std::string router;
  Nanos earliest = now + 1;
  for (auto& [trace_id, trace] : traces_) {
    if (trace.request.probes_per_hop_per_s <= 0) continue;
    for (std::size_t i = 0; i < trace.hops.size(); ++i) {
      const auto ttl = static_cast<std::uint8_t>(i + 1);
      if (trace.hops[i].suspect_due >= earliest || !known(trace, ttl)) continue;
      Payer p = payer(trace, ttl, kSuspectTokens, now);
      if (p.wait_ns != 0) continue;
      earliest = trace.hops[i].suspect_due;
      id = trace_id;
      index = i;
      router = std::move(p.router);
    }
  }
  if (id == 0) return std::nullopt;
  suspect_bucket_.tokens -= 1;
  routers_.take(router, 1, now);
  Trace& trace = traces_.at(id);
  const auto period = static_cast<Nanos>(1e9 / trace.request.probes_per_hop_per_s);
  Hop& hop = trace.hops[index];
  // Not behind by more than one: a sender that was held up must not send a burst.
  hop.suspect_due = std::max(hop.suspect_due + period, now);
  return make(id, trace, static_cast<std::uint8_t>(index + 1), router, Purpose::Suspect, now);
}

std::optional<TraceSend> TraceSchedule::next_trial(Nanos now) {
  if (trial_.router.empty()) {
    // A path that loses packets would fail its routers.
    const auto router = anything_suspected() ? std::nullopt : routers_.trial_due(now);
    if (!router) return std::nullopt;
    for (const auto& [id, trace] : traces_) {
      for (std::size_t i = 0; i < trace.hops.size() && trial_.router.empty(); ++i) {
        if (trace.hops[i].address == *router) trial_ = {*router, id, static_cast<std::uint8_t>(i + 1), 0, 0, 0, now};
      }
    }
    if (trial_.router.empty()) {
      routers_.skip_trial(*router, now);
      return std::nullopt;
    }
  }
  if (trial_.sent >= routers_.trial_packets() || trial_.due > now) return std::nullopt;
  const auto found = traces_.find(trial_.trace);
  if (found == traces_.end() || trial_.ttl > found->second.hops.size()) {
    routers_.skip_trial(trial_.router, now);
    trial_ = {};
    return std::nullopt;
  }
  overall_.tokens -= 1;
  ++trial_.sent;
  trial_.due = now + kTrialSpacing;
  return make(trial_.trace, found->second, trial_.ttl, trial_.router, Purpose::Trial, now);
}

Nanos TraceSchedule::wake_at(Nanos now) {
  Nanos at = now + 10 * kSecond;
  if (!trial_.router.empty() && trial_.sent < routers_.trial_packets()) at = std::min(at, trial_.due);
  if (trial_.router.empty() && !anything_suspected()) at = std::min(at, routers_.next_trial(now).value_or(at));
  for (const auto& [token, p] : pending_) {
    at = std::min(at, p.sent_at + (p.timed_out ? kLateFactor * limits_.answer_timeout_ns : timeout_of(p.purpose)));
  }
  const bool suspected = anything_suspected();
  const double lacking = overall_.last == 0 ? 0 : 1 - overall_.tokens;
  const Nanos overall =
      lacking <= 0 || limits_.rate_per_s <= 0 ? now : now + static_cast<Nanos>(lacking / limits_.rate_per_s * 1e9) + 1;
  for (const auto& [id, trace] : traces_) {
    for (std::size_t i = 0; i < trace.hops.size(); ++i) {
      const Hop& hop = trace.hops[i];
      if (trace.request.probes_per_hop_per_s > 0 && known(trace, static_cast<std::uint8_t>(i + 1))) {
        const Payer p = payer(trace, static_cast<std::uint8_t>(i + 1), kSuspectTokens, now);
        if (p.wait_ns != kUnknownBusy) at = std::min(at, std::max(hop.suspect_due, now + p.wait_ns));
      }
      if (hop.in_flight) continue;
      if (hop.due > now) {
        at = std::min(at, std::max(hop.due, overall));
        continue;
      }
      if (suspected && held_back(hop, now)) {
        at = std::min(at, hop.due + kHoldBack);
        continue;
      }
      const Payer p = payer(trace, static_cast<std::uint8_t>(i + 1), 1, now);
      if (p.wait_ns != kUnknownBusy) at = std::min(at, std::max(now + p.wait_ns, overall));
    }
  }
  return std::max(at, now + kMillisecond);
}

}  // namespace weft::probes
