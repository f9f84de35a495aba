// Bytes of probes, acknowledgements and hellos. Big-endian; the last 16 bytes are the fabric key's tag over all bytes
// before it. Pure: no sockets, no clock.
//
//   every packet  0 magic "WEFT"  4 version  5 type  6 length of the whole packet (u16)
//   probe, acknowledgements (at least 104 bytes, zero padding before the tag)
//     8 session  16 sequence  24 responder epoch  32 prober number (u32: queue pair or UDP port acknowledgements go to)
//     36 responder number (u32: lane the probe was sent to and acknowledgements leave by)
//     40 forward port (u16)  42 return port (u16: source port wanted for acknowledgements)
//     44 flags  45 TOS and 46 hop limit of the probe as it arrived  47 traffic class wanted for acknowledgements
//     48 responder delay T4-T3 in ns  56 receive count of the session  64 highest sequence received
//     72 received map (2 x u64): bit i of 128, lowest first, says whether sequence highest - i arrived
//   hello, hello answer (exactly 640 bytes)
//     8 session  16 nonce  24 epoch  32 GID (16)  48 transport  49 flags  50 refusal  51 length of the name
//     52 lease in ms (u32)  56 number of lanes (u16)  58 zero (u16)  60 name (128)  188 lanes (64 x {u32, u16})
//
// The receive count is that of stateful STAMP (RFC 8762 4.3); the map says the same for each single probe, so that a
// lost probe and a lost acknowledgement are told apart even where paths reorder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "lib/model/device.h"
#include "probes/packet/fabric_key.h"
#include "probes/packet/reject.h"

namespace weft::probes {

inline constexpr std::uint8_t kPacketVersion = 1;
inline constexpr std::size_t kProbeBytes = 104;      // smallest probe or acknowledgement
inline constexpr std::size_t kMaxProbeBytes = 4096;  // largest RoCE MTU
inline constexpr std::size_t kHelloBytes = 640;      // every hello and every answer
inline constexpr std::size_t kMaxHelloLanes = 64;    // more are left out by the writer
inline constexpr std::size_t kMaxHelloNameBytes = 128;
inline constexpr unsigned kReceivedMapBits = 128;

enum class PacketType : std::uint8_t { Hello = 1, HelloAck = 2, Probe = 3, Ack = 4, Ack2 = 5 };

// Which of the sequences up to `highest` arrived. count is of the session since its registration.
struct ReceiveState {
  std::uint64_t count = 0;
  std::uint64_t highest = 0;
  std::array<std::uint64_t, 2> map{};
  bool operator==(const ReceiveState&) const = default;

  bool covers(std::uint64_t sequence) const { return sequence <= highest && highest - sequence < kReceivedMapBits; }
  // Only for covered sequences.
  bool has(std::uint64_t sequence) const {
    const std::uint64_t bit = highest - sequence;
    return (map[bit / 64] >> (bit % 64) & 1) != 0;
  }
};

// A probe or an acknowledgement. An acknowledgement repeats what it answers.
struct ProbePacket {
  PacketType type = PacketType::Probe;
  std::uint64_t session = 0;
  std::uint64_t sequence = 0;
  std::uint64_t epoch = 0;
  std::uint32_t prober_number = 0;
  std::uint32_t responder_number = 0;
  std::uint16_t forward_port = 0;
  std::uint16_t return_port = 0;
  std::uint8_t traffic_class = 0;
  // Acknowledgements only.
  std::optional<std::uint8_t> tos;
  std::optional<std::uint8_t> hop_limit;
  std::optional<std::uint64_t> responder_delay_ns;
  bool second_follows = false;  // times come in an Ack2
  ReceiveState received;
  bool operator==(const ProbePacket&) const = default;
};

struct HelloLane {
  std::uint32_t number = 0;
  std::uint16_t port = 0;
  bool operator==(const HelloLane&) const = default;
};

enum class WireTransport : std::uint8_t { Rdma = 0, Udp = 1 };
enum class Refusal : std::uint8_t { None = 0, TableFull = 1, OtherTransport = 2 };

// A request says who probes and from where; an answer who responds and by which lanes.
struct HelloPacket {
  PacketType type = PacketType::Hello;
  std::uint64_t session = 0;
  std::uint64_t nonce = 0;  // fresh in each request, repeated in its answer
  std::uint64_t epoch = 0;  // of the sender's queue pairs
  model::Gid gid;
  WireTransport transport = WireTransport::Rdma;
  std::string name;  // "h1/rxe0": printable ASCII without spaces
  std::vector<HelloLane> lanes;
  // Answers only.
  std::uint32_t lease_ms = 0;
  bool known = false;     // the session was registered before this request
  bool two_acks = false;  // times come in a second acknowledgement: probes must be twice kProbeBytes or more
  bool any_port = false;  // acknowledgements can leave by any source port
  Refusal refusal = Refusal::None;
  bool operator==(const HelloPacket&) const = default;
};

template <typename T>
using Parsed = tl::expected<T, Reject>;

// Writes a packet of exactly `bytes` (kProbeBytes..kMaxProbeBytes); 0 when it does not fit in out or is out of bounds.
std::size_t encode(const ProbePacket& packet, std::size_t bytes, const FabricKey& key, std::span<std::uint8_t> out);
// Writes kHelloBytes; 0 when out is too small or the name is not allowed.
std::size_t encode(const HelloPacket& packet, const FabricKey& key, std::span<std::uint8_t> out);

// Strict: every byte is checked, nothing past the end is read. Hellos where probes belong are UnknownType, and vice
// versa.
Parsed<ProbePacket> parse_probe(std::span<const std::uint8_t> bytes, const FabricKey& key);
Parsed<HelloPacket> parse_hello(std::span<const std::uint8_t> bytes, const FabricKey& key);

}  // namespace weft::probes
