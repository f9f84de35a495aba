#include "agent/daemon/endpoint_keeper.h"

#include <algorithm>

#include "lib/base/log.h"
#include "lib/model/subject.h"

namespace weft::agent {

struct EndpointKeeper::Alive {
  EndpointKeeper* keeper = nullptr;  // read and written on the main loop only
};

EndpointKeeper::EndpointKeeper(KeeperOptions options, std::string host, EngineFactory factory, Spawn spawn, Post post,
                               const Clock& clock)
    : options_(options),
      host_(std::move(host)),
      factory_(std::make_shared<EngineFactory>(std::move(factory))),
      spawn_(std::move(spawn)),
      post_(std::move(post)),
      clock_(clock),
      alive_(std::make_shared<Alive>()) {
  alive_->keeper = this;
}

EndpointKeeper::~EndpointKeeper() { alive_->keeper = nullptr; }

void EndpointKeeper::set_wanted(std::vector<EndpointSpec> specs) {
  for (auto& [device, slot] : slots_) slot.wanted = false;
  for (EndpointSpec& spec : specs) {
    auto [it, fresh] = slots_.try_emplace(spec.device);
    Slot& slot = it->second;
    slot.wanted = true;
    if (slot.gone && clock_.monotonic_ns() - slot.gone_at_ns >= options_.gone_at_most_ns) slot.gone = false;
    const bool moved = !fresh && !slot.spec.same_place(spec);
    if (!fresh && !moved && spec.ready && !slot.spec.ready) slot.retry_at_ns = 0;  // the port came up: do not sit out
    slot.spec = std::move(spec);
    if (moved) forget_verdict(slot);
    if (moved && slot.state == State::Open) close(slot);
  }
  for (auto it = slots_.begin(); it != slots_.end();) {
    Slot& slot = it->second;
    if (!slot.wanted && slot.state == State::Open) close(slot);
    it = !slot.wanted && slot.state == State::Waiting ? slots_.erase(it) : std::next(it);
  }
  tick();
}

void EndpointKeeper::device_gone(const std::string& rdma_device) {
  for (auto& [device, slot] : slots_) {
    if (!slot.spec.rdma || slot.spec.rdma_device != rdma_device) continue;
    slot.gone = true;
    slot.gone_at_ns = clock_.monotonic_ns();
    slot.problem = "the device is gone";
    slot.remedy = "it is used again by itself when it is back";
    slot.retry_at_ns = 0;
    slot.failures = 0;
    forget_verdict(slot);
    if (slot.state == State::Open) {
      log::info("endpoints", "device is going; letting go of it", {{"device", device}});
      close(slot);
    }
  }
}

void EndpointKeeper::device_back(const std::string& rdma_device) {
  for (auto& [device, slot] : slots_) {
    if (!rdma_device.empty() && slot.spec.rdma_device != rdma_device) continue;
    slot.gone = false;
    slot.retry_at_ns = 0;
    slot.failures = 0;
  }
}

void EndpointKeeper::reopen_all(EngineFactory factory) {
  factory_ = std::make_shared<EngineFactory>(std::move(factory));
  for (auto& [device, slot] : slots_) {
    slot.retry_at_ns = 0;
    slot.failures = 0;
    forget_verdict(slot);
    if (slot.state == State::Open) close(slot);
    // What is being opened now was made with the old settings: closed when it arrives.
    if (slot.state == State::Opening) slot.generation = 0;
  }
}

void EndpointKeeper::set_targets(std::map<std::string, std::vector<model::PlanTarget>> targets_by_device) {
  targets_ = std::move(targets_by_device);
  for (auto& [device, slot] : slots_) apply(slot);
}

void EndpointKeeper::want_ports(unsigned count) {
  ports_wanted_ = count;
  if (count == 0) return;
  for (auto& [device, slot] : slots_) {
    if (slot.state == State::Open) slot.engine->want_ports(count);
  }
}

void EndpointKeeper::apply(Slot& slot) {
  if (slot.state != State::Open) return;
  const auto found = targets_.find(slot.spec.device);
  slot.engine->set_targets(found == targets_.end() ? std::vector<model::PlanTarget>{} : found->second);
}

void EndpointKeeper::open(Slot& slot) {
  slot.state = State::Opening;
  slot.since_ns = clock_.monotonic_ns();
  slot.slow_reported = false;
  slot.generation = next_generation_++;
  spawn_([factory = factory_, spec = slot.spec, generation = slot.generation, post = post_, alive = alive_] {
    // A Result of a unique_ptr cannot be copied, and post takes copyable work.
    auto result = std::make_shared<Result<std::unique_ptr<probes::Engine>>>((*factory)(spec));
    post([alive, device = spec.device, generation, result] {
      if (alive->keeper != nullptr) alive->keeper->opened(device, generation, std::move(*result));
    });
  });
}

void EndpointKeeper::opened(const std::string& device, std::uint64_t generation,
                            Result<std::unique_ptr<probes::Engine>> result) {
  const auto found = slots_.find(device);
  if (found == slots_.end() || found->second.state != State::Opening) return;
  Slot& slot = found->second;
  const bool outdated = slot.generation != generation || slot.gone || !slot.wanted || closing_all_;
  if (!result) {
    slot.state = State::Waiting;
    slot.slow_reported = false;
    if (!outdated) judge(slot, result.error());
    if (!slot.gone) fail(slot, result.error().message(), "");
    if (!slot.wanted) slots_.erase(found);
    return;
  }
  slot.engine = std::move(*result);
  slot.state = State::Open;
  slot.slow_reported = false;
  slot.generation = generation;
  if (outdated) {
    close(slot);
    return;
  }
  slot.failures = slot.refused = 0;
  slot.opens = true;
  slot.problem.clear();
  slot.last_progress = 0;
  slot.since_ns = slot.progressed_ns = clock_.monotonic_ns();
  const model::ProbeEndpoint endpoint = slot.engine->endpoint();
  log::info("endpoints", "probing from",
            {{"device", device}, {"transport", endpoint.transport}, {"address", endpoint.address}});
  if (ports_wanted_ != 0) slot.engine->want_ports(ports_wanted_);
  apply(slot);
  changed();
}

void EndpointKeeper::close(Slot& slot) {
  slot.state = State::Closing;
  slot.since_ns = clock_.monotonic_ns();
  slot.slow_reported = false;
  spawn_([engine = std::move(slot.engine), device = slot.spec.device, generation = slot.generation, post = post_,
          alive = alive_]() mutable {
    engine->close();
    engine.reset();
    post([alive, device, generation] {
      if (alive->keeper != nullptr) alive->keeper->closed(device, generation);
    });
  });
  slot.engine.reset();
  changed();
}

void EndpointKeeper::closed(const std::string& device, std::uint64_t generation) {
  const auto found = slots_.find(device);
  if (found == slots_.end()) return;
  Slot& slot = found->second;
  if (slot.state != State::Closing || slot.generation != generation) return;
  if (slot.gone) {
    log::info("endpoints", "device let go",
              {{"device", device}, {"took_ms", (clock_.monotonic_ns() - slot.since_ns) / kMillisecond}});
  }
  slot.state = State::Waiting;
  slot.slow_reported = false;
  slot.since_ns = clock_.monotonic_ns();
  if (!slot.wanted) {
    slots_.erase(found);
    changed();
    return;
  }
  tick();
}

void EndpointKeeper::judge(Slot& slot, const Error& error) {
  if (error.kind == Error::Kind::Unsupported || error.kind == Error::Kind::Permission) {
    ++slot.refused;
    slot.opens = false;
    slot.refusal = error;
  } else if (error.kind != Error::Kind::NotFound) {  // that one is on its way out, which says nothing
    // It got further than before: no time to lose.
    if (slot.refused > 0) slot.failures = 0;
    slot.refused = 0;
    slot.opens = true;
  }
}

void EndpointKeeper::forget_verdict(Slot& slot) {
  slot.opens = false;
  slot.refused = 0;
}

RdmaVerdict EndpointKeeper::rdma_verdict() const {
  RdmaVerdict out;
  bool untried = false;
  for (const auto& [device, slot] : slots_) {
    if (!slot.spec.rdma || !slot.wanted || slot.gone) continue;
    if (slot.opens) return {RdmaVerdict::Use::Usable, {}};
    if (slot.refused >= options_.refused_after) {
      out.refusals.push_back({slot.spec, slot.refusal});
    } else {
      untried = untried || slot.spec.ready || slot.refused > 0;
    }
  }
  if (untried || out.refusals.empty()) return {};
  out.use = RdmaVerdict::Use::Refused;
  return out;
}

void EndpointKeeper::fail(Slot& slot, std::string problem, std::string remedy) {
  const double doubled =
      static_cast<double>(options_.backoff_first_ns) * static_cast<double>(1ull << std::min(slot.failures, 30u));
  ++slot.failures;
  slot.retry_at_ns =
      clock_.monotonic_ns() + static_cast<Nanos>(std::min(doubled, static_cast<double>(options_.backoff_cap_ns)));
  // Once for each new reason: the same one at every retry would fill the log.
  if (problem != slot.problem) {
    log::warning("endpoints", "cannot probe from this device", {{"device", slot.spec.device}, {"reason", problem}});
    slot.problem = std::move(problem);
    slot.remedy = std::move(remedy);
    changed();
  }
}

void EndpointKeeper::tick() {
  const Nanos now = clock_.monotonic_ns();
  for (auto& [device, slot] : slots_) {
    switch (slot.state) {
      case State::Waiting:
        if (!closing_all_ && slot.wanted && !slot.gone && slot.spec.ready && now >= slot.retry_at_ns) open(slot);
        break;
      case State::Open: {
        std::string failure = slot.engine->failure();
        if (failure.empty()) break;
        fail(slot, std::move(failure), "");
        close(slot);
        break;
      }
      case State::Opening:
      case State::Closing:
        if (!slot.slow_reported && now - slot.since_ns >= options_.slow_after_ns) {
          slot.slow_reported = true;
          slot.problem = std::string(slot.state == State::Opening ? "opening" : "closing") +
                         " the device has not returned: its driver or firmware blocks";
          slot.remedy = "see dmesg; the other devices are not affected";
          log::warning("endpoints", slot.problem, {{"device", device}});
          changed();
        }
        break;
    }
  }
}

void EndpointKeeper::watch_progress(Slot& slot, const EngineReport& report, bool starved) {
  const auto& stats = report.stats;
  const std::uint64_t progress = stats.sent + stats.throttled + stats.local_errors;
  const Nanos now = clock_.monotonic_ns();
  const bool can = std::any_of(report.peers.begin(), report.peers.end(),
                               [](const auto& peer) { return peer.state == probes::PeerState::Ready; });
  // Opening it anew would take more of the CPU than the host has to give.
  if (progress != slot.last_progress || !can || starved) {
    slot.last_progress = progress;
    slot.progressed_ns = now;
    return;
  }
  const auto found = targets_.find(slot.spec.device);
  double rate = 0;
  if (found != targets_.end()) {
    for (const auto& target : found->second) {
      for (const auto& path : target.paths) rate += path.probes_per_s;
    }
  }
  // Two probes were due and none went.
  if (rate * static_cast<double>(options_.stalled_after_ns) * 1e-9 < 2) return;
  if (now - slot.progressed_ns < options_.stalled_after_ns) return;
  fail(slot, "the engine made no progress", "it is opened anew by itself");
  close(slot);
}

std::vector<EngineReport> EndpointKeeper::collect(bool starved) {
  std::vector<EngineReport> out;
  for (auto& [device, slot] : slots_) {
    if (slot.state != State::Open) continue;
    EngineReport report;
    report.spec = slot.spec;
    report.endpoint = slot.engine->endpoint();
    report.windows = slot.engine->take_windows();
    report.peers = slot.engine->peers();
    report.registered = slot.engine->registered();
    report.stats = slot.engine->take_stats();
    watch_progress(slot, report, starved);
    out.push_back(std::move(report));
  }
  return out;
}

std::vector<model::ProbeEndpoint> EndpointKeeper::endpoints() const {
  std::vector<model::ProbeEndpoint> out;
  for (const auto& [device, slot] : slots_) {
    if (slot.state == State::Open) out.push_back(slot.engine->endpoint());
  }
  return out;
}

std::vector<model::Limitation> EndpointKeeper::limitations() const {
  std::vector<model::Limitation> out;
  for (const auto& [device, slot] : slots_) {
    if (slot.state == State::Open || slot.problem.empty()) continue;
    out.push_back({model::rnic_subject(host_, device), slot.problem,
                   slot.remedy.empty() ? "it is tried again by itself" : slot.remedy});
  }
  return out;
}

void EndpointKeeper::close_all() {
  closing_all_ = true;
  for (auto& [device, slot] : slots_) {
    if (slot.state == State::Open) close(slot);
  }
}

bool EndpointKeeper::all_closed() const {
  return std::all_of(slots_.begin(), slots_.end(),
                     [](const auto& entry) { return entry.second.state == State::Waiting; });
}

bool EndpointKeeper::any_stuck() const { return std::any_of(slots_.begin(), slots_.end(), is_stuck); }

bool EndpointKeeper::all_stuck() const {
  return !slots_.empty() && std::all_of(slots_.begin(), slots_.end(), is_stuck);
}

}  // namespace weft::agent
