// Which ports the next probe of a path takes: what chooses its way through the fabric. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/model/plan.h"
#include "probes/ping/hello.h"
#include "probes/ping/transport.h"

namespace weft::probes {

struct ChosenPorts {
  std::uint16_t forward = 0, back = 0;
  std::uint32_t prober_number = 0, responder_number = 0;  // of the lanes that send and answer it
  std::string error;                                      // why no probe can be sent; the rest may be unset then
};

// The ports that the plan names, else those whose turn it is: turns walk all pairs over RoCE, and over UDP each of our
// ports with its partner. own_ports and own_lanes are the prober's; turn counts the path's probes.
ChosenPorts choose_ports(const model::PlanPath& plan, std::size_t turn, const std::vector<std::uint16_t>& own_ports,
                         const std::vector<LaneInfo>& own_lanes, const ResponderInfo& peer, bool udp);

}  // namespace weft::probes
