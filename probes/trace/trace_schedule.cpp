#include "probes/trace/trace_schedule.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace weft::probes {
namespace {

std::string identity(const TraceRequest& r) {
  std::string key;
  for (const std::string* part : {&r.from, &r.to, &r.from_address, &r.to_address, &r.netdev}) {
    key += *part;
    key += '\n';
  }
  return key + std::to_string(r.source_port) + ' ' + std::to_string(r.destination_port) + ' ' +
         std::to_string(r.traffic_class);
}

Result<std::pair<model::Gid, model::Gid>> addresses(const TraceRequest& r) {
  auto source = model::Gid::parse(r.from_address);
  if (!source) return make_error(Error::Kind::Invalid, "trace from " + r.from + ": bad address " + r.from_address);
  auto destination = model::Gid::parse(r.to_address);
  if (!destination) return make_error(Error::Kind::Invalid, "trace to " + r.to + ": bad address " + r.to_address);
  if (source->is_ipv4_mapped() != destination->is_ipv4_mapped()) {
    return make_error(Error::Kind::Invalid, "trace from " + r.from_address + " to " + r.to_address +
                                                ": one is IPv4, the other IPv6; give addresses of one family");
  }
  return std::pair{*source, *destination};
}

}  // namespace

TraceSchedule::SeenKey TraceSchedule::seen_key(const Trace& trace, std::uint8_t ttl) {
  return (ttl == 1 ? trace.source_scope : trace.pair_scope) << 8 | ttl;
}

const TraceSchedule::Seen& TraceSchedule::seen(const Trace& trace, std::uint8_t ttl) const {
  static const Seen kNothing;
  const auto it = seen_.find(seen_key(trace, ttl));
  return it == seen_.end() ? kNothing : it->second;
}

const std::string& TraceSchedule::shared_address(const Trace& trace, std::uint8_t ttl) const {
  static const std::string kNone;
  const Seen& s = seen(trace, ttl);
  const bool agreed =
      limits_.agreeing_ports > 0 && s.ports_by_address.size() == 1 && s.measured >= limits_.agreeing_ports;
  return agreed && s.host.empty() ? s.ports_by_address.begin()->first : kNone;
}

bool TraceSchedule::known(const Trace& trace, std::uint8_t ttl) const {
  return !trace.hops[ttl - 1U].address.empty() || !shared_address(trace, ttl).empty();
}

Result<void> TraceSchedule::set_requests(const std::vector<TraceRequest>& requests, Nanos now) {
  Result<void> outcome;
  std::map<std::string, const TraceRequest*> wanted;
  for (const TraceRequest& request : requests) {
    if (auto ok = addresses(request); !ok) {
      ++stats_.refused_requests;
      outcome = ok.error();
    } else if (wanted.size() >= limits_.max_traces) {
      ++stats_.refused_requests;
      outcome = make_error(Error::Kind::Exhausted, "more than " + std::to_string(limits_.max_traces) + " traces");
    } else {
      wanted.emplace(identity(request), &request);
    }
  }
  for (auto it = id_by_key_.begin(); it != id_by_key_.end();) {
    if (wanted.contains(it->first)) {
      ++it;
      continue;
    }
    forget(it->second, now);
    it = id_by_key_.erase(it);
  }
  for (const auto& [key, request] : wanted) {
    const auto existing = id_by_key_.find(key);
    if (existing == id_by_key_.end()) {
      const auto pair = addresses(*request);
      Trace trace;
      trace.request = *request;
      std::tie(trace.source, trace.destination) = *pair;
      trace.source_scope = scope(request->from_address + '%' + request->netdev);
      trace.pair_scope = scope(request->from_address + '%' + request->netdev + '>' + request->to_address);
      trace.final_length = request->hops.has_value();
      Trace& kept = traces_.emplace(next_id_, std::move(trace)).first->second;
      id_by_key_.emplace(key, next_id_++);
      resize(kept, std::min<std::size_t>(request->hops.value_or(1), limits_.max_ttl), now);
    } else if (Trace& trace = traces_.at(existing->second); trace.request != *request) {
      trace.request.probes_per_hop_per_s = request->probes_per_hop_per_s;
      const bool same_hops = trace.request.hops == request->hops;
      trace.request.hops = request->hops;
      if (request->hops && !same_hops) {
        resize(trace, std::min<std::size_t>(*request->hops, limits_.max_ttl), now);
        trace.final_length = true;
      }
    }
  }
  prune();
  return outcome;
}

