#include "agent/daemon/pipeline.h"

#include <algorithm>

#include "agent/daemon/chores.h"
#include "lib/base/log.h"
#include "lib/model/subject.h"
#include "lib/rdma/source_port.h"
#include "lib/wire/codec.h"

namespace weft::agent {
namespace {

constexpr Nanos kInventoryRefresh = 60 * kSecond;
// Once a host has turned to UDP and back, RDMA has to be refused for this long before it turns again: a device that can
// be used now and then does not make it change its transport each time.
constexpr Nanos kRdmaTrust = 60 * kSecond;
constexpr Nanos kRestartAllowance = 30 * kSecond;
constexpr std::size_t kMaxSeenDevices = 256;
constexpr std::size_t kMaxTraces = 1024;
constexpr std::size_t kMaxPeerLimitations = 64;
constexpr std::size_t kWindowBatches = 32;
constexpr std::size_t kWindowBytes = 8 * 1024 * 1024;

// The course alone.
model::PathTrace bare(model::PathTrace trace) {
  for (model::TraceHop& hop : trace.hops) {
    hop.sent = hop.answered = hop.ce = hop.ecn_capable = 0;
    hop.rtt_ns.reset();
  }
  return trace;
}

std::string trace_key(const std::string& from, std::uint16_t port, const std::string& to, std::uint16_t to_port) {
  const bool roce = to_port == 0 || to_port == rdma::kRoceUdpPort;
  return "trace " + from + ":" + std::to_string(port) + ">" + to + (roce ? "" : ":" + std::to_string(to_port));
}

bool same_key(const probes::FabricKey& a, const probes::FabricKey& b) {
  const std::uint8_t probe[1] = {0};
  return a.mac(probe) == b.mac(probe);
}

}  // namespace

Pipeline::Pipeline(Settings settings, Identity identity, PipelineParts parts)
    : settings_(std::move(settings)),
      identity_(std::move(identity)),
      parts_(std::move(parts)),
      outbox_(OutboxLimits{}, [](std::uint64_t count) { return wire::encode_record(wire::Gap{count}); }),
      store_(kWindowBatches, kWindowBytes),
      follower_(settings_.probe.targets) {
  start_tracer();
  keeper_ = std::make_unique<EndpointKeeper>(KeeperOptions{}, settings_.agent_name, parts_.engines(settings_),
                                             parts_.spawn, parts_.post, parts_.clock);
  keeper_->on_change([this] {
    inventory_due_ = true;
    // Said at once, but after the keeper has finished what it is in the middle of.
    parts_.post([this] {
      follow_refusals();
      apply_plan();
      report_inventory();
      session_->tick();
    });
  });
  StreamOptions options;
  options.hello.fabric = settings_.fabric_name;
  options.hello.agent = settings_.agent_name;
  options.hello.boot_id = identity_.boot_id;
  options.hello.version = identity_.version;
  options.hello.epoch = identity_.epoch;
  session_ = std::make_unique<StreamSession>(
      std::move(options),
      [this](std::uint64_t attempt) {
        return parts_.links([this, attempt](LinkEvent event) { session_->on_event(attempt, std::move(event)); });
      },
      outbox_, store_, parts_.clock, parts_.random,
      StreamSession::Callbacks{[this] { on_connected(); },
                               [this](model::ProbePlan plan) {
                                 const std::uint64_t revision = plan.revision;
                                 if (!follower_.set_plan(std::move(plan))) return;
                                 log::info("plan", "following", {{"revision", revision}});
                                 apply_plan();
                               }});
}

Pipeline::~Pipeline() = default;

void Pipeline::start_tracer() {
  tracer_.reset();
  tracer_problem_.clear();
  requested_.clear();
  trace_requests_ = std::make_unique<TraceRequests>(settings_.agent_name, settings_.probe.traffic_class, kMaxTraces);
  if (!settings_.trace_enabled) return;
  auto made = parts_.tracers(settings_);
  if (made) {
    tracer_ = std::move(*made);
  } else {
    tracer_problem_ = made.error().message();
    log::warning("trace", "paths cannot be traced", {{"reason", tracer_problem_}});
  }
}

void Pipeline::on_inventory(Result<model::Inventory> inventory, std::vector<NetInterface> interfaces) {
  if (!inventory) {
    if (inventory_problem_ != inventory.error().message()) {
      inventory_problem_ = inventory.error().message();
      log::warning("inventory", "cannot read; the last one stands", {{"reason", inventory_problem_}});
    }
    if (!inventory_) inventory_.emplace();
  } else {
    inventory_problem_.clear();
    inventory_ = std::move(*inventory);
  }
  inventory_->host = settings_.agent_name;
  inventory_->kernel = identity_.kernel;
  inventory_->version = identity_.version;
  interfaces_ = std::move(interfaces);
  choose();
}

void Pipeline::choose() {
  if (!inventory_) return;
  for (const model::RdmaDevice& device : inventory_->devices) {
    const bool allowed = device_allowed(settings_.probe, device.name);
    if (allowed && seen_devices_.size() < kMaxSeenDevices) seen_devices_.insert(device.name);
    rdma_seen_ = rdma_seen_ || (allowed && !device.ports.empty());
  }
  EndpointChoice choice = choose_endpoints(*inventory_, interfaces_, settings_.probe, rdma_seen_, refusals_);
  choice_limitations_ = std::move(choice.limitations);
  keeper_->set_wanted(std::move(choice.specs));
  report_inventory();
  session_->set_address(settings_.aggregator_address);
  session_->tick();
}

void Pipeline::follow_refusals() {
  if (!inventory_ || stopping_ || settings_.probe.transport != TransportChoice::Auto) return;
  RdmaVerdict verdict = keeper_->rdma_verdict();
  const Nanos now = parts_.clock.monotonic_ns();
  if (verdict.use == RdmaVerdict::Use::Refused) {
    if (refusals_.empty()) {
      if (rdma_again_ns_ && now - *rdma_again_ns_ < kRdmaTrust) return;
      log::warning("endpoints", "no RDMA device can be used; probing over UDP instead");
    }
    if (std::exchange(refusals_, verdict.refusals) == verdict.refusals) return;
  } else if (verdict.use == RdmaVerdict::Use::Usable) {
    if (rdma_again_ns_) rdma_again_ns_ = now;
    if (refusals_.empty()) return;
    log::info("endpoints", "RDMA can be used; no longer probing over UDP instead");
    refusals_.clear();
    rdma_again_ns_ = now;
  } else {
    return;
  }
  choose();
}

void Pipeline::on_device_gone(const std::string& rdma_device) {
  keeper_->device_gone(rdma_device);
  if (inventory_) {
    auto& devices = inventory_->devices;
    devices.erase(std::remove_if(devices.begin(), devices.end(),
                                 [&](const model::RdmaDevice& device) { return device.name == rdma_device; }),
                  devices.end());
  }
  report_inventory();
  session_->tick();
}

void Pipeline::apply_plan() {
  std::vector<std::string> devices;
  for (const model::ProbeEndpoint& endpoint : keeper_->endpoints()) devices.push_back(endpoint.device);
  keeper_->set_targets(follower_.targets(devices));
  keeper_->want_ports(follower_.ports_wanted());
}

void Pipeline::add_vanished(std::vector<model::Limitation>& out) const {
  for (const std::string& name : seen_devices_) {
    const std::string subject = model::rnic_subject(settings_.agent_name, name);
    const bool here = std::any_of(inventory_->devices.begin(), inventory_->devices.end(),
                                  [&](const model::RdmaDevice& device) { return device.name == name; });
    const bool said = std::any_of(out.begin(), out.end(), [&](const auto& entry) { return entry.subject == subject; });
    if (!here && !said) {
      out.push_back({subject, "the device was here and is gone", "it is used again by itself when it is back"});
    }
  }
}

void Pipeline::add_peer_limitations(std::vector<model::Limitation>& out) const {
  std::size_t added = 0;
  for (const probes::PeerStatus& peer : peers_) {
    const bool barred = peer.state == probes::PeerState::Refused || peer.state == probes::PeerState::Unreachable;
    const std::string& why = barred ? peer.reason : peer.send_error;
    if (why.empty() || ++added > kMaxPeerLimitations) continue;
    const std::string host = peer.to.substr(0, peer.to.find('/'));
    out.push_back({model::pair_subject(settings_.agent_name, host), why,
                   "weft ping " + host + " from this host shows the step that fails"});
  }
}

model::Inventory Pipeline::compose() const {
  model::Inventory out = *inventory_;
  out.endpoints = keeper_->endpoints();
  const auto append = [&](const std::vector<model::Limitation>& more) {
    out.limitations.insert(out.limitations.end(), more.begin(), more.end());
  };
  append(choice_limitations_);
  append(keeper_->limitations());
  add_vanished(out.limitations);
  const std::string host = model::host_subject(settings_.agent_name);
  if (!inventory_problem_.empty()) {
    out.limitations.push_back({host, "devices cannot be listed: " + inventory_problem_, "see the log of weftd"});
  }
  if (!tracer_problem_.empty()) {
    out.limitations.push_back(
        {host, "paths cannot be traced: " + tracer_problem_,
         "give weftd CAP_NET_RAW (packaging/systemd/weftd.service does), or set trace.enabled = false"});
  }
  if (trace_requests_->left_out() > 0) {
    out.limitations.push_back({host, std::to_string(trace_requests_->left_out()) + " paths are not traced: too many",
                               "fewer targets or ports in the plan"});
  }
  add_peer_limitations(out.limitations);
  return out;
}

void Pipeline::log_limitations(const std::vector<model::Limitation>& now) const {
  const auto in = [](const std::vector<model::Limitation>& list, const model::Limitation& one) {
    return std::find(list.begin(), list.end(), one) != list.end();
  };
  for (const model::Limitation& one : now) {
    if (in(reported_.limitations, one)) continue;
    log::info("inventory", "cannot measure", {{"subject", one.subject}, {"why", one.why}, {"how", one.how}});
  }
  for (const model::Limitation& one : reported_.limitations) {
    if (!in(now, one)) log::info("inventory", "no longer limited", {{"subject", one.subject}, {"why", one.why}});
  }
}

void Pipeline::send(Record record) {
  // Alone there is nobody to keep it for.
  if (!settings_.aggregator_address.empty()) outbox_.push(std::move(record));
}

void Pipeline::report_inventory() {
  // While stopping, devices close one after the other; that is no news.
  if (!inventory_ || stopping_) return;
  const Nanos now = parts_.clock.monotonic_ns();
  model::Inventory composed = compose();
  if (!inventory_due_ && composed == reported_ && now - inventory_sent_ns_ < kInventoryRefresh) return;
  inventory_due_ = false;
  inventory_sent_ns_ = now;
  log_limitations(composed.limitations);
  reported_ = std::move(composed);
  send({RecordClass::State, "inventory", wire::encode_record(reported_)});
}

void Pipeline::on_connected() {
  // The aggregator may have forgotten everything but findings: state is said again.
  inventory_due_ = true;
  report_inventory();
  for (const auto& [key, trace] : traces_) send({RecordClass::State, key, wire::encode_record(trace)});
}

void Pipeline::push_trace(const model::PathTrace& trace) {
  // Counts are evidence and add up; a path that is news replaces the one said before, and is never dropped.
  const std::string key = trace_key(trace.from, trace.source_port, trace.to, trace.destination_port);
  const auto said = traces_.find(key);
  const bool news = said == traces_.end() || !(bare(trace) == bare(said->second));
  send({news ? RecordClass::State : RecordClass::Sample, key, wire::encode_record(trace)});
}

void Pipeline::collect(bool starved) {
  std::vector<EngineReport> reports = keeper_->collect(starved);
  metrics_.add(reports);
  peers_.clear();
  std::map<std::string, std::uint64_t> throttled;
  for (const EngineReport& report : reports) {
    for (const model::PathWindow& window : report.windows) {
      send({RecordClass::Sample, "", wire::encode_record(window)});
    }
    peers_.insert(peers_.end(), report.peers.begin(), report.peers.end());
    const auto before = throttled_.find(report.spec.device);
    const std::uint64_t base =
        before == throttled_.end() || before->second > report.stats.throttled ? 0 : before->second;
    newly_throttled_ += report.stats.throttled - base;
    throttled[report.spec.device] = report.stats.throttled;
    if (const auto& low = report.stats.responder_low_water) {
      low_water_ = std::min(low_water_.value_or(*low), *low);
    }
  }
  throttled_ = std::move(throttled);
  follow_traces(reports);
}

void Pipeline::follow_traces(const std::vector<EngineReport>& reports) {
  if (!tracer_) return;
  std::vector<std::string> devices;
  for (const EngineReport& report : reports) devices.push_back(report.endpoint.device);
  std::vector<probes::TraceRequest> requests =
      trace_requests_->make(reports, follower_.targets(devices), follower_.suspects(), parts_.clock.monotonic_ns());
  if (requests != requested_) {
    tracer_->set_requests(requests);
    requested_ = std::move(requests);
    // Traces of paths nobody asks for any more are not said again.
    std::set<std::string> keys;
    for (const auto& request : requested_) {
      keys.insert(trace_key(request.from, request.source_port, request.to, request.destination_port));
    }
    for (auto it = traces_.begin(); it != traces_.end();) {
      it = keys.count(it->first) != 0 ? std::next(it) : traces_.erase(it);
    }
  }
  metrics_.add_traces(tracer_->stats());
  for (model::PathTrace& trace : tracer_->take_traces()) {
    push_trace(trace);
    const std::string key = trace_key(trace.from, trace.source_port, trace.to, trace.destination_port);
    // Old counts said again would be new evidence.
    if (traces_.size() < kMaxTraces || traces_.count(key) != 0) traces_[key] = bare(std::move(trace));
  }
  const std::string problem = tracer_->problem();
  if (problem != tracer_problem_ && !problem.empty()) {
    log::warning("trace", "paths cannot be traced", {{"reason", problem}});
  }
  tracer_problem_ = problem;
}

void Pipeline::on_second(model::HostHealth health) {
  const auto report = [&] {
    health.probes_throttled = std::exchange(newly_throttled_, 0);
    health.responder_low_water = std::exchange(low_water_, std::nullopt);
    last_health_ = health;
    send({RecordClass::Sample, "", wire::encode_record(health)});
  };
  // Who is starved of CPU may get no further in this second.
  const bool late = health.max_gap_ns >= Chores::kLate_ns;
  if (late) {
    report();
    session_->tick();
  }
  keeper_->tick();
  collect(health.max_gap_ns >= Chores::kStarved_ns);
  if (!late) report();
  follow_refusals();
  report_inventory();
  session_->tick();
}

void Pipeline::on_wake() { session_->tick(); }

void Pipeline::reload(Settings settings) {
  config_rejected_ = false;
  const auto needs_restart = [](const char* key) {
    log::warning("config", "takes effect at the next start", {{"key", key}});
  };
  if (settings.agent_name != settings_.agent_name) needs_restart("agent.name");
  if (settings.fabric_name != settings_.fabric_name) needs_restart("fabric.name");
  if (settings.state_dir != settings_.state_dir) needs_restart("agent.state_dir");
  if (settings.metrics != settings_.metrics) needs_restart("metrics.listen");
  settings.agent_name = settings_.agent_name;
  settings.fabric_name = settings_.fabric_name;
  settings.state_dir = settings_.state_dir;
  settings.metrics = settings_.metrics;

  ProbeSettings before = settings_.probe, after = settings.probe;
  before.targets = after.targets = {};
  const bool engines_change = before != after || !same_key(settings_.key, settings.key);
  const bool trace_change = settings.trace_enabled != settings_.trace_enabled ||
                            settings.trace_probes_per_s != settings_.trace_probes_per_s ||
                            settings.probe.traffic_class != settings_.probe.traffic_class;
  settings_ = std::move(settings);
  log::set_level(settings_.log_level);
  bool targets_change = follower_.set_configured(settings_.probe.targets);
  if (settings_.aggregator_address.empty()) targets_change = follower_.forget_plan() || targets_change;
  if (trace_change) start_tracer();
  if (engines_change) {
    seen_devices_.clear();
    rdma_seen_ = false;
    refusals_.clear();
    rdma_again_ns_.reset();
    keeper_->reopen_all(parts_.engines(settings_));
  }
  if (targets_change) apply_plan();
  choose();
}

void Pipeline::stop(const std::string& reason) {
  collect(false);
  stopping_ = true;
  keeper_->close_all();
  session_->begin_goodbye({kRestartAllowance, reason});
}

bool Pipeline::stopped() const { return session_->goodbye_done() && keeper_->all_closed(); }

std::string Pipeline::status_line() const {
  const auto ready = std::count_if(peers_.begin(), peers_.end(),
                                   [](const auto& peer) { return peer.state == probes::PeerState::Ready; });
  return "aggregator " + std::string(to_string(session_->state())) + "; " + std::to_string(reported_.endpoints.size()) +
         " endpoints; " + std::to_string(ready) + " of " + std::to_string(peers_.size()) + " peers ready; " +
         std::to_string(reported_.limitations.size()) + " things not measured";
}

void Pipeline::log_totals() const {
  log::info("stream", "ended",
            {{"batches", session_->stats().batches_sent},
             {"records", session_->stats().records_sent},
             {"unacknowledged", store_.records()},
             {"waiting", outbox_.size()},
             {"dropped", outbox_.dropped_samples()}});
}

std::vector<model::MetricSample> Pipeline::page(const InventoryCounts& inventory) const {
  PageInput input;
  input.host = settings_.agent_name;
  input.version = identity_.version;
  input.kernel = identity_.kernel;
  input.stream = session_->state();
  input.stream_stats = session_->stats();
  input.unacknowledged = store_.records();
  input.waiting = outbox_.size();
  input.dropped_samples = outbox_.dropped_samples();
  input.refused_records = outbox_.refused_records();
  input.limitations = reported_.limitations.size();
  input.plan_revision = follower_.revision();
  input.config_rejected = config_rejected_;
  input.health = last_health_;
  input.cpu = process_cpu_time();
  input.inventory = inventory;
  input.devices = reported_;
  return metrics_.samples(input);
}

}  // namespace weft::agent
