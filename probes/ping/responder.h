// Answers probes of registered peers. A session is registered by a keyed hello and lives for a lease; anything else is
// counted and ignored. What is sent in answer to one probe is never more bytes than the probe had, and each peer is
// answered at a bounded rate. Pure over Transport and the time passed in; not thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/base/budget.h"
#include "lib/base/clock.h"
#include "probes/packet/packet.h"
#include "probes/ping/registered_peer.h"
#include "probes/ping/transport.h"

namespace weft::probes {

struct ResponderOptions {
  std::string name;         // "h1/rxe0"
  std::uint64_t epoch = 0;  // of this set of queue pairs
  WireTransport transport = WireTransport::Rdma;
  Nanos lease_ns = 60 * kSecond;
  double answer_rate_per_peer = 500;
  unsigned max_peers = 4096;
};

class Responder {
 public:
  // All references must outlive the responder.
  Responder(ResponderOptions options, const FabricKey& key, Transport& transport, const Clock& clock,
            RejectCounters& rejects);

  // The answer to an authentic hello; registers the session or renews its lease.
  HelloPacket register_peer(const HelloPacket& hello, Nanos now);
  void on_arrival(const Arrival& arrival);
  void on_send_done(const SendDone& done);
  // Forgets peers whose lease ran out, and pairs of ports that are no longer used.
  void expire(Nanos now);

  std::vector<RegisteredPeer> registered() const;
  unsigned peers() const { return static_cast<unsigned>(peers_.size()); }
  std::uint64_t answered() const { return answered_; }
  std::uint64_t local_errors() const { return local_errors_; }

 private:
  // Sequences seen, for the receive state and against replay.
  class Received {
   public:
    // False when it was seen before, or is too old to tell.
    bool add(std::uint64_t sequence);
    ReceiveState state() const;

   private:
    static constexpr std::uint64_t kBits = 1024;
    bool get(std::uint64_t sequence) const { return (bits_[sequence % kBits / 64] >> (sequence % 64) & 1) != 0; }
    std::uint64_t highest_ = 0;
    std::uint64_t count_ = 0;
    std::array<std::uint64_t, kBits / 64> bits_{};
  };
  struct Peer {
    std::string name;
    model::Gid gid;
    Nanos expires_ns = 0;
    Budget budget;
    Received received;
    std::map<RegisteredPeer::Ports, Nanos> ports;  // when last
  };
  // A first acknowledgement whose send stamp (T4) goes into a second.
  struct Second {
    bool used = false;
    std::uint32_t generation = 0;
    Stamp t3 = 0;
    Destination to;
    std::uint8_t traffic_class = 0;
    ProbePacket ack;
  };

  void answer(const Arrival& arrival, const ProbePacket& probe, Peer& peer);
  // At most 64 pairs a peer: which are traced for it, none of them answered the less.
  static void note_ports(Peer& peer, const ProbePacket& probe, Nanos now);
  bool send(const ProbePacket& ack, std::size_t bytes, const Destination& to, std::uint64_t cookie);
  bool make_room(Nanos now);

  const ResponderOptions options_;
  const FabricKey& key_;
  Transport& transport_;
  const Clock& clock_;
  RejectCounters& rejects_;
  std::unordered_map<std::uint64_t, Peer> peers_;
  std::vector<Second> seconds_;
  std::vector<std::uint32_t> free_;
  std::uint64_t answered_ = 0;
  std::uint64_t local_errors_ = 0;
};

}  // namespace weft::probes
