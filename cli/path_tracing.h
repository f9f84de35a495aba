// Traces the paths that probes take while they run: hop counts and ports come from the probes' outcomes.
// Where tracing is not permitted it only says so.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/direct.h"
#include "cli/route_names.h"
#include "lib/base/clock.h"
#include "probes/trace/tracer.h"

namespace weft::cli {

class PathTracing {
 public:
  PathTracing(std::uint8_t traffic_class, const Clock& clock);

  void see(const HostAddress& host, const Direct::Place& place, const probes::ProbeOutcome& outcome);
  // From now on the routers on the way to the host by these source and destination ports (0: RoCE's) are asked and
  // counted this often each; ports not named no longer are.
  using Ports = std::pair<std::uint16_t, std::uint16_t>;
  void suspect(const std::string& host, const std::map<Ports, double>& probes_per_hop_per_s);
  bool finished() const;
  // By source port.
  std::map<std::uint16_t, WayThere> paths(const std::string& host, const RouteNames& names) const;
  // What changed or was counted since the last call; PathTrace.to is the host as asked.
  std::vector<model::PathTrace> take();
  const std::string& note() const { return note_; }

 private:
  static constexpr std::size_t kMaxTraces = 512;
  std::uint8_t traffic_class_;
  std::unique_ptr<probes::Tracer> tracer_;
  std::string note_;
  // By host and ports: the destination port is always RoCE's over RDMA.
  std::map<std::pair<std::string, Ports>, probes::TraceRequest> requests_;
};

// The trace request that follows the probes of an outcome. Over UDP the destination port is the responder's own, which
// is the port its acknowledgements come from.
probes::TraceRequest request_for(const HostAddress& host, const Direct::Place& place,
                                 const probes::ProbeOutcome& outcome, std::uint8_t traffic_class);

}  // namespace weft::cli
