// How probe packets leave and arrive: one interface over UD queue pairs (real RNICs, rxe) and over UDP sockets.
// A transport serves one local address. It has prober lanes and responder lanes, kept apart so that answering never
// delays probing. A lane is a queue pair (RDMA) or a bound socket (UDP). Where the source port can be chosen by flow
// label, one lane serves many ports; on rxe and UDP each lane has one port.
// Used by one thread (the engine's), which also destroys it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/model/device.h"
#include "lib/model/path.h"

namespace weft::probes {

enum class Role : std::uint8_t { Prober, Responder };

// Where a packet goes. RDMA: GID and queue pair number. UDP: address (IPv4-mapped or IPv6) and port in number.
struct Destination {
  model::Gid gid;
  std::uint32_t number = 0;
  auto operator<=>(const Destination&) const = default;
};

// A reading of the transport's packet clock: only differences by elapsed_ns mean anything.
using Stamp = std::uint64_t;

struct Arrival {
  Role role = Role::Prober;
  std::uint16_t local_port = 0;           // UDP source port of the lane it arrived on (its own, not the sender's)
  std::uint32_t local_number = 0;         // queue pair number, or UDP port, it arrived on
  Destination source;                     // as the packet says; not to be trusted before the MAC is checked
  std::span<const std::uint8_t> payload;  // valid during the callback only
  std::optional<std::uint8_t> tos;        // IP header as it arrived; absent where there is none or its checksum is bad
  std::optional<std::uint8_t> hop_limit;
  Stamp stamp = 0;
  Nanos handled_ns = 0;  // monotonic, when this process saw it
};

struct SendDone {
  Role role = Role::Prober;
  std::uint64_t cookie = 0;
  bool ok = false;
  Stamp stamp = 0;
  std::string error;  // when not ok: status in words
};

class TransportEvents {
 public:
  virtual ~TransportEvents() = default;
  virtual void on_arrival(const Arrival& arrival) = 0;
  virtual void on_send_done(const SendDone& done) = 0;
};

struct LaneInfo {
  Role role = Role::Prober;
  std::uint32_t number = 0;       // queue pair number or UDP port: what peers send to
  std::uint16_t source_port = 0;  // UDP source port of what it sends; first of several when ports are free
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string name() const = 0;  // "rdma" | "udp"
  virtual model::TimestampRung rung() const = 0;
  virtual model::Gid local_address() const = 0;
  virtual std::vector<LaneInfo> lanes() const = 0;
  // Source ports packets of this role can leave by (fixed ones, or a spread of choosable ones).
  virtual std::vector<std::uint16_t> source_ports(Role role) const = 0;
  // Opens more lanes until there are at least this many source ports; keeps what it has on error.
  virtual Result<void> want_ports(Role role, unsigned count) = 0;
  virtual std::size_t max_payload_bytes() const = 0;

  // Queues one packet with the given source port and TOS/traffic class (ECT(0) included by the caller).
  // Transient when the send queue is full; each accepted cookie gets exactly one SendDone.
  // Responder packets leave by the lane whose number is lane_number.
  virtual Result<void> send(Role role, std::uint32_t lane_number, std::uint16_t source_port, const Destination& to,
                            std::uint8_t traffic_class, std::span<const std::uint8_t> payload,
                            std::uint64_t cookie) = 0;

  // Delivers what is there; never blocks. Permanent failure (device gone) is an error: close the transport.
  virtual Result<void> poll(TransportEvents& events) = 0;
  // Descriptors that become readable when poll has work; arm() must be called after poll before waiting on them.
  virtual std::vector<int> wait_fds() const = 0;
  // One of them was readable: poll may look there. Whoever does not wait on them need not tell.
  virtual void note_ready(int /*fd*/) {}
  // True: call poll once more before waiting; what is there, or will be at once, raises no event.
  virtual Result<bool> arm() = 0;

  // Nanoseconds from one stamp to a later one, modulo the clock's width.
  virtual Nanos elapsed_ns(Stamp from, Stamp to) const = 0;
  // The packet clock now, where software can read it; absent where only packets carry it.
  virtual std::optional<Stamp> now() const { return std::nullopt; }
  // Fewest free responder receive buffers since the last call; absent where unknown.
  virtual std::optional<std::uint32_t> take_responder_low_water() = 0;
};

}  // namespace weft::probes
