// Whom a responder answers.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::probes {

// A peer that holds a lease.
struct RegisteredPeer {
  struct Ports {
    std::uint16_t own = 0, theirs = 0;
    auto operator<=>(const Ports&) const = default;
  };
  std::string name;          // as the peer said
  std::string address;       // text
  std::vector<Ports> ports;  // UDP: answered on of late, as both choose the way back. Empty over RDMA.
  auto operator<=>(const RegisteredPeer&) const = default;
};

}  // namespace weft::probes
