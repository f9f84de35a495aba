// An engine whose life the test decides, and the world it lives in.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/daemon/endpoint_keeper.h"

namespace weft::test {

struct FakeEngineState {
  int open = 0;    // engines alive
  int opened = 0;  // ever
  std::string failure;
  std::vector<model::PlanTarget> targets;
  unsigned ports_wanted = 0;
  std::vector<std::uint16_t> prober_ports;
  std::vector<model::PathWindow> windows;
  std::vector<probes::PeerStatus> peers;
  probes::EngineStats stats;
  std::function<void()> on_take_windows = [] {};
};

class FakeEngine final : public probes::Engine {
 public:
  FakeEngine(FakeEngineState& state, std::string device) : state_(state), device_(std::move(device)) {
    ++state_.open;
    ++state_.opened;
  }
  ~FakeEngine() override { close(); }
  model::ProbeEndpoint endpoint() const override {
    model::ProbeEndpoint out;
    out.device = device_;
    out.transport = "rdma";
    out.address = "10.0.1.2";
    out.prober_ports = state_.prober_ports;
    out.responder_epoch = static_cast<std::uint64_t>(state_.opened);
    return out;
  }
  void set_targets(std::vector<model::PlanTarget> targets) override { state_.targets = std::move(targets); }
  void want_ports(unsigned count) override { state_.ports_wanted = count; }
  std::vector<model::PathWindow> take_windows() override {
    state_.on_take_windows();
    return std::exchange(state_.windows, {});
  }
  std::vector<probes::PeerStatus> peers() const override { return state_.peers; }
  std::vector<probes::RegisteredPeer> registered() const override { return {}; }
  probes::EngineStats take_stats() override { return state_.stats; }
  void on_outcome(std::function<void(const probes::ProbeOutcome&)>) override {}
  std::string failure() const override { return state_.failure; }
  void close() override {
    if (!std::exchange(closed_, true)) --state_.open;
  }

 private:
  FakeEngineState& state_;
  std::string device_;
  bool closed_ = false;
};

// Spawned work and posted work wait in queues until the test runs them: a device that blocks is work not yet run.
struct FakeThreads {
  std::deque<std::function<void()>> spawned, posted;
  agent::Spawn spawn() {
    return [this](std::function<void()> work) { spawned.push_back(std::move(work)); };
  }
  agent::Post post() {
    return [this](std::function<void()> work) { posted.push_back(std::move(work)); };
  }
  static void run(std::deque<std::function<void()>>& queue) {
    while (!queue.empty()) {
      auto work = std::move(queue.front());
      queue.pop_front();
      work();
    }
  }
  void run_all() {
    while (!spawned.empty() || !posted.empty()) {
      run(spawned);
      run(posted);
    }
  }
};

}  // namespace weft::test