void TraceSchedule::resize(Trace& trace, std::size_t hops, Nanos now) {
  for (std::size_t i = hops; i < trace.hops.size(); ++i) set_address(trace, static_cast<std::uint8_t>(i + 1), "", now);
  if (hops != trace.hops.size()) trace.changed = true;
  Hop fresh;
  fresh.due = now;
  trace.hops.resize(hops, fresh);
}

void TraceSchedule::forget(std::uint64_t id, Nanos now) {
  Trace& trace = traces_.at(id);
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (it->second.trace != id) {
      ++it;
      continue;
    }
    if (it->second.charged.empty() && !it->second.timed_out && it->second.purpose == Purpose::Course) {
      Seen& s = seen_[seen_key(trace, it->second.ttl)];
      if (s.in_flight_unknown > 0) --s.in_flight_unknown;
    }
    it = pending_.erase(it);
  }
  resize(trace, 0, now);
  traces_.erase(id);
}

void TraceSchedule::prune() {
  std::map<std::string, std::uint64_t> used;
  for (const auto& [id, trace] : traces_) {
    const std::string source = trace.request.from_address + '%' + trace.request.netdev;
    used[source] = trace.source_scope;
    used[source + '>' + trace.request.to_address] = trace.pair_scope;
  }
  scopes_ = std::move(used);
  std::map<std::uint64_t, bool> alive;
  for (const auto& [name, id] : scopes_) alive[id] = true;
  std::erase_if(seen_, [&](const auto& entry) { return !alive.contains(entry.first >> 8); });
}

std::uint64_t TraceSchedule::scope(const std::string& name) {
  const auto [it, fresh] = scopes_.emplace(name, next_scope_);
  if (fresh) ++next_scope_;
  return it->second;
}

void TraceSchedule::set_address(Trace& trace, std::uint8_t ttl, const std::string& address, Nanos now) {
  Hop& hop = trace.hops[ttl - 1U];
  if (hop.address == address) return;
  const SeenKey key = seen_key(trace, ttl);
  Seen& s = seen_[key];
  const std::string before = shared_address(trace, ttl);
  if (!hop.address.empty()) {
    --s.measured;
    if (--s.ports_by_address[hop.address] == 0) s.ports_by_address.erase(hop.address);
    // The path moved: what is known of its other hops may be old.
    if (!address.empty()) {
      for (Hop& other : trace.hops) {
        if (&other != &hop) other.due = std::min(other.due, now);
      }
    }
  }
  if (!address.empty()) {
    ++s.measured;
    ++s.ports_by_address[address];
  }
  hop.address = address;
  trace.changed = true;
  if (shared_address(trace, ttl) != before) extend_scope(key, now);
}

// A hop became shared, or ceased to be: every path of the scope that has not measured it looks different now.
void TraceSchedule::extend_scope(SeenKey key, Nanos now) {
  const std::uint8_t ttl = static_cast<std::uint8_t>(key & 0xff);
  for (auto& [id, trace] : traces_) {
    if (seen_key(trace, ttl) != key || trace.hops.size() < ttl || !trace.hops[ttl - 1U].address.empty()) continue;
    trace.changed = true;
    trace.hops[ttl - 1U].due = std::min(trace.hops[ttl - 1U].due, now);
    extend(trace, now);
  }
}

void TraceSchedule::count_silence(Hop& hop) {
  if (hop.sent < std::numeric_limits<std::uint16_t>::max()) ++hop.sent;
}

void TraceSchedule::keep_answer(Hop& hop, const Pending& pending, const IcmpAnswer& answer, Nanos now) const {
  hop.answers.push_back({pending.sent_at + timeout_of(pending.purpose), now - pending.sent_at, answer.quoted_tos});
}

