#include "probes/trace/icmp.h"

#include <algorithm>

namespace weft::probes {
namespace {

constexpr std::size_t kIpv4Header = 20, kIpv6Header = 40, kUdpHeader = 8, kPayload = 8, kIcmpHeader = 8;
constexpr std::uint8_t kUdp = 17;
constexpr std::uint16_t kTokenCheck = 0x5ea5;
constexpr std::array<std::uint8_t, 4> kMagic{'w', 'e', 'f', 't'};

void put16(std::uint8_t* at, std::uint16_t value) {
  at[0] = static_cast<std::uint8_t>(value >> 8);
  at[1] = static_cast<std::uint8_t>(value);
}

std::uint16_t get16(const std::uint8_t* at) { return static_cast<std::uint16_t>(at[0] << 8 | at[1]); }

model::Gid mapped(const std::uint8_t* ipv4) {
  model::Gid gid;
  gid.raw[10] = gid.raw[11] = 0xff;
  std::copy_n(ipv4, 4, gid.raw.begin() + 12);
  return gid;
}

model::Gid ipv6(const std::uint8_t* at) {
  model::Gid gid;
  std::copy_n(at, 16, gid.raw.begin());
  return gid;
}

void put_udp(std::uint8_t* udp, const TraceProbe& probe, std::span<const std::uint8_t> addresses) {
  put16(udp, probe.source_port);
  put16(udp + 2, probe.destination_port);
  put16(udp + 4, kUdpHeader + kPayload);
  std::copy(kMagic.begin(), kMagic.end(), udp + kUdpHeader);
  put16(udp + kUdpHeader + 4, probe.token);
  put16(udp + kUdpHeader + 6, static_cast<std::uint16_t>(probe.token ^ kTokenCheck));
  std::uint32_t sum = kUdp + kUdpHeader + kPayload;  // pseudo header (RFC 768, 8200): addresses, protocol, length
  for (std::size_t i = 0; i + 1 < addresses.size(); i += 2) sum += get16(addresses.data() + i);
  const std::uint16_t checksum = internet_checksum({udp, kUdpHeader + kPayload}, sum);
  put16(udp + 6, checksum == 0 ? 0xffff : checksum);
}

}  // namespace

std::string_view to_string(IcmpReject reason) {
  switch (reason) {
    case IcmpReject::OtherType:
      return "other_icmp_type";
    case IcmpReject::Truncated:
      return "truncated";
    case IcmpReject::BadChecksum:
      return "bad_checksum";
    case IcmpReject::QuoteNotUdp:
      return "quote_not_udp";
    case IcmpReject::QuoteMalformed:
      return "quote_malformed";
  }
  return "unknown";
}

std::uint16_t internet_checksum(std::span<const std::uint8_t> bytes, std::uint32_t sum) {
  std::size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += get16(bytes.data() + i);
  if (i < bytes.size()) sum += static_cast<std::uint32_t>(bytes[i] << 8);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

std::vector<std::uint8_t> build_trace_packet(const TraceProbe& probe) {
  if (probe.destination.is_ipv4_mapped()) {
    std::vector<std::uint8_t> packet(kIpv4Header + kUdpHeader + kPayload);
    packet[0] = 0x45;
    packet[1] = probe.tos;
    put16(&packet[2], static_cast<std::uint16_t>(packet.size()));
    put16(&packet[4], probe.token);
    packet[6] = 0x40;  // don't fragment
    packet[8] = probe.ttl;
    packet[9] = kUdp;
    std::copy_n(probe.source.raw.begin() + 12, 4, packet.begin() + 12);
    std::copy_n(probe.destination.raw.begin() + 12, 4, packet.begin() + 16);
    put16(&packet[10], internet_checksum({packet.data(), kIpv4Header}));
    put_udp(&packet[kIpv4Header], probe, {&packet[12], 8});
    return packet;
  }
  std::vector<std::uint8_t> packet(kIpv6Header + kUdpHeader + kPayload);
  packet[0] = static_cast<std::uint8_t>(0x60 | probe.tos >> 4);
  packet[1] = static_cast<std::uint8_t>(probe.tos << 4);  // flow label 0: some fabrics hash it
  put16(&packet[4], kUdpHeader + kPayload);
  packet[6] = kUdp;
  packet[7] = probe.ttl;
  std::copy_n(probe.source.raw.begin(), 16, packet.begin() + 8);
  std::copy_n(probe.destination.raw.begin(), 16, packet.begin() + 24);
  put_udp(&packet[kIpv6Header], probe, {&packet[8], 32});
  return packet;
}

IcmpParse parse_icmp4(std::span<const std::uint8_t> packet) {
  if (packet.size() < kIpv4Header) return IcmpReject::Truncated;
  const std::size_t header = (packet[0] & 0x0fU) * 4U;
  if (packet[0] >> 4 != 4 || header < kIpv4Header || packet[9] != 1) return IcmpReject::OtherType;
  if (packet.size() < header + kIcmpHeader) return IcmpReject::Truncated;
  const auto icmp = packet.subspan(header);
  if (icmp[0] != 11 && icmp[0] != 3) return IcmpReject::OtherType;
  if (icmp[0] == 11 && icmp[1] != 0) return IcmpReject::OtherType;  // reassembly timed out: says nothing of a hop
  if (internet_checksum(icmp) != 0) return IcmpReject::BadChecksum;
  const auto quote = icmp.subspan(kIcmpHeader);
  if (quote.size() < kIpv4Header) return IcmpReject::Truncated;
  const std::size_t quoted_header = (quote[0] & 0x0fU) * 4U;
  if (quote[0] >> 4 != 4 || quoted_header < kIpv4Header) return IcmpReject::QuoteMalformed;
  if (quote[9] != kUdp) return IcmpReject::QuoteNotUdp;
  if ((get16(&quote[6]) & 0x1fff) != 0) return IcmpReject::QuoteMalformed;  // not the first fragment: no ports in it
  if (quote.size() < quoted_header + kUdpHeader) return IcmpReject::Truncated;
  const auto udp = quote.subspan(quoted_header);
  IcmpAnswer answer;
  answer.kind = icmp[0] == 11 ? IcmpKind::TimeExceeded : IcmpKind::Unreachable;
  answer.code = icmp[1];
  answer.responder = mapped(&packet[12]);
  answer.source = mapped(&quote[12]);
  answer.destination = mapped(&quote[16]);
  answer.source_port = get16(&udp[0]);
  answer.destination_port = get16(&udp[2]);
  answer.token = get16(&quote[4]);
  answer.quoted_tos = quote[1];
  return answer;
}

IcmpParse parse_icmp6(std::span<const std::uint8_t> message, const model::Gid& from) {
  if (message.size() < kIcmpHeader) return IcmpReject::Truncated;
  if (message[0] != 3 && message[0] != 1) return IcmpReject::OtherType;
  if (message[0] == 3 && message[1] != 0) return IcmpReject::OtherType;
  const auto quote = message.subspan(kIcmpHeader);
  if (quote.size() < kIpv6Header) return IcmpReject::Truncated;
  if (quote[0] >> 4 != 6) return IcmpReject::QuoteMalformed;
  if (quote[6] != kUdp) return IcmpReject::QuoteNotUdp;
  if (quote.size() < kIpv6Header + kUdpHeader) return IcmpReject::Truncated;
  const auto udp = quote.subspan(kIpv6Header);
  IcmpAnswer answer;
  answer.kind = message[0] == 3 ? IcmpKind::TimeExceeded : IcmpKind::Unreachable;
  answer.code = message[1];
  answer.responder = from;
  answer.source = ipv6(&quote[8]);
  answer.destination = ipv6(&quote[24]);
  answer.source_port = get16(&udp[0]);
  answer.destination_port = get16(&udp[2]);
  answer.quoted_tos = static_cast<std::uint8_t>(quote[0] << 4 | quote[1] >> 4);
  if (udp.size() >= kUdpHeader + kPayload && std::equal(kMagic.begin(), kMagic.end(), udp.begin() + kUdpHeader) &&
      (get16(&udp[kUdpHeader + 4]) ^ get16(&udp[kUdpHeader + 6])) == kTokenCheck) {
    answer.token = get16(&udp[kUdpHeader + 4]);
  }
  return answer;
}

}  // namespace weft::probes
