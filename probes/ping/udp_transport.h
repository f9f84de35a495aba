// Probing over plain UDP sockets, for hosts with no usable RDMA device: kernel receive and transmit timestamps
// (SO_TIMESTAMPING), TOS and hop limit as they arrived. A lane is one bound socket; its number is its UDP port.
// IPv4 and IPv6. Not thread safe: one thread, as transport.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/model/device.h"
#include "probes/ping/transport.h"

namespace weft::probes {

struct UdpTransportOptions {
  model::Gid local;       // IPv4-mapped or IPv6: an address of this host
  std::string interface;  // gives link-local addresses their scope; may be empty otherwise
  // Source ports to bind; a port may also be 0: the kernel picks. More lanes come by want_ports, and a prober lane with
  // a port of the sender's choice by sending from that port.
  std::vector<std::uint16_t> prober_ports = {0};
  std::vector<std::uint16_t> responder_ports = {0};
  unsigned max_lanes = 64;                       // of each role
  std::size_t max_payload_bytes = 1452;          // 1500 less IPv6 and UDP headers
  Nanos send_stamp_wait_ns = 20 * kMillisecond;  // a driver that gives no transmit stamp: then the time of sending
};

// Errors name the address and port that could not be bound and, when taken, what to do.
// clock must outlive the transport.
Result<std::unique_ptr<Transport>> open_udp_transport(const UdpTransportOptions& options, const Clock& clock);

}  // namespace weft::probes
