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
  std::optional<model::HostHealth> health;
  CpuTime cpu;
  InventoryCounts inventory;
};

class MetricsPage {
 public:
  void add(const std::vector<EngineReport>& reports);
  // What the tracer counts; less than before means that it was made anew.
  void add_traces(const probes::TraceStats& now);
  std::vector<model::MetricSample> samples(const PageInput& input) const;

 private:
  // Engine counters start again when a device is opened anew; exported ones must not.
  struct Totals {
    probes::EngineStats last;
    probes::EngineStats sum;
    std::map<std::string, std::uint64_t> rejected_last, rejected_sum;
    std::map<std::string, double> round_trip_s;  // by peer, last window that had one
    bool open = false;
  };
  std::map<std::string, Totals> devices_;
  probes::TraceStats traces_last_, traces_;
};

}  // namespace weft::agent
