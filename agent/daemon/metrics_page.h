// What weftd says about itself on /metrics: totals that survive an engine being opened anew, and a snapshot a second.
// Main loop only; the vector it returns is handed to the server as an immutable whole.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/collectors/inventory/inventory_reader.h"
#include "agent/daemon/endpoint_keeper.h"
#include "agent/daemon/stream_session.h"
#include "lib/base/cpu_time.h"
#include "lib/model/device.h"
#include "lib/model/metric.h"
#include "lib/model/path.h"
#include "probes/trace/trace_schedule.h"

namespace weft::agent {

// What reading the host's devices came to, since the start. Messages absent: that source cannot be had here.
struct InventoryCounts {
  struct Messages {
    std::uint64_t received = 0, malformed = 0, overruns = 0;
  };
  std::optional<Messages> uevents, links;
  inventory::ReadCounts values;
};

struct PageInput {
  std::string host, version, kernel;
  StreamState stream = StreamState::Inactive;
  StreamStats stream_stats;
  std::uint64_t unacknowledged = 0;  // sent, not acknowledged
  std::uint64_t waiting = 0;         // in the outbox
  std::uint64_t dropped_samples = 0, refused_records = 0;
  std::uint64_t limitations = 0;
  std::uint64_t plan_revision = 0;
  bool config_rejected = false;
  std::optional<model::HostHealth> health;
  CpuTime cpu;
  InventoryCounts inventory;
  model::Inventory devices;  // as reported
};

class MetricsPage {
 public:
  void add(const std::vector<EngineReport>& reports);
  // What the tracer counts; less than before means that it was made anew.
  void add_traces(const probes::TraceStats& now);
  std::vector<model::MetricSample> samples(const PageInput& input) const;

 private:
  // Of the windows to one peer, so of probes that may accuse.
  struct PeerTotals {
    std::uint64_t sent = 0, lost_forward = 0, lost_back = 0, lost_unknown = 0;
    std::uint64_t ce_forward = 0, ce_back = 0, ecn_forward = 0, ecn_back = 0;
    std::optional<double> round_trip_s;  // last window that had one
  };
  // Engine counters start again when a device is opened anew; exported ones must not.
  struct Totals {
    probes::EngineStats last;
    probes::EngineStats sum;
    std::map<std::string, std::uint64_t> rejected_last, rejected_sum;
    std::map<std::string, PeerTotals> peers;
    bool open = false;
  };
  static void put_peer(std::vector<model::MetricSample>& out, const std::string& device, const std::string& name,
                       const PeerTotals& peer);
  static void add_windows(const EngineReport& report, std::map<std::string, PeerTotals>& peers);

  std::map<std::string, Totals> devices_;
  probes::TraceStats traces_last_, traces_;
};

}  // namespace weft::agent