void TraceSchedule::count_answers(Hop& hop, Nanos now) {
  std::erase_if(hop.answers, [&](const Answer& answer) {
    if (answer.counts_at > now) return false;
    if (hop.sent == std::numeric_limits<std::uint16_t>::max()) return true;
    ++hop.sent;
    ++hop.answered;
    hop.ce = static_cast<std::uint16_t>(hop.ce + ((answer.tos & 3) == 3));
    hop.ecn_capable = static_cast<std::uint16_t>(hop.ecn_capable + ((answer.tos & 3) != 0));
    hop.rtts_ns.push_back(answer.rtt_ns);
    return true;
  });
}

void TraceSchedule::trial_ended(bool answered, Nanos now) {
  ++trial_.ended;
  trial_.answered += answered ? 1 : 0;
  if (trial_.ended < routers_.trial_packets()) return;
  routers_.tried(trial_.router, trial_.answered, now);
  // A willing router's trial shows how reliably it answers; an unwilling one's only that it was asked too much.
  const auto trace = traces_.find(trial_.trace);
  if (routers_.willing(trial_.router) && trace != traces_.end() && trial_.ttl <= trace->second.hops.size()) {
    Hop& hop = trace->second.hops[trial_.ttl - 1U];
    hop.sent = static_cast<std::uint16_t>(hop.sent + trial_.ended);
    hop.answered = static_cast<std::uint16_t>(hop.answered + trial_.answered);
  }
  trial_ = {};
}

// The packet will not be answered (or could not be sent): ask again later.
void TraceSchedule::hop_over(Pending& pending, bool failed, Nanos now) {
  Trace& trace = traces_.at(pending.trace);
  pending.timed_out = true;
  if (pending.charged.empty()) {
    Seen& s = seen_[seen_key(trace, pending.ttl)];
    if (s.in_flight_unknown > 0) --s.in_flight_unknown;
    s.timeouts_unknown = std::min(s.timeouts_unknown + 1, kMaxUnknownInFlight);
  }
  if (pending.ttl > trace.hops.size()) return;  // the way turned out shorter meanwhile
  Hop& hop = trace.hops[pending.ttl - 1U];
  hop.in_flight = false;
  ++hop.unanswered;
  if (!hop.address.empty() && !failed) count_silence(hop);
  // A router known to be there that stays silent is most likely at its limit.
  if (!hop.address.empty()) routers_.spent(hop.address, now);
  const unsigned doublings = std::min(hop.unanswered - 1, 16U);
  hop.due = now + std::min(limits_.silent_back_off_max_ns, limits_.answer_timeout_ns << doublings);
  if (hop.unanswered == limits_.tries) trace.changed = true;
  if (!hop.address.empty() && hop.unanswered >= limits_.tries && now - hop.answered_at > limits_.keep_ns) {
    set_address(trace, pending.ttl, "", now);  // may grow hops
  }
  extend(trace, now);
}

void TraceSchedule::expire(Nanos now) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    Pending& p = it->second;
    if (!p.timed_out && p.sent_at + timeout_of(p.purpose) <= now) {
      ++stats_.timeouts;
      Trace& trace = traces_.at(p.trace);
      switch (p.purpose) {
        case Purpose::Course:
          hop_over(p, false, now);
          break;
        case Purpose::Suspect:
          p.timed_out = true;
          if (p.ttl <= trace.hops.size()) count_silence(trace.hops[p.ttl - 1U]);
          break;
        case Purpose::Trial:
          p.timed_out = true;
          trial_ended(false, now);
          break;
      }
    }
    it = p.sent_at + kLateFactor * limits_.answer_timeout_ns <= now ? pending_.erase(it) : std::next(it);
  }
}

void TraceSchedule::on_send_error(std::uint16_t token, Nanos now) {
  const auto it = pending_.find(token);
  if (it == pending_.end()) return;
  ++stats_.send_errors;
  if (!it->second.timed_out) {
    Pending& pending = it->second;
    if (pending.purpose != Purpose::Trial && !pending.charged.empty()) routers_.take(pending.charged, -1, now);
    if (pending.purpose == Purpose::Course) hop_over(pending, true, now);
    if (pending.purpose == Purpose::Trial) trial_ended(false, now);
  }
  pending_.erase(it);
}

