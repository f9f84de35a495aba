#include "tests/unit/lib/localise/simulator.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <stdexcept>

namespace weft::test {
namespace {

std::uint64_t hash(std::uint64_t h, const std::string& text) {
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h ^ (h >> 29);
}

// The tracer's budget of a router that did not pass its trial, and what it leaves in it for traces.
constexpr double kRouterRate = 0.9, kRouterBurst = 5, kTokensLeft = 1;
constexpr Nanos kWallOffset = 1'700'000'000 * kSecond;

std::string host_of(const std::string& port) { return port.substr(0, port.find('/')); }

unsigned device_of(const std::string& port) { return port.ends_with("/rxe1") ? 1 : 0; }

std::string port_name(const std::string& host, unsigned device) { return host + "/rxe" + std::to_string(device); }

// What chance goes by: of rxe0 the host's name.
std::string chance_name(const std::string& port) { return device_of(port) == 0 ? host_of(port) : port; }

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(next() >> 11) / 9007199254740992.0; }

std::string describe(const model::Finding& finding) {
  return std::string(model::finding_info(finding.kind).name) + " " + finding.subject;
}

Simulator::Simulator(SimConfig config) : config_(config), random_(config.seed), tracker_({}) {
  for (unsigned leaf = 0; leaf < config_.leaves; ++leaf) {
    for (unsigned i = 0; i < config_.hosts_per_leaf; ++i) {
      SimHost host;
      host.name = "h" + std::to_string(leaf * config_.hosts_per_leaf + i + 1);
      host.leaf = leaf;
      hosts_.emplace(host.name, host);
    }
  }
  if (config_.topology) build_topology();
  localiser_ = localise::Localiser::create(config_.localiser, topology_);
  for (auto& [name, host] : hosts_) start(name);
}

// Addresses: 10.LEAF.SPINE.x for l-s cables (.1 at the leaf, .2 at the spine), 10.200+..; hosts likewise.
std::string Simulator::address_of(const std::string& node, const std::string& from) const {
  if (!config_.inbound_addresses) return "192.0." + std::to_string(node[0] == 'l' ? 1 : 2) + "." + node.substr(1);
  const auto number = [](const std::string& name) { return std::stoul(name.substr(1)); };
  // The device by the leaf at its cable's other end.
  const auto host_cable = [&](const std::string& host, const std::string& leaf, unsigned end) {
    const unsigned device = config_.devices > 1 && leaf == leaf_of(hosts_.at(host), 1) ? 1 : 0;
    return "10." + std::to_string(255 - device) + "." + std::to_string(number(host) / 60) + "." +
           std::to_string(number(host) % 60 * 4 + end);
  };
  if (node[0] == 'h') return host_cable(node, from, 2);
  if (from[0] == 'h') return host_cable(from, node, 1);
  const std::string& leaf = node[0] == 'l' ? node : from;
  const std::string& spine = node[0] == 's' ? node : from;
  return "10." + std::to_string(number(leaf)) + "." + std::to_string(number(spine)) + (node[0] == 'l' ? ".1" : ".2");
}

void Simulator::build_topology() {
  std::string text = "fabric = \"sim\"\n";
  for (unsigned l = 1; l <= config_.leaves; ++l)
    text += "[[switch]]\nname = \"l" + std::to_string(l) + "\"\ntier = \"leaf\"\n";
  for (unsigned s = 1; s <= config_.spines; ++s)
    text += "[[switch]]\nname = \"s" + std::to_string(s) + "\"\ntier = \"spine\"\n";
  for (const auto& [name, host] : hosts_) text += "[[host]]\nname = \"" + name + "\"\n";
  const auto cable = [&](const std::string& a, const std::string& b, const std::string& to_a, const std::string& to_b) {
    text += "[[link]]\na = \"" + a + "\"\nb = \"" + b + "\"\na_addresses = [\"" + to_a + "\"]\nb_addresses = [\"" +
            to_b + "\"]\n";
  };
  const bool inbound = config_.inbound_addresses;
  config_.inbound_addresses = true;
  for (const auto& [name, host] : hosts_) {
    for (unsigned device = 0; device < config_.devices; ++device) {
      const std::string leaf = leaf_of(host, device);
      cable(port_name(name, device), leaf, address_of(name, leaf), address_of(leaf, name));
    }
  }
  for (unsigned l = 1; l <= config_.leaves; ++l) {
    for (unsigned s = 1; s <= config_.spines; ++s) {
      const std::string leaf = "l" + std::to_string(l);
      const std::string spine = "s" + std::to_string(s);
      cable(leaf, spine, address_of(leaf, spine), address_of(spine, leaf));
    }
  }
  config_.inbound_addresses = inbound;
  auto parsed = localise::Topology::parse(text, "sim.toml");
  if (!parsed) throw std::runtime_error(parsed.error().context);
  topology_ = *parsed;
}

unsigned Simulator::spine_of(const std::string& from, const std::string& to, localise::UdpPorts ports) const {
  std::uint64_t start = config_.seed * 77 + ports.source * 2654435761ULL;
  if (config_.udp) start += ports.destination * 0x9e3779b97f4a7c15ULL;
  return static_cast<unsigned>(hash(hash(start, from), to) >> 7) % config_.spines;
}

std::string Simulator::leaf_of(const SimHost& host, unsigned device) const {
  return "l" + std::to_string((host.leaf + device) % config_.leaves + 1);
}

std::vector<std::string> Simulator::way(const std::string& from, const std::string& to,
                                        localise::UdpPorts ports) const {
  const std::string a = leaf_of(hosts_.at(host_of(from)), device_of(from));
  const std::string b = leaf_of(hosts_.at(host_of(to)), device_of(to));
  if (a == b) return {host_of(from), a, host_of(to)};
  const std::string spine = "s" + std::to_string(spine_of(chance_name(from), chance_name(to), ports) + 1);
  return {host_of(from), a, spine, b, host_of(to)};
}

// Of the device's queue pairs that send probes; those that answer are 8000 above.
std::uint16_t Simulator::first_port(const std::string& port) const {
  return static_cast<std::uint16_t>(49152 + hash(hosts_.at(host_of(port)).epoch, chance_name(port)) % 1000 * 16);
}

void Simulator::both_ways(const std::string& a, const std::string& b, LinkFault fault) {
  faults_[a + ">" + b] = fault;
  faults_[b + ">" + a] = fault;
}

void Simulator::send_inventory(const std::string& name) {
  const SimHost& host = hosts_.at(name);
  model::Inventory inventory;
  inventory.host = name;
  for (unsigned number = 0; number < config_.devices; ++number) {
    if (number == 0 && !host.device) continue;
    model::RdmaDevice device;
    device.name = "rxe" + std::to_string(number);
    device.driver = "rxe";
    model::RdmaPort port;
    port.state = number != 0 || host.port_up ? model::PortState::Active : model::PortState::Down;
    device.ports.push_back(port);
    inventory.devices.push_back(device);
    model::ProbeEndpoint endpoint;
    endpoint.device = device.name;
    endpoint.transport = config_.udp ? "udp" : "rdma";
    endpoint.address = address_of(name, leaf_of(host, number));
    endpoint.hello_port = 18515;
    endpoint.responder_epoch = host.epoch;
    const std::uint16_t base = first_port(port_name(name, number));
    for (unsigned p = 0; p < config_.ports; ++p) {
      endpoint.prober_ports.push_back(static_cast<std::uint16_t>(base + p));
      endpoint.responder_ports.push_back(static_cast<std::uint16_t>(base + 8000 + p));
    }
    inventory.endpoints.push_back(endpoint);
  }
  localiser_->on_inventory(inventory, now_);
}

void Simulator::goodbye(const std::string& name, Nanos allowance) {
  hosts_.at(name).stopped = true;
  localiser_->on_goodbye(name, allowance, now_);
}

void Simulator::start(const std::string& name) {
  SimHost& host = hosts_.at(name);
  host.stopped = false;
  ++host.epoch;
  ++host.agent_epoch;
  traced_at_[name].clear();
  localiser_->on_contact(name, now_);
  localiser_->on_start(name, host.agent_epoch, now_);
  send_inventory(name);
}

void Simulator::restart_aggregator() {
  const std::vector<model::Finding> active_before = tracker_.active();
  localiser_ = localise::Localiser::create(config_.localiser, topology_);
  tracker_ = detect::FindingTracker({});
  localiser_->resume(active_before, now_);
  tracker_.restore(active_before, now_);
  traced_at_.clear();
  for (auto& [name, host] : hosts_) {
    if (host.frozen || host.stopped) continue;
    localiser_->on_contact(name, now_);
    localiser_->on_start(name, host.agent_epoch, now_);
    send_inventory(name);
  }
}

bool Simulator::burst(const SimHost& host, double at) const { return host.hog > 0 && std::fmod(at, 1.0) < host.hog; }

double Simulator::stall_ms(const std::string& host, double at) const {
  double ms = 0;
  const auto own = host_stall_.find(host);
  if (own != host_stall_.end() && at >= own->second.from && at < own->second.to) ms = (own->second.to - at) * 1000;
  const SimHost& h = hosts_.at(host);
  if (burst(h, at)) ms = std::max(ms, (h.hog - std::fmod(at, 1.0)) * 1000);
  return ms;
}

bool Simulator::away(const SimHost& host, unsigned device) {
  return host.frozen || host.stopped || (device == 0 && !host.device);
}

void Simulator::probe_path(SimHost& host, const model::PlanTarget& target, std::uint16_t forward, std::uint16_t back,
                           double rate, double at) {
  const std::string to = host_of(target.to);
  const auto responder = hosts_.find(to);
  if (responder == hosts_.end()) return;
  SimHost& peer = responder->second;
  model::PathWindow window;
  window.key = {host.name + "/" + target.from_device, target.to, forward, back};
  const unsigned device = device_of(window.key.from);
  const unsigned peer_device = device_of(target.to);
  const auto of_first = [](unsigned number, double loss) { return number == 0 ? loss : 0; };
  window.responder_epoch = peer.epoch;
  Sent& sent = sent_[window.key];
  const std::vector<std::string> out = way(window.key.from, target.to, {forward, back});
  const std::vector<std::string> in = way(target.to, window.key.from, {back, forward});
  const bool cable_down = device == 0 && !host.port_up;

  sent.credit += rate;
  const auto count = static_cast<unsigned>(sent.credit);
  sent.credit -= count;
  for (unsigned i = 0; i < count && !cable_down; ++i) {
    Probe probe;
    probe.sent_at = at - 1 + (i + random_.uniform()) / count;
    double extra = 0;
    const auto cross = [&](const std::vector<std::string>& nodes, bool& ce, bool& bleach) {
      for (std::size_t k = 0; k + 1 < nodes.size(); ++k) {
        if (random_.chance(config_.noise.loss)) return false;
        if (faults_.empty()) continue;
        const auto fault = faults_.find(nodes[k] + ">" + nodes[k + 1]);
        if (fault == faults_.end()) continue;
        if (random_.chance(fault->second.loss)) return false;
        ce = ce || random_.chance(fault->second.ce);
        bleach = bleach || fault->second.bleach;
        extra += fault->second.delay_ms;
      }
      return true;
    };
    const bool refused = host.peers_refused.count(to) != 0 || peer.peers_refused.count(host.name) != 0;
    if (refused || random_.chance(of_first(device, host.send_loss)) || !cross(out, probe.ce_out, probe.bleach_out) ||
        random_.chance(of_first(peer_device, peer.receive_loss)) || away(peer, peer_device) ||
        (peer_device == 0 && !peer.port_up)) {
      probe.outcome = 1;
    } else if (random_.chance(of_first(peer_device, peer.send_loss)) || !cross(in, probe.ce_back, probe.bleach_back) ||
               random_.chance(of_first(device, host.receive_loss))) {
      probe.outcome = 2;
    }
    const double base = config_.noise.rtt_ms * (0.6 + 0.2 * double(hash(9, window.key.from + window.key.to) % 5));
    double rtt = base * (0.7 + 0.9 * random_.uniform() * random_.uniform());
    if (random_.chance(config_.noise.tail)) rtt += base * 9 * random_.uniform();
    if (probe.sent_at >= fabric_stall_.from && probe.sent_at < fabric_stall_.to)
      extra += (fabric_stall_.to - probe.sent_at) * 1000;
    extra += stall_ms(to, probe.sent_at) + stall_ms(host.name, probe.sent_at);
    probe.rtt_ms = rtt + extra + busy_now_ms_;
    if (probe.outcome == 0 && probe.rtt_ms > 500) {
      probe.outcome = 1;
      probe.late = true;
    }
    sent.probes.push_back(probe);
  }

  std::vector<double> rtts;
  std::vector<Probe> undecided;
  std::sort(sent.probes.begin(), sent.probes.end(),
            [](const Probe& a, const Probe& b) { return a.sent_at < b.sent_at; });
  for (std::size_t i = 0; i < sent.probes.size(); ++i) {
    const Probe& p = sent.probes[i];
    const double decided = p.outcome == 0 ? p.sent_at + p.rtt_ms / 1000 : p.sent_at + 0.5;
    if (decided > at) {
      undecided.push_back(p);
      continue;
    }
    ++window.sent;
    if (p.outcome == 0) {
      ++window.acked;
      rtts.push_back(p.rtt_ms);
    } else {
      bool told = false;
      for (std::size_t j = i + 1; j < sent.probes.size() && !told; ++j) {
        const Probe& later = sent.probes[j];
        told = later.outcome == 0 && later.sent_at + later.rtt_ms / 1000 < decided;
      }
      if (p.late) {
        ++window.lost_unknown;
        ++window.late;
      } else if (!told) {
        ++window.lost_unknown;
      } else {
        ++(p.outcome == 1 ? window.forward : window.back).lost;
      }
    }
    if (p.outcome == 0) {
      ++(p.bleach_out ? window.forward.bleached : window.forward.ecn_capable);
      ++(p.bleach_back ? window.back.bleached : window.back.ecn_capable);
      if (p.ce_out && !p.bleach_out) ++window.forward.ce;
      if (p.ce_back && !p.bleach_back) ++window.back.ce;
    }
  }
  sent.probes = std::move(undecided);
  if (!rtts.empty()) {
    std::sort(rtts.begin(), rtts.end());
    const auto ns = [](double ms) { return static_cast<Nanos>(ms * 1e6); };
    window.rtt_min_ns = ns(rtts.front());
    window.rtt_median_ns = ns(rtts[rtts.size() / 2]);
    window.rtt_p90_ns = ns(rtts[rtts.size() * 9 / 10]);
    window.rtt_max_ns = ns(rtts.back());
  }
  if (window.sent == 0) return;
  ++windows_;
  localiser_->on_window(window, static_cast<Nanos>(at * 1e9));
}

void Simulator::trace(SimHost& host, unsigned device, const std::string& to, localise::UdpPorts ports, double at,
                      unsigned counted) {
  model::PathTrace trace;
  trace.from = port_name(host.name, device);
  trace.to = to;
  trace.source_port = ports.source;
  trace.destination_port = ports.destination;
  const std::vector<std::string> nodes = way(trace.from, to, ports);
  double arrive = 1;  // share of probes that get this far
  double delay = 0;
  double ce = 0;
  trace.complete = true;
  for (std::size_t k = 1; k + 1 < nodes.size(); ++k) {
    const auto fault = faults_.find(nodes[k - 1] + ">" + nodes[k]);
    if (fault != faults_.end()) {
      arrive *= 1 - fault->second.loss;
      delay += fault->second.delay_ms;
      ce = 1 - (1 - ce) * (1 - fault->second.ce);
    }
    if (device == 0 && !host.port_up) arrive = 0;
    model::TraceHop hop;
    hop.ttl = static_cast<std::uint8_t>(k);
    unsigned tries = counted == 0 ? 2 : counted;
    if (counted != 0 && config_.limited_routers) {
      double& tokens = router_tokens_.try_emplace(host.name + " " + nodes[k], kRouterBurst).first->second;
      tries = std::min(tries, static_cast<unsigned>(std::max(0.0, tokens - kTokensLeft)));
      tokens -= tries;
    }
    unsigned answered = 0;
    unsigned marked = 0;
    for (unsigned i = 0; i < tries; ++i) {
      if (!random_.chance(arrive) || random_.chance(config_.silent_hop)) continue;
      ++answered;
      marked += random_.chance(ce) ? 1 : 0;
    }
    // What answered once is known from then on.
    const std::string way_point = trace.from + ">" + to + ":" + std::to_string(ports.source) + ":" +
                                  std::to_string(ports.destination) + "/" + std::to_string(k);
    if (answered > 0) known_hops_.insert(way_point);
    const bool seen = known_hops_.count(way_point) != 0;
    if (seen) hop.address = address_of(nodes[k], nodes[k - 1]);
    if (config_.hop_counts) {  // as weftd does, of every packet whose hop is known
      hop.sent = static_cast<std::uint16_t>(tries);
      hop.answered = static_cast<std::uint16_t>(answered);
      hop.ecn_capable = hop.answered;
      hop.ce = static_cast<std::uint16_t>(marked);
      if (answered > 0) {
        const double rtt = delay + config_.noise.rtt_ms * (0.6 + random_.uniform());
        hop.rtt_ns = static_cast<Nanos>(rtt * 1e6);
      }
    }
    trace.complete = trace.complete && seen;
    trace.hops.push_back(hop);
  }
  localiser_->on_trace(trace, static_cast<Nanos>(at * 1e9));
}

void Simulator::agent_second(SimHost& host, double at) {
  const auto received = static_cast<Nanos>(at * 1e9);
  if (host.frozen || host.stopped) return;
  const bool reports = host.reports && static_cast<unsigned>(at) % host.report_every_s == 0;
  if (reports) localiser_->on_contact(host.name, received);
  if (reports) {
    model::HostHealth health;
    double gap = 3 + 8 * random_.uniform();
    const auto stall = host_stall_.find(host.name);
    if (stall != host_stall_.end() && stall->second.to > at - 1 && stall->second.to <= at) {
      gap = std::max(gap, (stall->second.to - stall->second.from) * 1000);
    }
    gap = std::max(gap, host.hog * 1000);
    health.max_gap_ns = static_cast<Nanos>(gap * 1e6);
    health.window_ns = host.report_every_s * kSecond;
    health.total_gap_ns = gap > 20 ? health.max_gap_ns * host.report_every_s : 0;
    localiser_->on_health(host.name, health, received);
  }
  const auto plan = plans_.find(host.name);
  if (plan == plans_.end()) return;
  unsigned budget = config_.hosts_per_leaf * config_.leaves > 64 ? 60 : 24;  // traces a second
  for (const model::PlanTarget& target : plan->second.targets) {
    const std::string own = host.name + "/" + target.from_device;
    if (away(host, device_of(own)) || hosts_.count(host_of(target.to)) == 0) continue;
    const std::uint16_t base = first_port(own);
    const std::uint16_t peer_base = first_port(target.to);
    for (const model::PlanPath& path : target.paths) {
      std::uint16_t forward = path.forward_port;
      std::uint16_t back = path.return_port;
      if (forward == 0) {
        // Ports in turn, each with an answering port of its own.
        for (unsigned p = 0; p < config_.ports; ++p) {
          const unsigned answering = config_.udp ? p : (p * 3 + p / 2) % config_.ports;
          probe_path(host, target, static_cast<std::uint16_t>(base + p),
                     static_cast<std::uint16_t>(peer_base + 8000 + answering), path.probes_per_s / config_.ports, at);
        }
        continue;
      }
      probe_path(host, target, forward, back, path.probes_per_s, at);
    }
    // Its own probe ports towards the peer, and its answering ports: refreshed every half minute, paced.
    for (unsigned p = 0; p < 2 * config_.ports; ++p) {
      const bool probes = p < config_.ports;
      const auto port = static_cast<std::uint16_t>(probes ? base + p : base + 8000 + p - config_.ports);
      const auto other = static_cast<std::uint16_t>(probes ? peer_base + 8000 + p : peer_base + p - config_.ports);
      double& last = traced_at_[host.name][own + ">" + target.to + ":" + std::to_string(port)];
      if (budget == 0 || (last != 0 && at - last < 30)) continue;
      last = at;
      --budget;
      trace(host, device_of(own), target.to, {port, config_.udp ? other : std::uint16_t{0}}, at, 0);
    }
  }
  for (auto& [router, tokens] : router_tokens_) {
    if (router.starts_with(host.name + " ")) tokens = std::min(kRouterBurst, tokens + kRouterRate);
  }
  if (config_.hop_counts) {
    for (const model::PlanTrace& wanted : plan->second.traces) {
      const unsigned device = device_of("/" + wanted.from_device);
      if (!away(host, device)) trace(host, device, wanted.to, {wanted.source_port, wanted.destination_port}, at, 5);
    }
  }
}

void Simulator::step() {
  now_ += kSecond;
  const double begin = static_cast<double>(now_ - kSecond) / 1e9;
  if (random_.chance(config_.noise.fabric_stall_per_s)) {
    const double from = begin + random_.uniform();
    fabric_stall_ = {from, from + 0.02 + 0.38 * random_.uniform()};
  }
  if (busy_ms_ > 0) busy_now_ms_ = busy_ms_ * random_.uniform();
  std::vector<std::pair<double, SimHost*>> order;
  for (auto& [name, host] : hosts_) {
    if (random_.chance(config_.noise.host_stall_per_s)) {
      const double from = begin + random_.uniform() - 0.25;
      host_stall_[name] = {from, from + 0.02 + (config_.noise.host_stall_most_ms / 1000 - 0.02) * random_.uniform()};
    }
    order.emplace_back(begin + static_cast<double>(hash(3, name) % 1000) / 1000, &host);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [at, host] : order) agent_second(*host, at);

  // Processor time: the builder is shared.
  const std::clock_t clock = std::clock();
  std::vector<model::Finding> verdicts;
  for (localise::Verdict& verdict : localiser_->judge(now_)) verdicts.push_back(std::move(verdict.finding));
  judge_seconds_ += static_cast<double>(std::clock() - clock) / CLOCKS_PER_SEC;
  for (detect::FindingChange& change : tracker_.step(verdicts, now_, now_ + kWallOffset, localiser_->blind())) {
    if (change.what != detect::FindingChange::What::Raised) continue;
    told_.push_back(describe(change.finding));
    if (change.finding.severity == model::Severity::Info) continue;
    raised_.push_back(describe(change.finding));
    raised_findings_.push_back(std::move(change.finding));
  }
  plans_ = localiser_->plan(now_);
}

std::optional<double> Simulator::until(model::FindingKind kind, const std::string& subject, unsigned seconds) {
  const std::string wanted = std::string(model::finding_info(kind).name) + " " + subject;
  for (unsigned i = 1; i <= seconds; ++i) {
    step();
    if (std::find(told_.begin(), told_.end(), wanted) != told_.end()) return i;
  }
  return std::nullopt;
}

std::vector<std::string> Simulator::active() const {
  std::vector<std::string> out;
  for (const model::Finding& finding : tracker_.active()) {
    if (finding.severity != model::Severity::Info) out.push_back(describe(finding));
  }
  return out;
}

std::vector<std::string> Simulator::host_names() const {
  std::vector<std::string> out;
  for (const auto& [name, host] : hosts_) out.push_back(name);
  return out;
}

}  // namespace weft::test
