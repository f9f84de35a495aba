// Which UDP source port a RoCEv2 packet leaves by: pure arithmetic, no device needed.
// Hardware: the port follows the GRH flow label of the address handle (rdma-core ibv_flow_label_to_udp_sport and its
// kernel twin rdma_flow_label_to_udp_sport). rxe: UD ports are fixed at creation from the queue pair number
// (rxe_qp_init_req: 0xC000 + (hash_32(qpn, 14) & 0x3FFF), hash_32 by GOLDEN_RATIO_32).
#pragma once

#include <cstdint>
#include <vector>

namespace weft::rdma {

inline constexpr std::uint16_t kRoceUdpPort = 4791;
inline constexpr std::uint16_t kFirstSourcePort = 0xC000;
inline constexpr unsigned kSourcePorts = 0x4000;

// label: 20 bits.
std::uint16_t source_port_of_flow_label(std::uint32_t label);
// A label for a port of 0xC000..0xFFFF; never 0, which mlx5 reads as "any port". Other ports wrap into the range.
std::uint32_t flow_label_of_source_port(std::uint16_t port);
std::uint16_t rxe_source_port(std::uint32_t queue_pair_number);
// The index-th port of the spread below.
std::uint16_t spread_source_port(unsigned index);
// count distinct ports (at most 16,384), the same ones at each start; a longer spread begins with the shorter one.
std::vector<std::uint16_t> spread_of_source_ports(unsigned count);

}  // namespace weft::rdma
