#include "lib/localise/localiser.h"

#include <algorithm>

#include "lib/localise/evidence.h"
#include "lib/localise/fabric.h"
#include "lib/localise/hop_evidence.h"
#include "lib/localise/host_book.h"
#include "lib/localise/judge.h"
#include "lib/localise/planner.h"
#include "lib/localise/views.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

// Waits of other software that are long enough to be the host's and not a timer's grain.
constexpr Nanos kSlowAnswer = HostBook::kOverloadGap;

class LocaliserImpl final : public Localiser {
 public:
  LocaliserImpl(LocaliserConfig config, Topology topology)
      : config_(config),
        fabric_(std::move(topology), config.paths_not_pinned),
        hosts_(config.host_silent_after_ns, config.delay_floor_ns),
        judge_(config_, fabric_, hosts_, evidence_, hops_),
        planner_(config_, fabric_, hosts_) {}

  void on_contact(const std::string& host, Nanos received) override {
    if (Host* known = touch(host, received)) hosts_.on_contact(*known, received);
  }

  void on_start(const std::string& host, std::uint64_t agent_epoch, Nanos received) override {
    if (Host* known = touch(host, received)) hosts_.on_start(*known, agent_epoch, received);
  }

  void on_goodbye(const std::string& host, Nanos restart_allowance_ns, Nanos received) override {
    if (Host* known = touch(host, received)) hosts_.on_goodbye(*known, restart_allowance_ns, received);
  }

  void on_inventory(const model::Inventory& inventory, Nanos received) override {
    Host* known = touch(inventory.host, received);
    if (known == nullptr) return;
    for (const model::ProbeEndpoint& offer : inventory.endpoints) {
      if (!fabric_.intern_endpoint(inventory.host + "/" + offer.device)) ++dropped_;
    }
    hosts_.on_inventory(*known, inventory, received);
  }

  void on_window(const model::PathWindow& window, Nanos received) override {
    const auto from = fabric_.intern_endpoint(window.key.from);
    const auto to = fabric_.intern_endpoint(window.key.to);
    if (!from || !to) {
      ++dropped_;
      return;
    }
    const std::string prober = fabric_.endpoint(*from).host;
    const std::string responder = fabric_.endpoint(*to).host;
    Host* prober_host = touch(prober, received);
    Host* host = touch(responder, received);
    if (host == nullptr || prober_host == nullptr) return;
    if (window.sent > 0) host->last_probed = received;
    // Of a prober that is late itself an answer may not count, and was one.
    if (window.acked > 0 || window.rtt_min_ns) host->last_answer = received;
    // Probes to queue pairs that are no more say nothing, however many were lost.
    const auto port = host->endpoints.find(fabric_.endpoint(*to).device);
    if (port != host->endpoints.end() && window.responder_epoch != 0 && port->second.offer.responder_epoch != 0 &&
        window.responder_epoch != port->second.offer.responder_epoch) {
      return;
    }
    if (window.responder_delay_max_ns && *window.responder_delay_max_ns >= kSlowAnswer) {
      hosts_.on_slow_answer(*host, prober, *window.responder_delay_max_ns, received);
    }
    if (!evidence_.add(window, *from, *to, received)) ++dropped_;
  }

  void on_trace(const model::PathTrace& trace, Nanos received) override {
    if (!fabric_.add_trace(trace, received)) {
      ++dropped_;
      return;
    }
    hops_.add(trace, *fabric_.find_endpoint(trace.from), *fabric_.find_endpoint(trace.to), received);
  }

  void on_health(const std::string& host, const model::HostHealth& health, Nanos received) override {
    if (Host* known = touch(host, received)) hosts_.on_health(*known, health, received);
  }

  void resume(const std::vector<model::Finding>& active, Nanos now) override { judge_.resume(active, now); }
  std::vector<Verdict> judge(Nanos now) override { return judge_.judge(now); }
  std::set<std::string> blind() const override { return judge_.blind(); }
  const std::vector<std::string>& suspicions() const override { return judge_.suspicions(); }

  std::map<std::string, model::ProbePlan> plan(Nanos now) override {
    return planner_.plan(now, judge_.wanted_traces());
  }

  std::vector<MeshCell> mesh(Nanos now) const override { return views().mesh(now); }
  std::vector<PathView> paths(Nanos now) const override { return views().paths(now); }
  std::vector<LinkView> links(Nanos now) const override { return views().links(now); }
  std::vector<HostView> hosts(Nanos now) const override { return views().hosts(now); }
  Coverage coverage(Nanos now) const override { return views().coverage(now); }

  void forget_evidence() override {
    evidence_.forget();
    hops_.forget();
    judge_.forget();
  }

  std::uint64_t dropped() const override { return dropped_; }

 private:
  Host* touch(const std::string& name, Nanos now) {
    Host* host = model::valid_name(name) ? hosts_.touch(name, now) : nullptr;
    if (host == nullptr) ++dropped_;
    return host;
  }
  Views views() const { return Views(config_, fabric_, hosts_, evidence_, judge_); }

  LocaliserConfig config_;
  mutable Fabric fabric_;  // routes without a trace are laid when first asked for
  HostBook hosts_;
  Evidence evidence_;
  HopEvidence hops_;
  Judge judge_;
  Planner planner_;
  std::uint64_t dropped_ = 0;
};

}  // namespace

std::unique_ptr<Localiser> Localiser::create(LocaliserConfig config, Topology topology) {
  config.window_ns = std::clamp<Nanos>(config.window_ns, 5 * kSecond, 20 * kSecond);
  return std::make_unique<LocaliserImpl>(config, std::move(topology));
}

}  // namespace weft::localise
