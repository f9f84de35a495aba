// Packets of a trace: the UDP packet that is sent with a small TTL, and the ICMP answers that quote it.
// Pure functions over bytes (network order as on the wire). IPv4 (RFC 791, 792) and IPv6 (RFC 8200, 4443).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/model/device.h"

namespace weft::probes {

// Everything that decides the path (5-tuple, class) and what tells this packet from another (token).
struct TraceProbe {
  model::Gid source, destination;  // both IPv4-mapped, or both IPv6
  std::uint16_t source_port = 0, destination_port = 0;
  std::uint8_t tos = 0;     // DSCP and ECN bits
  std::uint8_t ttl = 0;     // 1..255
  std::uint16_t token = 0;  // never 0: the kernel would replace an IP id of 0
  bool operator==(const TraceProbe&) const = default;
};

// IP and UDP header and 8 bytes of payload, shorter than any RoCE packet, so a host that gets one drops it unread.
// The token is the IPv4 id, and also in the payload (IPv6 has no id, and its routers quote the payload).
std::vector<std::uint8_t> build_trace_packet(const TraceProbe& probe);

enum class IcmpKind : std::uint8_t { TimeExceeded, Unreachable };

// An ICMP error and the header it quotes. Not to be believed before the quote is matched with a packet sent.
struct IcmpAnswer {
  IcmpKind kind = IcmpKind::TimeExceeded;
  std::uint8_t code = 0;
  model::Gid responder;  // who answers
  model::Gid source, destination;
  std::uint16_t source_port = 0, destination_port = 0;
  std::uint16_t token = 0;      // 0: an IPv6 quote too short to hold it
  std::uint8_t quoted_tos = 0;  // as our packet arrived at the responder
  bool operator==(const IcmpAnswer&) const = default;
};

// Why a packet is no answer; each is counted apart.
enum class IcmpReject : std::uint8_t { OtherType, Truncated, BadChecksum, QuoteNotUdp, QuoteMalformed };
inline constexpr std::size_t kIcmpRejects = 5;
std::string_view to_string(IcmpReject reason);

using IcmpParse = std::variant<IcmpAnswer, IcmpReject>;
// An IPv4 packet as a raw ICMP socket delivers it: with its IP header. Checks the ICMP checksum, which the kernel has
// not done for raw sockets.
IcmpParse parse_icmp4(std::span<const std::uint8_t> packet);
// An ICMPv6 message without IP header, its checksum already checked by the kernel (RFC 3542, 3.1).
IcmpParse parse_icmp6(std::span<const std::uint8_t> message, const model::Gid& from);

// RFC 1071 over the bytes; 0 when they hold a right checksum.
std::uint16_t internet_checksum(std::span<const std::uint8_t> bytes, std::uint32_t sum = 0);

}  // namespace weft::probes
