// Routers by name: the topology file's, where there is one, else the address they answer from. Pure.
#pragma once

#include <string>

#include "lib/localise/topology.h"
#include "lib/model/path.h"
#include "probes/trace/trace_schedule.h"

namespace weft::cli {

class RouteNames {
 public:
  RouteNames() = default;
  explicit RouteNames(localise::Topology topology) : topology_(std::move(topology)) {}
  bool has_topology() const { return !topology_.empty(); }
  // "s1", or the address when it is not in the file.
  std::string name(const std::string& address) const;
  // "l1 > s1 > l2"; "?" for a silent hop; "direct" without routers.
  std::string path(const model::PathTrace& trace) const;
  const localise::Topology& topology() const { return topology_; }

 private:
  localise::Topology topology_;
};

}  // namespace weft::cli
