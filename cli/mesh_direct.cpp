#include "cli/mesh_direct.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "cli/direct.h"
#include "cli/format.h"
#include "cli/mesh_report.h"
#include "cli/option_files.h"
#include "cli/path_tracing.h"
#include "cli/ping_report.h"
#include "cli/ping_stats.h"
#include "cli/stop.h"

namespace weft::cli {
namespace {

constexpr double kProbesPerPathPerSecond = 10;
constexpr double kProbesPerSecond = 100;  // in all: a host that is busy sending measures itself
constexpr double kCeRatio = 0.05;
// Without its agent nobody says whether a peer was on time. So windows wait for late answers, which tell that nothing
// was lost and that an end was slow, and verdicts below this confidence are only mentioned.
constexpr Nanos kWindowWait = 1500 * kMillisecond;
constexpr Nanos kSlowSpan = 2 * kSecond;
constexpr double kConfident = 0.6;

struct Peer {
  HostAddress host;
  std::string name;  // as it calls itself, "h3/rxe0"
  bool answered = false;
  std::string trouble;
  PingStats stats;
  std::vector<Nanos> slow_at;  // when late answers came
  std::uint64_t slow_windows = 0;
};

struct HeldWindow {
  std::size_t peer = 0;
  Nanos received = 0;
  model::PathWindow window;
};

std::string host_part(const std::string& name) { return name.substr(0, name.find('/')); }

// Measures the row and tells the localiser what an aggregator would be told. A peer's answers stand for its agent's
// contact: here nobody else reports.
class MeshRun {
 public:
  MeshRun(const MeshOptions& options, const Clock& clock)
      : o_(options), clock_(clock), own_(own_host_name()), tracing_(options.direct.traffic_class, clock) {}

  Result<DirectMesh> run() {
    if (auto opened = open(); !opened) return opened.error();
    const Nanos end = clock_.monotonic_ns() + o_.duration_ns + 2 * kSecond + kWindowWait;  // and the last windows
    Nanos judge_at = clock_.monotonic_ns() + kSecond;
    while (clock_.monotonic_ns() < end && !stop_asked()) {
      const Nanos now = clock_.monotonic_ns();
      look_at_peers(now);
      take(now);
      if (now >= judge_at) {
        judge_at = now + kSecond;
        judge(now);
      }
      sleep_until(clock_, now + 100 * kMillisecond);
    }
    take(clock_.monotonic_ns());
    judge(clock_.monotonic_ns());
    return report();
  }

 private:
  Result<void> open() {
    auto files = read_option_files(o_.direct);
    if (!files) return files.error();
    std::vector<std::string> wanted;
    for (const std::string& text : o_.hosts) {
      if (std::find(wanted.begin(), wanted.end(), text) == wanted.end()) wanted.push_back(text);
    }
    std::vector<HostAddress> hosts;
    std::vector<Error> errors;
    const auto resolved = resolve_hosts(wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (resolved[i]) {
        hosts.push_back(*resolved[i]);
      } else {
        errors.push_back(resolved[i].error());
        failed_.emplace_back(wanted[i], errors.back().message());
      }
    }
    if (hosts.empty()) return all_failed(errors);
    const double paths = o_.ports * static_cast<double>(hosts.size());
    const double rate = std::min(kProbesPerPathPerSecond, kProbesPerSecond / paths);
    EngineNeeds needs;
    needs.key = files->key;
    needs.ports = o_.ports;
    needs.probes_per_s = rate * paths;
    auto opened = Direct::open(o_.direct, hosts, needs, clock_);
    if (!opened) {
      errors.push_back(cannot_measure(opened.error()));
      return all_failed(errors);
    }
    direct_ = std::move(*opened);
    localiser_ = localise::Localiser::create(localise::LocaliserConfig{}, files->names.topology());
    localiser_->on_start(own_, 1, clock_.monotonic_ns());
    for (const HostAddress& host : hosts) peers_.push_back({host, host.name, false, "", PingStats(), {}, 0});
    for (std::size_t p = 0; p < direct_->places().size(); ++p) {
      auto& place = direct_->places()[p];
      const auto ports = direct_->ports(place, o_.ports);
      std::vector<model::PlanTarget> plan;
      for (std::size_t i = 0; i < hosts.size(); ++i) {
        if (direct_->place_index(i) != p) continue;
        model::PlanTarget target{place.local.device, hosts[i].name, hosts[i].address, o_.direct.hello_port, {}};
        for (std::uint16_t port : ports) target.paths.push_back({port, 0, rate});
        plan.push_back(std::move(target));
      }
      place.engine->set_targets(std::move(plan));
      tell_endpoint(own_, place.engine->endpoint(), clock_.monotonic_ns());
    }
    return {};
  }

  Peer* find(std::size_t place, const std::string& to) {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (direct_->place_index(i) == place && peers_[i].host.name == to) return &peers_[i];
    }
    return nullptr;
  }

