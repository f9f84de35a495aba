// Which paths to trace: own prober ports to each target, own responder ports to each peer that holds a lease here. Over
// UDP each with the port of the peer's that it is used with. A path in trouble is a suspect at once, for some seconds:
// the counts of its hops are there when the aggregator asks which link it is. Pure, apart from the hop counts and the
// trouble it remembers. Main loop only.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/daemon/endpoint_keeper.h"
#include "lib/model/plan.h"
#include "probes/trace/trace_schedule.h"

namespace weft::agent {

class TraceRequests {
 public:
  TraceRequests(std::string host, std::uint8_t traffic_class, std::size_t max_requests)
      : host_(std::move(host)), traffic_class_(traffic_class), max_requests_(max_requests) {}

  // Ports in use come first, so that the bound leaves out what matters least. left_out counts those.
  // suspects: paths whose routers the plan wants counted.
  std::vector<probes::TraceRequest> make(const std::vector<EngineReport>& reports,
                                         const std::map<std::string, std::vector<model::PlanTarget>>& targets,
                                         const std::vector<model::PlanTrace>& suspects, Nanos now);
  std::size_t left_out() const { return left_out_; }

 private:
  struct Trouble {
    Nanos until = 0;
    double weight = 0;  // share of probes lost or marked
  };
  // By (from, to), source and destination port; the latter is RoCE's, or over UDP the peer's.
  using PathId = std::tuple<std::string, std::string, std::uint16_t, std::uint16_t>;
  void watch(const EngineReport& report, Nanos now);
  // The worst, none of them for want of another: at most kOwnSuspects.
  std::set<PathId> own_suspects(Nanos now);

  std::string host_;
  std::uint8_t traffic_class_;
  std::size_t max_requests_;
  std::size_t left_out_ = 0;
  // Routers on the way out, as the peer saw them: by (from, to) and source port. Learned from windows; kept, because a
  // path that loses everything tells no hop count any more.
  std::map<std::pair<std::string, std::string>, std::map<std::uint16_t, std::uint8_t>> hops_;
  std::map<PathId, Trouble> trouble_;
};

}  // namespace weft::agent
