#include "cli/mesh_direct.h"

#include <algorithm>
#include <map>

#include "cli/direct.h"
#include "cli/format.h"
#include "cli/path_tracing.h"
#include "cli/ping_stats.h"
#include "cli/stop.h"

namespace weft::cli {
namespace {

constexpr double kProbesPerPathPerSecond = 10;
constexpr double kCeRatio = 0.05;

struct Peer {
  HostAddress host;
  std::string name;  // as it calls itself, "h3/rxe0"
  bool answered = false;
  std::string trouble;
  PingStats stats;
};

}  // namespace

std::string cell_state(const localise::MeshCell& c, bool answered) {
  if (!answered) return "silent";
  if (c.sent == 0) return "unknown";
  if (c.lost > 0) return "loss";
  if (c.ecn_capable > 0 && static_cast<double>(c.ce) > kCeRatio * static_cast<double>(c.ecn_capable)) return "ce";
  return "ok";
}

Result<DirectMesh> measure_mesh(const MeshOptions& o, const Clock& clock) {
  auto names = load_names(o.direct);
  if (!names) return names.error();
  std::vector<HostAddress> hosts;
  for (const std::string& text : o.hosts) {
    auto host = resolve_host(text);
    if (!host) return host.error();
    hosts.push_back(*host);
  }
  EngineNeeds needs;
  needs.ports = o.ports;
  needs.probes_per_s = kProbesPerPathPerSecond * o.ports * static_cast<double>(hosts.size());
  auto opened = Direct::open(o.direct, hosts, needs, clock);
  if (!opened) return opened.error();
  Direct& direct = **opened;

  std::vector<Peer> peers;
  for (const HostAddress& host : hosts) peers.push_back({host, host.name, false, "", PingStats()});
  for (std::size_t p = 0; p < direct.places().size(); ++p) {
    auto& place = direct.places()[p];
    const auto ports = direct.ports(place, o.ports);
    std::vector<model::PlanTarget> plan;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (direct.place_index(i) != p) continue;
      model::PlanTarget target{place.local.device, hosts[i].name, hosts[i].address, o.direct.hello_port, {}};
      for (std::uint16_t port : ports) target.paths.push_back({port, 0, kProbesPerPathPerSecond});
      plan.push_back(std::move(target));
    }
    place.engine->set_targets(std::move(plan));
  }

  auto localiser = localise::Localiser::create(localise::LocaliserConfig{}, names->topology());
  const std::string own = own_host_name();
  PathTracing tracing(o.direct.traffic_class, clock);
  const auto find = [&](std::size_t place, const std::string& to) -> Peer* {
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (direct.place_index(i) == place && peers[i].host.name == to) return &peers[i];
    }
    return nullptr;
  };
  localiser->on_start(own, 1, clock.monotonic_ns());
  std::vector<model::Finding> verdicts;
  const Nanos until = clock.monotonic_ns() + o.duration_ns + 2 * kSecond;  // and the last windows
  while (clock.monotonic_ns() < until && !stop_asked()) {
    const Nanos now = clock.monotonic_ns();
    localiser->on_contact(own, now);
    for (std::size_t i = 0; i < peers.size(); ++i) {
      const auto status = peer_status(*direct.place_of(i).engine, peers[i].host.name);
      if (!status) continue;
      if (status->state == probes::PeerState::Ready) peers[i].answered = true;
      if (!status->answered_as.empty()) peers[i].name = status->answered_as;
      if (!peers[i].answered) peers[i].trouble = status->reason;
    }
    while (auto placed = direct.outcomes().try_pop()) {
      Peer* peer = find(placed->place, placed->outcome.key.to);
      if (peer == nullptr) continue;
      peer->stats.add(placed->outcome);
      tracing.see(peer->host, direct.places()[placed->place], placed->outcome);
    }
    for (model::PathTrace trace : tracing.traces()) {
      for (const Peer& peer : peers) {
        if (peer.host.name == trace.to) trace.to = peer.name;
      }
      localiser->on_trace(trace, now);
    }
    for (std::size_t p = 0; p < direct.places().size(); ++p) {
      for (model::PathWindow window : direct.places()[p].engine->take_windows()) {
        Peer* peer = find(p, window.key.to);
        if (peer == nullptr) continue;
        peer->stats.add(window);
        window.key.to = peer->name;
        localiser->on_window(window, now);
      }
    }
    sleep_until(clock, now + 200 * kMillisecond);
  }

  DirectMesh out;
  for (const auto& place : direct.places()) out.local += (out.local.empty() ? "" : "; ") + place.label;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const Peer& peer = peers[i];
    const PingSummary s = peer.stats.summary();
    localise::MeshCell cell;
    cell.from = own + '/' + direct.place_of(i).local.device;
    cell.to = peer.name;
    cell.sent = s.sent;
    cell.lost = s.lost;
    cell.ce = s.forward.ce + s.back.ce;
    cell.ecn_capable = s.forward.ecn_capable + s.back.ecn_capable;
    cell.rtt_median_ns = s.rtt.at(0.5);
    cell.rtt_p90_ns = s.rtt.at(0.9);
    cell.paths = static_cast<unsigned>(s.ports.size());
    cell.state = cell_state(cell, peer.answered);
    if (!peer.answered) {
      out.notes.push_back(peer.host.name + ": no answer to the hello" +
                          (peer.trouble.empty() ? "" : ": " + peer.trouble));
    }
    out.cells.push_back(std::move(cell));
  }
  for (const auto& verdict : localiser->judge(clock.monotonic_ns())) {
    // Silence of an agent means something to an aggregator only: here no other host reports.
    if (verdict.finding.kind != model::FindingKind::HostSilent) out.findings.push_back(verdict.finding);
  }
  if (!tracing.note().empty()) out.notes.push_back(tracing.note());
  out.notes.push_back("seen from this host alone: links that other hosts use are not judged");
  return out;
}

}  // namespace weft::cli
