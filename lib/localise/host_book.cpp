#include "lib/localise/host_book.h"

#include <algorithm>
#include <set>

namespace weft::localise {
namespace {

constexpr std::size_t kMaxHosts = 8'192;
constexpr std::size_t kMaxSpans = 64;
constexpr std::size_t kMaxBeats = 20;
constexpr std::size_t kMaxEndpointsAHost = 64;
// Agents report each second; a longer pause means that nothing is known of the time between.
constexpr Nanos kContactGap = 2'500 * kMillisecond;
// A probe lost at an end's bad moment is told this much later at most: timeout, then the prober's window and its way.
constexpr Nanos kEcho = 1'700 * kMillisecond;
// How long before an inventory tells of a trouble the trouble itself may have begun.
constexpr Nanos kInventoryLag = 4 * kSecond;
constexpr Nanos kMemory = 40 * kSecond;
// Of a host that runs late, while nobody hears an answer of it: in units of the allowance of a host that is well.
constexpr double kLateHostPatience = 2.5;
// The same while its answers arrive: it lives, and only its reports are held up.
constexpr Nanos kAnsweringPatience = 20 * kSecond;
constexpr Nanos kAnswerFresh = 1'500 * kMillisecond;
constexpr Nanos kAnswerLag = 3'500 * kMillisecond;
constexpr unsigned kMaxSecondsAReport = 4;
// Of a second that a host ran late in all, up to which a probe of that second most likely missed it.
constexpr double kMomentsShare = 0.2;

void add_span(std::vector<Span>& spans, Span span) {
  if (!spans.empty() && span.from <= spans.back().to && span.from >= spans.back().from) {
    spans.back().to = std::max(spans.back().to, span.to);
    return;
  }
  if (spans.size() >= kMaxSpans) spans.erase(spans.begin());
  spans.push_back(span);
}

void forget_spans(std::vector<Span>& spans, Nanos before) {
  std::erase_if(spans, [&](const Span& span) { return span.to < before; });
}

bool bad_beat(const Host::Beat& beat, bool already) {
  const Nanos gap = already ? HostBook::kOverloadGap / 2 : HostBook::kOverloadGap;
  return beat.max_gap_ns >= gap || beat.late_share >= (already ? 0.15 : 0.3) || beat.starved || beat.peers_complain;
}

// Bad seconds among the newest `most` that anything is known of: as the host reported them, and those since its last
// report in which several peers waited for its software.
struct BadSeconds {
  unsigned bad = 0, known = 0;
  Nanos first = 0;  // 0: none
};

BadSeconds bad_seconds(const Host& host, unsigned most) {
  BadSeconds sum;
  const auto add = [&](unsigned seconds, bool bad, Nanos at) {
    seconds = std::min(seconds, most - sum.known);
    sum.known += seconds;
    if (!bad || seconds == 0) return;
    sum.bad += seconds;
    sum.first = at;
  };
  const std::int64_t reported = host.beats.empty() ? -1 : host.beats.back().at / kSecond;
  for (auto slow = host.slow_answers.rbegin(); slow != host.slow_answers.rend() && slow->first > reported; ++slow) {
    if (slow->second.size() >= 2) add(1, true, slow->first * kSecond);
  }
  for (auto beat = host.beats.rbegin(); beat != host.beats.rend(); ++beat) {
    add(beat->seconds, bad_beat(*beat, host.overloaded), beat->at);
  }
  return sum;
}

}  // namespace

bool EndpointState::tainted(Nanos at) const {
  if (trouble() && at >= since - kInventoryLag) return true;
  return std::any_of(taint.begin(), taint.end(), [&](const Span& span) { return span.holds(at); });
}

Host* HostBook::touch(const std::string& name, Nanos now) {
  const auto found = hosts_.find(name);
  if (found != hosts_.end()) return &found->second;
  if (hosts_.size() >= kMaxHosts) return nullptr;
  Host host;
  host.name = name;
  host.first_seen = now;
  return &hosts_.emplace(name, std::move(host)).first->second;
}

const Host* HostBook::find(const std::string& name) const {
  const auto found = hosts_.find(name);
  return found == hosts_.end() ? nullptr : &found->second;
}

void HostBook::on_contact(Host& host, Nanos at) {
  if (host.last_contact && at - *host.last_contact > kContactGap) {
    for (auto* spans : {&host.loss_taint, &host.delay_taint}) add_span(*spans, {*host.last_contact, at + kEcho});
  }
  if (!host.last_contact || at > *host.last_contact) host.last_contact = at;
}

void HostBook::on_start(Host& host, std::uint64_t epoch, Nanos at) {
  if (host.agent_epoch != 0 && host.agent_epoch == epoch && !host.goodbye) {
    on_contact(host, at);  // the stream came back, weftd did not restart
    return;
  }
  // The old process was gone since its last word at the latest; the new one answers nobody before it is set up.
  Nanos from = at - kSecond;
  if (host.last_contact) from = std::min(from, *host.last_contact);
  if (host.goodbye) from = std::min(from, *host.goodbye - kSecond);
  for (auto* spans : {&host.loss_taint, &host.delay_taint}) add_span(*spans, {from, at + 2 * kSecond + kEcho});
  ++revision_;
  host.agent_epoch = epoch;
  host.started = at;
  host.goodbye.reset();
  host.awaiting_inventory = true;
  host.beats.clear();
  host.slow_answers.clear();
  if (!host.last_contact || at > *host.last_contact) host.last_contact = at;
}

void HostBook::on_goodbye(Host& host, Nanos allowance, Nanos at) {
  ++revision_;
  host.goodbye = at;
  host.restart_allowance_ns = std::clamp<Nanos>(allowance, 0, 3'600 * kSecond);
  host.overloaded = false;
  if (!host.last_contact || at > *host.last_contact) host.last_contact = at;
}

void HostBook::on_inventory(Host& host, const model::Inventory& inventory, Nanos at) {
  const bool first_of_this_agent = host.awaiting_inventory || !host.inventory;
  if (host.awaiting_inventory) {
    for (auto* spans : {&host.loss_taint, &host.delay_taint}) {
      add_span(*spans, {host.started.value_or(at), at + 2 * kSecond + kEcho});
    }
  }
  host.awaiting_inventory = false;
  std::set<std::string> offered;
  for (const model::ProbeEndpoint& offer : inventory.endpoints) {
    if (host.endpoints.size() >= kMaxEndpointsAHost && host.endpoints.count(offer.device) == 0) continue;
    offered.insert(offer.device);
    EndpointState& state = host.endpoints[offer.device];
    if (state.seen && state.offer.responder_epoch != offer.responder_epoch) {
      // Probes to the queue pairs of before are still on their way, and told a little later.
      add_span(state.taint, {at - kInventoryLag, at + kEcho});
    }
    if (!state.seen || !(state.offer == offer)) ++revision_;
    state.seen = true;
    state.offer = offer;
  }
  for (auto it = host.endpoints.begin(); it != host.endpoints.end();) {
    auto& [device, state] = *it;
    const auto found = std::find_if(inventory.devices.begin(), inventory.devices.end(),
                                    [&, &name = device](const model::RdmaDevice& d) { return d.name == name; });
    const bool present = found != inventory.devices.end();
    const bool is_offered = offered.count(device) != 0;
    // A restarted agent that does not list a device any more was set up so, unless somebody expects the device.
    if (first_of_this_agent && !present && !is_offered && host.started && !state.trouble()) {
      ++revision_;
      it = host.endpoints.erase(it);
      continue;
    }
    const bool was = state.trouble();
    const bool rdma = state.offer.transport != "udp";
    state.device_gone = !is_offered && !(rdma && present);
    state.endpoint_missing = !is_offered && !state.device_gone;
    state.port_down = false;
    if (rdma && present && !found->ports.empty()) {
      state.port_down = std::all_of(found->ports.begin(), found->ports.end(), [](const model::RdmaPort& port) {
        return port.state == model::PortState::Down || port.state == model::PortState::Init;
      });
    }
    if (state.trouble() && !was) state.since = at;
    if (!state.trouble() && was) {
      state.recovered = at;
      add_span(state.taint, {state.since - kInventoryLag, at + 2 * kSecond + kEcho});
    }
    ++it;
  }
  host.inventory = inventory;
}

void HostBook::on_health(Host& host, const model::HostHealth& health, Nanos at) {
  host.health = health;
  host.last_health = at;
  const Nanos window = std::clamp<Nanos>(health.window_ns, 100 * kMillisecond, 60 * kSecond);
  const Nanos gap = std::clamp<Nanos>(health.max_gap_ns, 0, 600 * kSecond);
  const Nanos total = std::clamp<Nanos>(health.total_gap_ns, 0, 600 * kSecond);
  Host::Beat beat;
  beat.at = at;
  beat.max_gap_ns = gap;
  // One long stop (SIGSTOP, a paused guest) is one bad moment, however many seconds it took.
  const Nanos gaps = gap > 0 ? (total + gap / 2) / gap : 1;
  beat.seconds =
      static_cast<unsigned>(std::clamp<Nanos>(std::min((window + kSecond / 2) / kSecond, gaps), 1, kMaxSecondsAReport));
  beat.late_share = std::min(1.0, static_cast<double>(total) / static_cast<double>(window));
  beat.starved = health.responder_low_water && *health.responder_low_water == 0;
  if (gap >= kLossGap || beat.late_share >= 0.4 || beat.starved) {
    add_span(host.loss_taint, {at - std::max(window, gap), at + kEcho});
  }
  if (gap >= std::max<Nanos>(25 * kMillisecond, delay_floor_)) {
    const bool moments = gap < kLossGap && beat.late_share < kMomentsShare;
    add_span(moments ? host.delay_doubt : host.delay_taint, {at - std::max(window, gap), at + kEcho});
  }
  host.beats.push_back(beat);
  if (host.beats.size() > kMaxBeats) host.beats.pop_front();
}

void HostBook::on_slow_answer(Host& host, const std::string& prober, Nanos delay, Nanos at) {
  auto& second = host.slow_answers[at / kSecond];
  if (second.size() < 8 || second.count(prober) != 0) {
    Nanos& worst = second[prober];
    worst = std::max(worst, delay);
  }
  if (host.slow_answers.size() > kMaxBeats) host.slow_answers.erase(host.slow_answers.begin());
  // Somebody waited for this host's software: such a moment says nothing about round trips or timeouts.
  add_span(host.delay_taint, {at - kSecond, at});
}

HostState HostBook::state(const Host& host, Nanos now) const {
  if (host.goodbye) {
    return now - *host.goodbye < host.restart_allowance_ns ? HostState::Restarting : HostState::Stopped;
  }
  const bool answers = host.last_answer && now - *host.last_answer < kAnswerFresh;
  if (!host.last_contact) {
    // Others were told to probe it (a plan from before), and it stays away: as silent as one that fell silent.
    const bool probed = host.last_probed && now - *host.last_probed < 3 * kSecond;
    if (probed && !answers && now - host.first_seen > 10 * kSecond) return HostState::Silent;
    return HostState::NeverSeen;
  }
  if (now - *host.last_contact <= silence_allowed(host, now)) return HostState::Reporting;
  if (!answers) return HostState::Silent;
  // Windows come a second or two after what they tell of: an answer from before its end is no sign of life after it.
  return *host.last_answer - *host.last_contact > kAnswerLag ? HostState::Unreachable : HostState::Reporting;
}

Nanos HostBook::silence_allowed(const Host& host, Nanos now) const {
  const bool runs_late = host.overloaded || bad_seconds(host, 3).bad >= 2;
  if (!runs_late) return silent_after_;
  if (host.last_answer && now - *host.last_answer < kAnswerFresh) return std::max(silent_after_, kAnsweringPatience);
  return static_cast<Nanos>(static_cast<double>(silent_after_) * kLateHostPatience);
}

Nanos HostBook::confirmed_until(const Host& host) const {
  if (host.last_health) return *host.last_health;
  return host.last_contact.value_or(0);
}

void HostBook::review(Nanos now) {
  unsigned reporting = 0;
  unsigned suspects = 0;
  std::vector<Host*> bad;
  for (auto& [name, host] : hosts_) {
    forget_spans(host.loss_taint, now - kMemory);
    forget_spans(host.delay_taint, now - kMemory);
    forget_spans(host.delay_doubt, now - kMemory);
    for (auto& [device, endpoint] : host.endpoints) forget_spans(endpoint.taint, now - kMemory);
    if (state(host, now) != HostState::Reporting) {
      host.overloaded = false;
      continue;
    }
    ++reporting;
    for (Host::Beat& beat : host.beats) {
      const auto slow = host.slow_answers.find(beat.at / kSecond);
      beat.peers_complain = slow != host.slow_answers.end() && slow->second.size() >= 2;
    }
    while (!host.beats.empty() && now - host.beats.front().at > 20 * kSecond) host.beats.pop_front();
    host.slow_answers.erase(host.slow_answers.begin(), host.slow_answers.lower_bound((now - 20 * kSecond) / kSecond));
    const unsigned last6 = bad_seconds(host, 6).bad;
    const BadSeconds last10 = bad_seconds(host, 10);
    if (host.overloaded) {
      if (last10.bad <= 1) host.overloaded = false;
    } else if (last6 >= 4) {
      ++suspects;
      host.overloaded_since = last10.first - kSecond;
      if (last10.bad < 8) bad.push_back(&host);
      if (last10.bad >= 8) host.overloaded = true;
    }
  }
  // Most hosts late in the same seconds have one cause outside of them (their common machine, a clock): wait for more.
  if (reporting >= 3 && suspects * 2 > reporting) return;
  for (Host* host : bad) host->overloaded = true;
}

}  // namespace weft::localise