void TraceSchedule::on_answer(const IcmpParse& parsed, Nanos now) {
  if (const auto* reason = std::get_if<IcmpReject>(&parsed)) {
    ++stats_.rejected[static_cast<std::size_t>(*reason)];
    return;
  }
  const IcmpAnswer& answer = std::get<IcmpAnswer>(parsed);
  const auto it = pending_.find(answer.token);
  if (it == pending_.end() || answer.source != it->second.probe.source ||
      answer.destination != it->second.probe.destination || answer.source_port != it->second.probe.source_port ||
      answer.destination_port != it->second.probe.destination_port) {
    ++stats_.unmatched;
    return;
  }
  // Our own kernel's word: nobody is there at the next hop (no answer to ARP), so the packet never left.
  if (answer.responder == answer.source && answer.responder != answer.destination) {
    on_send_error(answer.token, now);
    return;
  }
  const Pending pending = it->second;
  pending_.erase(it);
  ++stats_.answered;
  if (pending.timed_out) ++stats_.late;
  Trace& trace = traces_.at(pending.trace);
  const std::string responder = answer.responder.to_string();
  Seen& s = seen_[seen_key(trace, pending.ttl)];
  if (pending.purpose == Purpose::Trial) {
    if (!pending.timed_out) trial_ended(responder == pending.charged, now);
    return;
  }
  if (pending.charged != responder) {
    if (!pending.charged.empty()) routers_.take(pending.charged, -1, now);
    routers_.take(responder, 1, now);
  }
  if (pending.purpose == Purpose::Suspect) {
    if (pending.ttl > trace.hops.size()) return;
    Hop& hop = trace.hops[pending.ttl - 1U];
    if (!pending.timed_out) keep_answer(hop, pending, answer, now);
    // It also tells the hop.
    if (answer.responder == trace.destination) return;
    hop.answered_at = now;
    hop.unanswered = 0;
    if (!hop.in_flight) hop.due = std::max(hop.due, now + limits_.refresh_ns * 3 / 4);
    set_address(trace, pending.ttl, responder, now);
    extend(trace, now);
    return;
  }
  if (pending.charged.empty() && !pending.timed_out && s.in_flight_unknown > 0) --s.in_flight_unknown;
  s.timeouts_unknown = 0;
  if (pending.ttl > trace.hops.size()) return;

  Hop& hop = trace.hops[pending.ttl - 1U];
  if (!pending.timed_out) {
    hop.in_flight = false;
    // As with silence: of a hop not known yet only answers could count, and no way there would seem to lose.
    if (!hop.address.empty()) keep_answer(hop, pending, answer, now);
  }
  hop.unanswered = 0;
  hop.answered_at = now;
  hop.rtt_ns = now - pending.sent_at;
  // Spread over half a refresh, so that paths asked together are not asked together for ever.
  hop.due = now + limits_.refresh_ns * 3 / 4 + limits_.refresh_ns / 2 * (answer.token % 64) / 64;
  if (answer.responder == trace.destination) {
    s.host = responder;
    resize(trace, pending.ttl - 1U, now);
    trace.final_length = trace.host_answered = trace.changed = true;
    return;
  }
  set_address(trace, pending.ttl, responder, now);
  // A router that refuses to forward is where this packet's way ends; with the hop count given it is only a filter.
  if (answer.kind == IcmpKind::Unreachable && !trace.request.hops) {
    resize(trace, pending.ttl, now);
    trace.final_length = true;
  }
  extend(trace, now);
}

// Unknown hop count: one TTL further once the last is known, or was asked in vain after a known one.
void TraceSchedule::extend(Trace& trace, Nanos now) {
  if (trace.final_length || trace.hops.size() >= limits_.max_ttl) return;
  const std::size_t n = trace.hops.size();
  const bool last_known = known(trace, static_cast<std::uint8_t>(n));
  const bool one_silent = trace.hops[n - 1].unanswered > 0 && (n < 2 || known(trace, static_cast<std::uint8_t>(n - 1)));
  if (last_known || one_silent) resize(trace, n + 1, now);
}

