// What weftd does, without its loop: inventory in, endpoints kept, windows, health, traces and findings into the
// outbox, the stream fed, the plan followed, the page written. Everything from outside comes by the parts, so that a
// test is the outside. Main loop only; nothing blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/daemon/batch_store.h"
#include "agent/daemon/endpoint_choice.h"
#include "agent/daemon/endpoint_keeper.h"
#include "agent/daemon/main_loop.h"
#include "agent/daemon/metrics_page.h"
#include "agent/daemon/outbox.h"
#include "agent/daemon/plan_follower.h"
#include "agent/daemon/settings.h"
#include "agent/daemon/stream_session.h"
#include "agent/daemon/trace_requests.h"
#include "lib/base/clock.h"

namespace weft::agent {

struct Identity {
  std::string version, kernel, boot_id;
  std::uint64_t epoch = 0;
};

// The background tracer as the pipeline sees it.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  virtual void set_requests(const std::vector<probes::TraceRequest>& requests) = 0;
  virtual std::vector<model::PathTrace> take_traces() = 0;
  // Why nothing can be traced now; empty when it can.
  virtual std::string problem() = 0;
  // Counted since it was made.
  virtual probes::TraceStats stats() = 0;
};

struct PipelineParts {
  const Clock& clock;
  Post post;
  Spawn spawn;
  std::function<std::unique_ptr<StreamLink>(std::function<void(LinkEvent)>)> links;
  std::function<EngineFactory(const Settings&)> engines;
  std::function<Result<std::unique_ptr<TraceSource>>(const Settings&)> tracers;
  std::function<double()> random;  // 0 <= r < 1
};

class Pipeline {
 public:
  Pipeline(Settings settings, Identity identity, PipelineParts parts);
  ~Pipeline();

  // inventory: devices and their limitations; the rest is filled in here. An error keeps the last one.
  void on_inventory(Result<model::Inventory> inventory, std::vector<NetInterface> interfaces);
  // A device is going: let go now, and say so at once.
  void on_device_gone(const std::string& rdma_device);
  // It is there again, or events were lost (empty); an inventory follows.
  void on_device_back(const std::string& rdma_device) { keeper_->device_back(rdma_device); }
  // health: this process's own; the counts of its engines are added. When the host runs late it is sent before anything
  // else is done, with the counts of the second before.
  void on_second(model::HostHealth health);
  // Something of the stream is due; see next_wake_ns.
  void on_wake();
  Nanos next_wake_ns() const { return session_->next_wake_ns(); }

  // Takes what can change while running; the rest is logged as needing a restart.
  void reload(Settings settings);
  // The configuration was read again and is bad. Until a reload.
  void config_rejected() { config_rejected_ = true; }
  // Goodbye to the aggregator, devices closed. stopped() when both are done.
  void stop(const std::string& reason);
  bool stopped() const;

  bool ready() const { return inventory_.has_value(); }
  // Not every engine is stuck in its device.
  bool progressing() const { return !keeper_->all_stuck(); }
  std::string status_line() const;
  // What this life has sent and what of it is not known to be stored.
  void log_totals() const;
  std::vector<model::MetricSample> page(const InventoryCounts& inventory) const;
  const model::Inventory& reported() const { return reported_; }
  StreamState stream_state() const { return session_->state(); }

 private:
  void choose();
  // Turns to UDP when RDMA is here but cannot be used, and back.
  void follow_refusals();
  void apply_plan();
  void send(Record record);
  void report_inventory();
  model::Inventory compose() const;
  void add_vanished(std::vector<model::Limitation>& out) const;
  void add_peer_limitations(std::vector<model::Limitation>& out) const;
  // What came and went since the last report.
  void log_limitations(const std::vector<model::Limitation>& now) const;
  void collect(bool starved);
  void follow_traces(const std::vector<EngineReport>& reports);
  void push_trace(const model::PathTrace& trace);
  void on_connected();
  void start_tracer();

  Settings settings_;
  Identity identity_;
  PipelineParts parts_;
  Outbox outbox_;
  MemoryStore store_;
  PlanFollower follower_;
  MetricsPage metrics_;
  std::unique_ptr<TraceRequests> trace_requests_;
  std::unique_ptr<TraceSource> tracer_;
  std::string tracer_problem_;
  std::unique_ptr<EndpointKeeper> keeper_;
  std::unique_ptr<StreamSession> session_;

  std::optional<model::Inventory> inventory_;
  std::vector<NetInterface> interfaces_;
  std::string inventory_problem_;
  std::vector<model::Limitation> choice_limitations_;
  std::set<std::string> seen_devices_;  // allowed RDMA devices that were here since the start
  bool rdma_seen_ = false;              // a port of one of them
  std::vector<RdmaRefusal> refusals_;   // not empty: UDP is probed instead of RDMA
  std::optional<Nanos> rdma_again_ns_;  // when it could last be used, since that ended once
  model::Inventory reported_;
  bool inventory_due_ = false;
  bool config_rejected_ = false;
  bool stopping_ = false;
  Nanos inventory_sent_ns_ = 0;
  std::vector<probes::PeerStatus> peers_;
  std::map<std::string, model::PathTrace> traces_;  // latest by key, said again to a new session
  std::vector<probes::TraceRequest> requested_;
  std::optional<model::HostHealth> last_health_;
  std::map<std::string, std::uint64_t> throttled_;  // by device, of the last collection
  // Of the engines, for the next health report.
  std::uint64_t newly_throttled_ = 0;
  std::optional<std::uint32_t> low_water_;
};

}  // namespace weft::agent
