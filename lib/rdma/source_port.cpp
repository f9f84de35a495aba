#include "lib/rdma/source_port.h"

#include <algorithm>

namespace weft::rdma {

std::uint16_t source_port_of_flow_label(std::uint32_t label) {
  label &= 0xFFFFF;
  return static_cast<std::uint16_t>(kFirstSourcePort | ((label & 0x3FFF) ^ (label >> 14)));
}

std::uint32_t flow_label_of_source_port(std::uint16_t port) {
  const std::uint32_t low = port & 0x3FFFu;
  return low != 0 ? low : 0x4001u;  // high bits 1 xor low bits 1 = 0
}

std::uint16_t rxe_source_port(std::uint32_t queue_pair_number) {
  constexpr std::uint32_t kGoldenRatio32 = 0x61C88647u;
  const std::uint32_t hash = (queue_pair_number * kGoldenRatio32) >> (32 - 14);
  return static_cast<std::uint16_t>(kFirstSourcePort + (hash & 0x3FFF));
}

std::uint16_t spread_source_port(unsigned index) {
  // An odd step visits every residue of a power of two once.
  return static_cast<std::uint16_t>(kFirstSourcePort + ((index * 0x26D3u + 0x111u) & 0x3FFF));
}

std::vector<std::uint16_t> spread_of_source_ports(unsigned count) {
  std::vector<std::uint16_t> ports;
  count = std::min(count, kSourcePorts);
  ports.reserve(count);
  for (unsigned i = 0; i < count; ++i) ports.push_back(spread_source_port(i));
  return ports;
}

}  // namespace weft::rdma
