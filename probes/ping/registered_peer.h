// Whom a responder answers, for those who trace the ways of the answers. A value; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::probes {

// A peer that holds a lease.
struct RegisteredPeer {
  struct Ports {  // UDP
    std::uint16_t own = 0, theirs = 0;
    auto operator<=>(const Ports&) const = default;
  };
  std::string name;     // as the peer said
  std::string address;  // text
  // Over UDP the pairs answered on in the last two minutes, at most 64: both ports choose the way back. Over RDMA none.
  std::vector<Ports> ports;
  auto operator<=>(const RegisteredPeer&) const = default;
};

}  // namespace weft::probes
