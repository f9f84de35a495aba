#include "probes/ping/port_choice.h"

#include <algorithm>

#include "lib/model/path.h"

namespace weft::probes {

ChosenPorts choose_ports(const model::PlanPath& plan, std::size_t turn, const std::vector<std::uint16_t>& own_ports,
                         const std::vector<LaneInfo>& own_lanes, const ResponderInfo& peer, bool udp) {
  ChosenPorts ports;
  ports.forward = plan.forward_port;
  ports.back = plan.return_port;
  const std::size_t own = own_ports.size();
  const std::size_t theirs = peer.lanes.size();
  if (own == 0) {
    ports.error = "no prober port is open";
    return ports;
  }
  // Turns walk the diagonals of (own ports x theirs): each turn changes both, and all pairs come; over UDP pairs stay.
  const bool both = ports.forward == 0 && ports.back == 0;
  if (ports.forward == 0) ports.forward = own_ports[turn % own];
  if (ports.back == 0) {
    const std::size_t place = udp    ? model::udp_partner(own_ports, ports.forward, theirs)
                              : both ? turn % own + turn / own
                                     : turn;
    ports.back = peer.lanes[place % theirs].port;
  }

  const auto lane = std::find_if(own_lanes.begin(), own_lanes.end(),
                                 [&](const LaneInfo& one) { return one.source_port == ports.forward; });
  if (lane != own_lanes.end()) {
    ports.prober_number = lane->number;
  } else {
    // A UDP lane is its port, and is opened by sending from it; on RDMA one queue pair serves ports by flow label.
    ports.prober_number = udp || own_lanes.empty() ? ports.forward : own_lanes.front().number;
  }
  const auto answer =
      std::find_if(peer.lanes.begin(), peer.lanes.end(), [&](const HelloLane& one) { return one.port == ports.back; });
  if (answer != peer.lanes.end()) {
    ports.responder_number = answer->number;
  } else if (peer.any_port) {
    ports.responder_number = peer.lanes.front().number;
  } else {
    ports.error = peer.name + " has no acknowledgement port " + std::to_string(ports.back) + "; it offers";
    for (const HelloLane& one : peer.lanes) ports.error += " " + std::to_string(one.port);
  }
  return ports;
}

}  // namespace weft::probes
