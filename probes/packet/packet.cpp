#include "probes/packet/packet.h"

#include <algorithm>

namespace weft::probes {
namespace {

constexpr std::array<std::uint8_t, 4> kMagic{'W', 'E', 'F', 'T'};
constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kProbeFieldsEnd = kProbeBytes - kMacBytes;
constexpr std::size_t kNameOffset = 60;
constexpr std::size_t kLanesOffset = kNameOffset + kMaxHelloNameBytes;
constexpr std::size_t kLaneBytes = 6;
constexpr std::size_t kHelloFieldsEnd = kLanesOffset + kMaxHelloLanes * kLaneBytes;
static_assert(kHelloFieldsEnd + kMacBytes <= kHelloBytes);

constexpr std::uint8_t kHasTos = 1;
constexpr std::uint8_t kHasHopLimit = 2;
constexpr std::uint8_t kHasDelay = 4;
constexpr std::uint8_t kSecondFollows = 8;
constexpr std::uint8_t kProbeFlags = kHasTos | kHasHopLimit | kHasDelay | kSecondFollows;

constexpr std::uint8_t kKnown = 1;
constexpr std::uint8_t kTwoAcks = 2;
constexpr std::uint8_t kAnyPort = 4;
constexpr std::uint8_t kHelloFlags = kKnown | kTwoAcks | kAnyPort;

template <typename T>
void put(std::span<std::uint8_t> out, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out[at + i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(value) >> (8 * (sizeof(T) - 1 - i)));
  }
}

template <typename T>
T get(std::span<const std::uint8_t> bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value = value << 8 | bytes[at + i];
  return static_cast<T>(value);
}

bool all_zero(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

// A name goes into metrics and logs of other hosts.
bool name_allowed(std::string_view name) {
  return name.size() <= kMaxHelloNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

void put_header(std::span<std::uint8_t> out, PacketType type) {
  std::copy(kMagic.begin(), kMagic.end(), out.begin());
  out[4] = kPacketVersion;
  out[5] = static_cast<std::uint8_t>(type);
  put<std::uint16_t>(out, 6, static_cast<std::uint16_t>(out.size()));
}

void put_mac(std::span<std::uint8_t> out, const FabricKey& key) {
  const Mac mac = key.mac(out.first(out.size() - kMacBytes));
  std::copy(mac.begin(), mac.end(), out.end() - kMacBytes);
}

// Cheapest checks first: garbage must not cost a keyed hash.
std::optional<Reject> check(std::span<const std::uint8_t> bytes, std::size_t least, std::size_t most, PacketType first,
                            PacketType last, const FabricKey& key) {
  if (bytes.size() < kHeaderBytes) return Reject::TooShort;
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) return Reject::BadMagic;
  if (bytes[4] != kPacketVersion) return Reject::BadVersion;
  if (bytes[5] < static_cast<std::uint8_t>(first) || bytes[5] > static_cast<std::uint8_t>(last)) {
    return Reject::UnknownType;
  }
  if (bytes.size() < least) return Reject::TooShort;
  if (bytes.size() > most || get<std::uint16_t>(bytes, 6) != bytes.size()) return Reject::BadLength;
  if (!key.verify(bytes.first(bytes.size() - kMacBytes), bytes.last(kMacBytes))) return Reject::BadMac;
  return std::nullopt;
}

}  // namespace

std::size_t encode(const ProbePacket& packet, std::size_t bytes, const FabricKey& key, std::span<std::uint8_t> out) {
  if (bytes < kProbeBytes || bytes > kMaxProbeBytes || bytes > out.size()) return 0;
  out = out.first(bytes);
  std::fill(out.begin(), out.end(), std::uint8_t{0});
  put_header(out, packet.type);
  put(out, 8, packet.session);
  put(out, 16, packet.sequence);
  put(out, 24, packet.epoch);
  put(out, 32, packet.prober_number);
  put(out, 36, packet.responder_number);
  put(out, 40, packet.forward_port);
  put(out, 42, packet.return_port);
  out[47] = packet.traffic_class;
  if (packet.type != PacketType::Probe) {
    out[44] = static_cast<std::uint8_t>((packet.tos ? kHasTos : 0) | (packet.hop_limit ? kHasHopLimit : 0) |
                                        (packet.responder_delay_ns ? kHasDelay : 0) |
                                        (packet.second_follows ? kSecondFollows : 0));
    out[45] = packet.tos.value_or(0);
    out[46] = packet.hop_limit.value_or(0);
    put(out, 48, packet.responder_delay_ns.value_or(0));
    put(out, 56, packet.received.count);
    put(out, 64, packet.received.highest);
    put(out, 72, packet.received.map[0]);
    put(out, 80, packet.received.map[1]);
  }
  put_mac(out, key);
  return bytes;
}

Parsed<ProbePacket> parse_probe(std::span<const std::uint8_t> bytes, const FabricKey& key) {
  if (const auto bad = check(bytes, kProbeBytes, kMaxProbeBytes, PacketType::Probe, PacketType::Ack2, key)) {
    return tl::unexpected(*bad);
  }
  ProbePacket packet;
  packet.type = static_cast<PacketType>(bytes[5]);
  packet.session = get<std::uint64_t>(bytes, 8);
  packet.sequence = get<std::uint64_t>(bytes, 16);
  packet.epoch = get<std::uint64_t>(bytes, 24);
  packet.prober_number = get<std::uint32_t>(bytes, 32);
  packet.responder_number = get<std::uint32_t>(bytes, 36);
  packet.forward_port = get<std::uint16_t>(bytes, 40);
  packet.return_port = get<std::uint16_t>(bytes, 42);
  packet.traffic_class = bytes[47];
  const std::uint8_t flags = bytes[44];
  const auto padding = bytes.subspan(kProbeFieldsEnd, bytes.size() - kProbeFieldsEnd - kMacBytes);
  if (packet.sequence == 0 || (flags & ~kProbeFlags) != 0 || !all_zero(padding))
    return tl::unexpected(Reject::BadField);
  if (packet.type == PacketType::Probe) {
    if (!all_zero(bytes.subspan(44, 3)) || !all_zero(bytes.subspan(48, kProbeFieldsEnd - 48))) {
      return tl::unexpected(Reject::BadField);
    }
    return packet;
  }
  if ((flags & kHasTos) != 0) packet.tos = bytes[45];
  if ((flags & kHasHopLimit) != 0) packet.hop_limit = bytes[46];
  if ((flags & kHasDelay) != 0) packet.responder_delay_ns = get<std::uint64_t>(bytes, 48);
  packet.second_follows = (flags & kSecondFollows) != 0;
  packet.received.count = get<std::uint64_t>(bytes, 56);
  packet.received.highest = get<std::uint64_t>(bytes, 64);
  packet.received.map = {get<std::uint64_t>(bytes, 72), get<std::uint64_t>(bytes, 80)};
  const bool absent_but_set = (!packet.tos && bytes[45] != 0) || (!packet.hop_limit && bytes[46] != 0) ||
                              (!packet.responder_delay_ns && !all_zero(bytes.subspan(48, 8)));
  if (absent_but_set || packet.received.highest < packet.sequence || packet.received.count == 0) {
    return tl::unexpected(Reject::BadField);
  }
  return packet;
}

std::size_t encode(const HelloPacket& packet, const FabricKey& key, std::span<std::uint8_t> out) {
  if (out.size() < kHelloBytes || !name_allowed(packet.name)) return 0;
  out = out.first(kHelloBytes);
  std::fill(out.begin(), out.end(), std::uint8_t{0});
  put_header(out, packet.type);
  put(out, 8, packet.session);
  put(out, 16, packet.nonce);
  put(out, 24, packet.epoch);
  std::copy(packet.gid.raw.begin(), packet.gid.raw.end(), out.begin() + 32);
  out[48] = static_cast<std::uint8_t>(packet.transport);
  if (packet.type == PacketType::HelloAck) {
    out[49] = static_cast<std::uint8_t>((packet.known ? kKnown : 0) | (packet.two_acks ? kTwoAcks : 0) |
                                        (packet.any_port ? kAnyPort : 0));
    out[50] = static_cast<std::uint8_t>(packet.refusal);
    put(out, 52, packet.lease_ms);
  }
  out[51] = static_cast<std::uint8_t>(packet.name.size());
  std::copy(packet.name.begin(), packet.name.end(), out.begin() + kNameOffset);
  const std::size_t lanes = std::min(packet.lanes.size(), kMaxHelloLanes);
  put(out, 56, static_cast<std::uint16_t>(lanes));
  for (std::size_t i = 0; i < lanes; ++i) {
    put(out, kLanesOffset + i * kLaneBytes, packet.lanes[i].number);
    put(out, kLanesOffset + i * kLaneBytes + 4, packet.lanes[i].port);
  }
  put_mac(out, key);
  return kHelloBytes;
}

Parsed<HelloPacket> parse_hello(std::span<const std::uint8_t> bytes, const FabricKey& key) {
  if (const auto bad = check(bytes, kHelloBytes, kHelloBytes, PacketType::Hello, PacketType::HelloAck, key)) {
    return tl::unexpected(*bad);
  }
  HelloPacket packet;
  packet.type = static_cast<PacketType>(bytes[5]);
  packet.session = get<std::uint64_t>(bytes, 8);
  packet.nonce = get<std::uint64_t>(bytes, 16);
  packet.epoch = get<std::uint64_t>(bytes, 24);
  std::copy_n(bytes.begin() + 32, 16, packet.gid.raw.begin());
  const std::uint8_t flags = bytes[49];
  const std::size_t name_bytes = bytes[51];
  const std::size_t lanes = get<std::uint16_t>(bytes, 56);
  if (bytes[48] > static_cast<std::uint8_t>(WireTransport::Udp) || (flags & ~kHelloFlags) != 0 ||
      bytes[50] > static_cast<std::uint8_t>(Refusal::OtherTransport) || name_bytes > kMaxHelloNameBytes ||
      lanes > kMaxHelloLanes || !all_zero(bytes.subspan(58, 2)) ||
      !all_zero(bytes.subspan(kNameOffset + name_bytes, kMaxHelloNameBytes - name_bytes)) ||
      !all_zero(bytes.subspan(kLanesOffset + lanes * kLaneBytes,
                              kHelloBytes - kMacBytes - kLanesOffset - lanes * kLaneBytes))) {
    return tl::unexpected(Reject::BadField);
  }
  packet.transport = static_cast<WireTransport>(bytes[48]);
  packet.name.assign(reinterpret_cast<const char*>(bytes.data()) + kNameOffset, name_bytes);
  if (!name_allowed(packet.name) || packet.gid.is_zero()) return tl::unexpected(Reject::BadField);
  packet.lanes.reserve(lanes);
  for (std::size_t i = 0; i < lanes; ++i) {
    const std::size_t at = kLanesOffset + i * kLaneBytes;
    packet.lanes.push_back({get<std::uint32_t>(bytes, at), get<std::uint16_t>(bytes, at + 4)});
  }
  packet.lease_ms = get<std::uint32_t>(bytes, 52);
  packet.known = (flags & kKnown) != 0;
  packet.two_acks = (flags & kTwoAcks) != 0;
  packet.any_port = (flags & kAnyPort) != 0;
  packet.refusal = static_cast<Refusal>(bytes[50]);
  const bool answer_fields = packet.lease_ms != 0 || flags != 0 || packet.refusal != Refusal::None;
  if (packet.type == PacketType::Hello && answer_fields) return tl::unexpected(Reject::BadField);
  return packet;
}

}  // namespace weft::probes
