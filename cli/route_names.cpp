#include "cli/route_names.h"

namespace weft::cli {

std::string RouteNames::name(const std::string& address) const {
  if (address.empty()) return "?";
  return topology_.node_of(address).value_or(address);
}

std::string RouteNames::path(const model::PathTrace& trace) const {
  std::string out;
  for (const model::TraceHop& hop : trace.hops) {
    if (!out.empty()) out += " > ";
    out += name(hop.address);
  }
  if (!out.empty()) return out;
  return trace.complete ? "direct, no router" : "not known";
}

}  // namespace weft::cli