  // An inventory without an endpoint that was in the last one says that its device is gone: all are told each time.
  void tell_endpoint(const std::string& host, model::ProbeEndpoint endpoint, Nanos now) {
    model::Inventory& inventory = inventories_[host];
    inventory.host = host;
    std::erase_if(inventory.endpoints, [&](const auto& known) { return known.device == endpoint.device; });
    inventory.endpoints.push_back(std::move(endpoint));
    localiser_->on_inventory(inventory, now);
  }

  // As the peer calls itself, unless this host or another peer is called so too: machines from one image share a name.
  std::string name_of(std::size_t index, const std::string& said) {
    const std::string& address = peers_[index].host.address;
    std::string whose = host_part(said) == own_ ? "this host" : "";
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (i != index && peers_[i].answered && peers_[i].name == said) whose = peers_[i].host.address;
    }
    if (whose.empty()) return said;
    notes_.push_back(address + " calls itself " + host_part(said) + ", as " + whose +
                     " does: here it goes by its address");
    return address + said.substr(std::min(said.size(), said.find('/')));
  }

  void look_at_peers(Nanos now) {
    localiser_->on_contact(own_, now);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = peers_[i];
      if (direct_->failed(i) != nullptr) continue;
      const auto status = peer_status(*direct_->place_of(i).engine, peer.host.name);
      if (!status) continue;
      if (status->state != probes::PeerState::Ready) {
        if (!peer.answered) peer.trouble = status->reason;
        continue;
      }
      if (!peer.answered && !status->answered_as.empty()) {
        peer.name = name_of(i, status->answered_as);
        model::ProbeEndpoint endpoint;
        endpoint.device = peer.name.substr(std::min(peer.name.size(), peer.name.find('/') + 1));
        endpoint.transport = status->transport;
        endpoint.address = status->address.empty() ? peer.host.address : status->address;
        endpoint.hello_port = o_.direct.hello_port;
        endpoint.responder_epoch = status->responder_epoch;
        endpoint.responder_ports = status->return_ports;
        localiser_->on_start(host_part(peer.name), 1, now);
        tell_endpoint(host_part(peer.name), std::move(endpoint), now);
      }
      peer.answered = true;
    }
  }

  void take(Nanos now) {
    while (auto placed = direct_->outcomes().try_pop()) {
      Peer* peer = find(placed->place, placed->outcome.key.to);
      if (peer == nullptr) continue;
      peer->stats.add(placed->outcome);
      if (placed->outcome.result == probes::ProbeResult::Late && peer->slow_at.size() < 10'000) {
        peer->slow_at.push_back(now);
      }
      if (placed->outcome.result == probes::ProbeResult::Ok) localiser_->on_contact(host_part(peer->name), now);
      tracing_.see(peer->host, direct_->places()[placed->place], placed->outcome);
    }
    for (model::PathTrace trace : tracing_.take()) {
      for (const Peer& peer : peers_) {
        if (peer.host.name == trace.to) trace.to = peer.name;
      }
      localiser_->on_trace(trace, now);
    }
    for (std::size_t p = 0; p < direct_->places().size(); ++p) {
      for (model::PathWindow window : direct_->places()[p].engine->take_windows()) {
        Peer* peer = find(p, window.key.to);
        if (peer == nullptr) continue;
        peer->stats.add(window);
        window.key.to = peer->name;
        held_.push_back({static_cast<std::size_t>(peer - peers_.data()), now, std::move(window)});
      }
    }
    while (!held_.empty() && held_.front().received + kWindowWait <= now) {
      const HeldWindow& held = held_.front();
      Peer& peer = peers_[held.peer];
      const bool slow = std::any_of(peer.slow_at.begin(), peer.slow_at.end(), [&](Nanos at) {
        return at > held.received - kSlowSpan && at <= held.received + kWindowWait;
      });
      if (slow) {
        ++peer.slow_windows;
      } else {
        localiser_->on_window(held.window, held.received);
      }
      held_.pop_front();
    }
  }

  void judge(Nanos now) {
    verdicts_.clear();
    for (const auto& verdict : localiser_->judge(now)) {
      const model::Finding& f = verdict.finding;
      // Silence of an agent means something to an aggregator only.
      if (f.kind == model::FindingKind::HostSilent) continue;
      model::Finding& best = best_[std::string(model::finding_info(f.kind).name) + ' ' + f.subject];
      if (best.subject.empty() || f.confidence >= best.confidence) best = f;
      verdicts_.push_back(best);
    }
    const auto plans = localiser_->plan(now);
    const auto mine = plans.find(own_);
    if (mine == plans.end()) return;
    for (const Peer& peer : peers_) {
      std::map<PathTracing::Ports, double> wanted;
      for (const model::PlanTrace& t : mine->second.traces) {
        if (t.to == peer.name) wanted[{t.source_port, t.destination_port}] = t.probes_per_hop_per_s;
      }
      tracing_.suspect(peer.host.name, wanted);
    }
  }

  DirectMesh report() {
    DirectMesh out;
    for (const auto& place : direct_->places()) out.local += (out.local.empty() ? "" : "; ") + place.label;
    std::uint64_t skipped = 0, sent = 0;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      const Peer& peer = peers_[i];
      const PingSummary s = peer.stats.summary();
      localise::MeshCell cell;
      const Error* failed = direct_->failed(i);
      cell.from = own_ + (failed != nullptr ? "" : '/' + direct_->place_of(i).local.device);
      cell.to = peer.name;
      cell.sent = s.sent;
      cell.lost = s.lost;
      cell.ce = s.forward.ce + s.back.ce;
      cell.ecn_capable = s.forward.ecn_capable + s.back.ecn_capable;
      cell.rtt_median_ns = s.rtt.at(0.5);
      cell.rtt_p90_ns = s.rtt.at(0.9);
      cell.paths = static_cast<unsigned>(by_forward_port(s.ports).size());
      cell.state = failed != nullptr ? "unknown" : cell_state(cell, peer.answered, s.unsure());
      sent += s.sent;
      skipped += s.overslept + s.local_error;
      if (failed != nullptr) {
        out.missing.push_back(peer.host.name + ": cannot measure: " + failed->message());
      } else if (!peer.answered) {
        out.missing.push_back(peer.host.name + ": no answer to the hello" +
                              (peer.trouble.empty() ? "" : ": " + peer.trouble));
      } else if (s.sent == 0) {
        out.missing.push_back(peer.host.name + ": no probe counts" + (s.last_error.empty() ? "" : ": " + s.last_error));
      } else if (s.unsure()) {
        out.missing.push_back(peer.host.name + ": " + unsure_text(s));
      }
      out.cells.push_back(std::move(cell));
    }
    for (const auto& [name, why] : failed_) {
      localise::MeshCell cell;
      cell.from = own_;
      cell.to = name;
      cell.state = "unknown";
      out.cells.push_back(std::move(cell));
      out.missing.push_back(name + ": cannot measure: " + why);
    }
    out.notes.insert(out.notes.end(), direct_->notes().begin(), direct_->notes().end());
    out.notes.insert(out.notes.end(), notes_.begin(), notes_.end());
    out.notes.insert(out.notes.end(), out.missing.begin(), out.missing.end());
    for (model::Finding& f : verdicts_) {
      if (f.confidence >= kConfident) {
        f.not_checked.push_back("whether the other hosts were on time: that needs weftd on them");
        out.findings.push_back(std::move(f));
      } else {
        out.notes.push_back("weak evidence for " + std::string(model::finding_info(f.kind).name) + ' ' + f.subject +
                            ", not enough to name it: measure longer (--for), or more hosts");
      }
    }
    for (const Peer& peer : peers_) {
      if (peer.slow_windows == 0) continue;
      out.notes.push_back(peer.name + ": " + count_of(peer.slow_at.size(), "answer") +
                          " came after the timeout, so an end was slow; those seconds were not judged");
    }
    if (skipped * 10 > sent) {
      out.notes.push_back(count_of(skipped, "probe") + " skipped, as this host was late itself or could not send: " +
                          "it is too busy to measure well");
    }
    if (!tracing_.note().empty()) out.notes.push_back(tracing_.note());
    out.notes.push_back("seen from this host alone: links that only other hosts use are not judged");
    return out;
  }

  const MeshOptions& o_;
  const Clock& clock_;
  const std::string own_;
  PathTracing tracing_;
  std::unique_ptr<Direct> direct_;
  std::unique_ptr<localise::Localiser> localiser_;
  std::vector<Peer> peers_;
  std::vector<std::pair<std::string, std::string>> failed_;  // hosts without an address, and why
  std::map<std::string, model::Inventory> inventories_;      // by host
  std::vector<std::string> notes_;
  std::deque<HeldWindow> held_;
  std::vector<model::Finding> verdicts_;
  std::map<std::string, model::Finding> best_;  // by kind and subject: when the evidence was best
};

}  // namespace

ExitCode direct_mesh_exit(const std::vector<localise::MeshCell>& cells, bool any_finding) {
  bool bad = any_finding, missing = false;
  for (const localise::MeshCell& cell : cells) {
    // Of a peer that does not answer, silence is not the network's.
    missing |= cell.sent == 0 || cell.state == "silent" || cell.state == "unknown";
    bad |= cell.sent > 0 && cell.state != "silent" && cell_counts(cell);
  }
  if (bad) return ExitCode::Findings;
  return missing ? ExitCode::CannotMeasure : ExitCode::Healthy;
}

std::string cell_state(const localise::MeshCell& c, bool answered, bool unsure) {
  if (!answered) return "silent";
  if (c.sent == 0) return "unknown";
  if (c.lost > 0) return "loss";
  if (c.ecn_capable > 0 && static_cast<double>(c.ce) > kCeRatio * static_cast<double>(c.ecn_capable)) return "ce";
  return unsure ? "unknown" : "ok";
}

Result<DirectMesh> measure_mesh(const MeshOptions& options, const Clock& clock) {
  return MeshRun(options, clock).run();
}

}  // namespace weft::cli
