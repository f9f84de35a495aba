// Traces the paths that probes take while they run: hop counts and ports come from the probes' outcomes.
// Where tracing is not permitted it only says so.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
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
  bool finished() const;
  // Source port -> the way there in words.
  std::map<std::uint16_t, std::string> paths(const std::string& host, const RouteNames& names) const;
  std::vector<model::PathTrace> traces() const;
  const std::string& note() const { return note_; }

 private:
  static constexpr std::size_t kMaxTraces = 512;
  std::uint8_t traffic_class_;
  std::unique_ptr<probes::Tracer> tracer_;
  std::string note_;
  std::set<std::pair<std::string, std::uint16_t>> known_;  // one return port is enough for the way there over RDMA
};

// The trace request that follows the probes of an outcome. Over UDP the destination port is the responder's own, which
// is the port its acknowledgements come from.
probes::TraceRequest request_for(const HostAddress& host, const Direct::Place& place,
                                 const probes::ProbeOutcome& outcome, std::uint8_t traffic_class);

}  // namespace weft::cli