bool TraceSchedule::trace_finished(const Trace& trace) const {
  for (std::size_t i = 0; i < trace.hops.size(); ++i) {
    if (!known(trace, static_cast<std::uint8_t>(i + 1)) && trace.hops[i].unanswered < limits_.tries) return false;
  }
  if (trace.final_length || trace.hops.size() >= limits_.max_ttl) return true;
  const std::size_t n = trace.hops.size();
  return n >= 2 && trace.hops[n - 1].unanswered >= limits_.tries && trace.hops[n - 2].unanswered >= limits_.tries;
}

bool TraceSchedule::finished() const {
  return std::all_of(traces_.begin(), traces_.end(), [&](const auto& t) { return trace_finished(t.second); });
}

model::PathTrace TraceSchedule::result(const Trace& trace) const {
  model::PathTrace out;
  out.from = trace.request.from;
  out.to = trace.request.to;
  out.from_address = trace.request.from_address;
  out.to_address = trace.request.to_address;
  out.source_port = trace.request.source_port;
  if (trace.request.destination_port != rdma::kRoceUdpPort) out.destination_port = trace.request.destination_port;
  out.complete = trace.request.hops.has_value() || trace.host_answered;
  for (std::size_t i = 0; i < trace.hops.size(); ++i) {
    const auto ttl = static_cast<std::uint8_t>(i + 1);
    const std::string& own = trace.hops[i].address;
    model::TraceHop hop;
    hop.ttl = ttl;
    hop.address = own.empty() ? shared_address(trace, ttl) : own;
    const Hop& known_hop = trace.hops[i];
    hop.sent = known_hop.sent;
    hop.answered = known_hop.answered;
    hop.ce = known_hop.ce;
    hop.ecn_capable = known_hop.ecn_capable;
    if (std::vector<Nanos> rtts = known_hop.rtts_ns; !rtts.empty()) {
      const auto middle = rtts.begin() + static_cast<std::ptrdiff_t>(rtts.size() / 2);
      std::nth_element(rtts.begin(), middle, rtts.end());
      hop.rtt_ns = *middle;
    }
    out.hops.push_back(std::move(hop));
    if (out.hops.back().address.empty()) out.complete = false;
  }
  return out;
}

std::vector<model::PathTrace> TraceSchedule::take_changed(Nanos now) {
  expire(now);
  std::vector<model::PathTrace> out;
  for (auto& [id, trace] : traces_) {
    for (Hop& hop : trace.hops) count_answers(hop, now);
    const bool counted = std::any_of(trace.hops.begin(), trace.hops.end(), [](const Hop& hop) { return hop.sent > 0; });
    const Nanos pause = counted ? limits_.counted_report_ns : limits_.refresh_ns;
    if (!trace.changed && now - trace.emitted_at < pause) continue;
    const bool anything = trace.hops.empty() || std::any_of(trace.hops.begin(), trace.hops.end(), [](const Hop& hop) {
                            return hop.answered_at > 0 || hop.unanswered > 0;
                          });
    if (!anything) continue;
    trace.changed = false;
    trace.emitted_at = now;
    out.push_back(result(trace));
    for (Hop& hop : trace.hops) {
      hop.sent = hop.answered = hop.ce = hop.ecn_capable = 0;
      hop.rtts_ns.clear();
    }
  }
  return out;
}

std::vector<TraceView> TraceSchedule::views() const {
  std::vector<TraceView> out;
  for (const auto& [id, trace] : traces_) {
    TraceView view;
    view.trace = result(trace);
    view.finished = trace_finished(trace);
    view.reached = trace.host_answered;
    for (std::size_t i = 0; i < trace.hops.size(); ++i) {
      const Hop& hop = trace.hops[i];
      const std::string& address = view.trace.hops[i].address;
      view.hops.push_back({address, hop.address.empty() && !address.empty(), hop.rtt_ns, hop.asked});
    }
    out.push_back(std::move(view));
  }
  return out;
}

}  // namespace weft::probes
