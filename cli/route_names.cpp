#include "cli/route_names.h"

namespace weft::cli {

std::string RouteNames::name(const std::string& address) const {
  if (address.empty()) return "?";
  return topology_.node_of(address).value_or(address);
}

WayThere RouteNames::path(const model::PathTrace& trace) const {
  if (trace.hops.empty()) return {trace.complete ? "direct, no router" : "not known", trace.complete};
  WayThere out;
  for (const model::TraceHop& hop : trace.hops) {
    if (!out.words.empty()) out.words += " > ";
    out.words += name(hop.address);
    out.known |= !hop.address.empty();
  }
  return out;
}

}  // namespace weft::cli
