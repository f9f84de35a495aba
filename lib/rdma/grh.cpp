#include "lib/rdma/grh.h"

#include <algorithm>

namespace weft::rdma {
namespace {

constexpr std::uint8_t kUdp = 17;
constexpr std::uint8_t kIbGrh = 0x1B;

bool checksum_holds(std::span<const std::uint8_t> header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < header.size(); i += 2) sum += (std::uint32_t{header[i]} << 8) | header[i + 1];
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum == 0xFFFF;  // RFC 791: the header sums to all ones, its checksum field included
}

model::Gid mapped(std::span<const std::uint8_t> ipv4) {
  model::Gid gid;
  gid.raw[10] = gid.raw[11] = 0xFF;
  std::copy_n(ipv4.begin(), 4, gid.raw.begin() + 12);
  return gid;
}

std::optional<ArrivedHeader> parse_ipv4(std::span<const std::uint8_t> header) {
  if (header[0] != 0x45 || header[9] != kUdp || !checksum_holds(header)) return std::nullopt;
  ArrivedHeader arrived;
  arrived.tos = header[1];
  arrived.hop_limit = header[8];
  arrived.source = mapped(header.subspan(12, 4));
  arrived.destination = mapped(header.subspan(16, 4));
  return arrived;
}

std::optional<ArrivedHeader> parse_ipv6(std::span<const std::uint8_t> header) {
  // Providers write either the IPv6 header itself (next header UDP) or a GRH made from it.
  if (header[0] >> 4 != 6 || (header[6] != kUdp && header[6] != kIbGrh)) return std::nullopt;
  ArrivedHeader arrived;
  arrived.tos = static_cast<std::uint8_t>((header[0] << 4) | (header[1] >> 4));
  arrived.hop_limit = header[7];
  std::copy_n(header.begin() + 8, 16, arrived.source.raw.begin());
  std::copy_n(header.begin() + 24, 16, arrived.destination.raw.begin());
  return arrived;
}

}  // namespace

std::optional<ArrivedHeader> parse_grh(std::span<const std::uint8_t> bytes, HeaderKind kind) {
  if (bytes.size() < kGrhBytes) return std::nullopt;
  return kind == HeaderKind::Ipv4 ? parse_ipv4(bytes.subspan(20, 20)) : parse_ipv6(bytes.first(kGrhBytes));
}

}  // namespace weft::rdma
