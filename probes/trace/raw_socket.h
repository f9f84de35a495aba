// The sockets of a tracer: raw sending with our own IP header, and one ICMP socket a family for every trace.
// A seam: tests put a simulated network behind it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "probes/trace/icmp.h"

namespace weft::probes {

class TraceSocket {
 public:
  virtual ~TraceSocket() = default;
  // Sends by the routes of probe.source (and by netdev when not empty). Never blocks. NotFound or Transient when there
  // is no route or the interface is down.
  virtual Result<void> send(const TraceProbe& probe, const std::string& netdev) = 0;
  // One arrived ICMP error; NoData when there is none. Never blocks.
  virtual Result<IcmpParse> receive() = 0;
  // Readable when receive has something.
  virtual std::vector<int> wait_fds() const = 0;
};

// Needs CAP_NET_RAW: else Permission, with how to get it. IPv6 is left out where the kernel has none.
Result<std::unique_ptr<TraceSocket>> open_trace_socket();

// The local address packets to this one leave from, by the routes. NotFound when there is no route.
Result<std::string> source_address_for(const std::string& destination);

}  // namespace weft::probes
