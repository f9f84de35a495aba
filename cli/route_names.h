// Routers by name: the topology file's, where there is one, else the address they answer from. Pure.
#pragma once

#include <string>

#include "lib/localise/topology.h"
#include "lib/model/path.h"
#include "probes/trace/trace_schedule.h"

namespace weft::cli {

// The way of probes to a host.
struct WayThere {
  std::string words;   // "l1 > s1 > l2"; "?" for a silent hop; "direct, no router"; "not known"
  bool known = false;  // a router, or that there is none
};

class RouteNames {
 public:
  RouteNames() = default;
  explicit RouteNames(localise::Topology topology) : topology_(std::move(topology)) {}
  bool has_topology() const { return !topology_.empty(); }
  // "s1", or the address when it is not in the file.
  std::string name(const std::string& address) const;
  WayThere path(const model::PathTrace& trace) const;
  const localise::Topology& topology() const { return topology_; }

 private:
  localise::Topology topology_;
};

}  // namespace weft::cli
