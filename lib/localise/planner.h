// Who probes whom, by which ports, how often. Same-leaf mesh; inter-leaf pairs so that every known directed link gets
// its probes within the budget of each endpoint. Up to 16 endpoints everybody probes everybody; beyond, a fixed sample:
// up to 8 neighbours on the leaf and 6 ports on other leaves, spread so that all leaf pairs are met.
// Until traces tell where ports lead, ports are taken in turn (port 0); then port pairs are named so that the ways out
// and back cover the parallel ways in all combinations. Choices stand until a port goes or its way changes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/localise/fabric.h"
#include "lib/localise/host_book.h"
#include "lib/localise/localiser.h"
#include "lib/model/plan.h"

namespace weft::localise {

class Planner {
 public:
  Planner(const LocaliserConfig& config, Fabric& fabric, HostBook& hosts)
      : config_(config), fabric_(fabric), hosts_(hosts) {}

  const std::map<std::string, model::ProbePlan>& plan(Nanos now, const std::set<LinkId>& wanted_traces);

 private:
  struct Port {
    EndpointId id = kNone;
    const EndpointState* state = nullptr;
    std::string group;      // leaf, or "" when unknown
    std::size_t place = 0;  // within the group
  };
  struct Chosen {
    std::vector<model::PlanPath> paths;
    std::size_t ways_out = 0, ways_back = 0;
    std::uint64_t courses = 0;  // of the chosen ports
    Nanos first_trace = 0;
    bool complete = false;                        // every offered port of both ends is traced
    std::size_t fewest_out = 0, fewest_back = 0;  // ports on the way with the fewest
  };
  using PortsByWay = std::map<std::vector<LinkId>, std::vector<std::uint16_t>>;

  std::vector<Port> ports(Nanos now) const;
  std::vector<EndpointId> targets_of(const std::vector<Port>& all, std::size_t index,
                                     const std::map<std::string, std::vector<std::size_t>>& groups) const;
  // Over UDP, where ports go in pairs (model::udp_partner); over RoCE any goes with any.
  static bool paired(const model::ProbeEndpoint& from) { return from.transport == "udp"; }
  static std::uint16_t partner(const model::ProbeEndpoint& from, const model::ProbeEndpoint& to,
                               std::uint16_t prober_port);
  // The destination port that the trace of a probe tells.
  static std::uint16_t destination(const model::ProbeEndpoint& from, const model::ProbeEndpoint& to,
                                   std::uint16_t prober_port) {
    return paired(from) ? partner(from, to, prober_port) : std::uint16_t{0};
  }
  const Chosen& choose(const Port& from, const Port& to, bool same_leaf, std::size_t wanted, bool small, Nanos now);
  PortsByWay ways(EndpointId from, EndpointId to, const std::vector<UdpPorts>& offered, std::size_t& traced);
  // One port on each way out in turn, with the answering port that belongs to it.
  std::vector<model::PlanPath> pair_up(const Port& from, const Port& to, const PortsByWay& out, std::size_t wanted,
                                       std::uint64_t turn) const;
  std::uint64_t courses(EndpointId from, EndpointId to, const std::vector<model::PlanPath>& paths) const;
  void cover_links(std::map<EndpointId, std::map<EndpointId, std::vector<model::PlanPath>>>& table,
                   const std::map<EndpointId, const EndpointState*>& states);
  std::vector<model::PlanTrace> traces_for(EndpointId from,
                                           const std::map<EndpointId, std::vector<model::PlanPath>>& targets,
                                           const std::map<EndpointId, const EndpointState*>& states) const;
  void rebuild(Nanos now);

  const LocaliserConfig& config_;
  Fabric& fabric_;
  HostBook& hosts_;
  std::map<std::pair<EndpointId, EndpointId>, Chosen> chosen_;
  std::map<std::string, std::uint32_t> ports_wanted_;  // by host
  std::map<LinkId, Nanos> wanted_;                     // links to be told apart -> last asked
  std::map<std::string, model::ProbePlan> plans_;
  std::uint64_t seen_fabric_ = 0, seen_hosts_ = 0;
  std::set<LinkId> seen_wanted_;
  Nanos built_ = 0;
  bool settling_ = false;  // some target is still waiting for traces
};

}  // namespace weft::localise
