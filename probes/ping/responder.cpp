#include "probes/ping/responder.h"

#include <algorithm>

namespace weft::probes {
namespace {

constexpr std::uint8_t kEct0 = 0x02;
constexpr std::size_t kMaxSeconds = 4096;
constexpr std::size_t kMaxPorts = 64;        // pairs remembered of a peer
constexpr Nanos kPortsLife = 120 * kSecond;  // a path is probed every ten seconds at the least
constexpr std::uint64_t kNoCookie = 0;       // completions with it are not waited for

bool stamps_by_nic(model::TimestampRung rung) {
  return rung == model::TimestampRung::NicWallClock || rung == model::TimestampRung::NicTicks;
}

}  // namespace

bool Responder::Received::add(std::uint64_t sequence) {
  if (sequence > highest_) {
    const std::uint64_t gap = sequence - highest_;
    if (gap >= kBits) {
      bits_.fill(0);
    } else {
      for (std::uint64_t s = highest_ + 1; s < sequence; ++s) bits_[s % kBits / 64] &= ~(std::uint64_t{1} << s % 64);
    }
    highest_ = sequence;
  } else if (highest_ - sequence >= kBits || get(sequence)) {
    return false;
  }
  bits_[sequence % kBits / 64] |= std::uint64_t{1} << sequence % 64;
  ++count_;
  return true;
}

ReceiveState Responder::Received::state() const {
  ReceiveState state{count_, highest_, {}};
  for (std::uint64_t bit = 0; bit < kReceivedMapBits && bit < highest_; ++bit) {
    if (get(highest_ - bit)) state.map[bit / 64] |= std::uint64_t{1} << bit % 64;
  }
  return state;
}

Responder::Responder(ResponderOptions options, const FabricKey& key, Transport& transport, const Clock& clock,
                     RejectCounters& rejects)
    : options_(std::move(options)), key_(key), transport_(transport), clock_(clock), rejects_(rejects) {}

HelloPacket Responder::register_peer(const HelloPacket& hello, Nanos now) {
  HelloPacket answer;
  answer.type = PacketType::HelloAck;
  answer.session = hello.session;
  answer.nonce = hello.nonce;
  answer.epoch = options_.epoch;
  answer.gid = transport_.local_address();
  answer.transport = options_.transport;
  answer.name = options_.name;
  if (hello.transport != options_.transport) {
    answer.refusal = Refusal::OtherTransport;
    return answer;
  }
  auto at = peers_.find(hello.session);
  answer.known = at != peers_.end() && at->second.expires_ns > now;
  if (at != peers_.end() && !answer.known) {
    peers_.erase(at);
    at = peers_.end();
  }
  if (at == peers_.end()) {
    if (!make_room(now)) {
      answer.refusal = Refusal::TableFull;
      return answer;
    }
    const double burst = std::max(16.0, options_.answer_rate_per_peer / 5);
    at = peers_.emplace(hello.session, Peer{{}, {}, 0, Budget(options_.answer_rate_per_peer, burst), {}, {}}).first;
  }
  Peer& peer = at->second;
  peer.name = hello.name;
  peer.gid = hello.gid;
  peer.expires_ns = now + options_.lease_ns;
  answer.lease_ms = static_cast<std::uint32_t>(options_.lease_ns / kMillisecond);
  answer.two_acks = stamps_by_nic(transport_.rung());
  std::vector<LaneInfo> lanes;
  for (const LaneInfo& lane : transport_.lanes()) {
    if (lane.role == Role::Responder) lanes.push_back(lane);
  }
  const auto ports = transport_.source_ports(Role::Responder);
  answer.any_port = ports.size() > lanes.size();
  for (std::size_t i = 0; i < ports.size() && !lanes.empty(); ++i) {
    const auto own =
        std::find_if(lanes.begin(), lanes.end(), [&](const LaneInfo& lane) { return lane.source_port == ports[i]; });
    answer.lanes.push_back({own != lanes.end() ? own->number : lanes[i % lanes.size()].number, ports[i]});
  }
  return answer;
}

bool Responder::make_room(Nanos now) {
  if (peers_.size() < options_.max_peers) return true;
  expire(now);
  return peers_.size() < options_.max_peers;
}

void Responder::expire(Nanos now) {
  std::erase_if(peers_, [&](const auto& entry) { return entry.second.expires_ns <= now; });
  for (auto& [session, peer] : peers_) {
    std::erase_if(peer.ports, [&](const auto& entry) { return now - entry.second > kPortsLife; });
  }
}

void Responder::on_arrival(const Arrival& arrival) {
  const auto probe = parse_probe(arrival.payload, key_);
  if (!probe) return rejects_.count(probe.error());
  if (probe->type != PacketType::Probe) return rejects_.count(Reject::NotForUs);
  const auto at = peers_.find(probe->session);
  if (at == peers_.end() || at->second.expires_ns <= arrival.handled_ns ||
      // Without a global routing header (InfiniBand) the packet names no source.
      (!arrival.source.gid.is_zero() && arrival.source.gid != at->second.gid)) {
    return rejects_.count(Reject::UnregisteredPeer);
  }
  if (probe->epoch != options_.epoch) return rejects_.count(Reject::StaleEpoch);
  Peer& peer = at->second;
  if (!peer.budget.take(arrival.handled_ns)) return rejects_.count(Reject::Rate);
  if (!peer.received.add(probe->sequence)) return rejects_.count(Reject::Replayed);
  if (options_.transport == WireTransport::Udp) note_ports(peer, *probe, arrival.handled_ns);
  answer(arrival, *probe, peer);
}

void Responder::note_ports(Peer& peer, const ProbePacket& probe, Nanos now) {
  const RegisteredPeer::Ports ports{probe.return_port, static_cast<std::uint16_t>(probe.prober_number)};
  const auto known = peer.ports.find(ports);
  if (known != peer.ports.end()) {
    known->second = now;
  } else if (peer.ports.size() < kMaxPorts) {
    peer.ports.emplace(ports, now);
  }
}

void Responder::answer(const Arrival& arrival, const ProbePacket& probe, Peer& peer) {
  ProbePacket ack = probe;
  ack.type = PacketType::Ack;
  ack.tos = arrival.tos;
  ack.hop_limit = arrival.hop_limit;
  ack.received = peer.received.state();
  const Destination to{peer.gid, probe.prober_number};
  std::size_t bytes = arrival.payload.size();
  std::uint64_t cookie = kNoCookie;
  if (stamps_by_nic(transport_.rung())) {
    // Both acknowledgements together stay within the size of the probe; a probe too small for two gets one.
    if (bytes >= 2 * kProbeBytes && (!free_.empty() || seconds_.size() < kMaxSeconds)) {
      std::uint32_t slot = static_cast<std::uint32_t>(seconds_.size());
      if (free_.empty()) {
        seconds_.emplace_back();
      } else {
        slot = free_.back();
        free_.pop_back();
      }
      Second& second = seconds_[slot];
      ++second.generation;
      second.used = true;
      second.t3 = arrival.stamp;
      second.to = to;
      ack.second_follows = true;
      second.ack = ack;
      cookie = static_cast<std::uint64_t>(second.generation) << 32 | slot;
      bytes -= kProbeBytes;
    }
  } else {
    const auto now = transport_.now();
    const Nanos delay = now ? transport_.elapsed_ns(arrival.stamp, *now) : clock_.monotonic_ns() - arrival.handled_ns;
    ack.responder_delay_ns = static_cast<std::uint64_t>(std::max<Nanos>(delay, 0));
  }
  if (send(ack, bytes, to, cookie)) {
    ++answered_;
  } else if (cookie != kNoCookie) {
    const auto slot = static_cast<std::uint32_t>(cookie);
    seconds_[slot].used = false;
    free_.push_back(slot);
  }
}

bool Responder::send(const ProbePacket& ack, std::size_t bytes, const Destination& to, std::uint64_t cookie) {
  std::array<std::uint8_t, kMaxProbeBytes> buffer;
  const std::size_t size = encode(ack, bytes, key_, buffer);
  const auto sent = transport_.send(Role::Responder, ack.responder_number, ack.return_port, to,
                                    static_cast<std::uint8_t>((ack.traffic_class & ~3U) | kEct0),
                                    std::span(buffer).first(size), cookie);
  if (!sent) ++local_errors_;
  return sent.has_value();
}

void Responder::on_send_done(const SendDone& done) {
  if (done.cookie == kNoCookie) return;
  const auto slot = static_cast<std::uint32_t>(done.cookie);
  if (slot >= seconds_.size()) return;
  Second& second = seconds_[slot];
  if (!second.used || second.generation != static_cast<std::uint32_t>(done.cookie >> 32)) return;
  second.used = false;
  free_.push_back(slot);
  if (!done.ok) {
    ++local_errors_;
    return;
  }
  ProbePacket ack = second.ack;
  ack.type = PacketType::Ack2;
  ack.second_follows = false;
  ack.responder_delay_ns = static_cast<std::uint64_t>(std::max<Nanos>(transport_.elapsed_ns(second.t3, done.stamp), 0));
  send(ack, kProbeBytes, second.to, kNoCookie);
}

std::vector<RegisteredPeer> Responder::registered() const {
  // A peer that was restarted holds two leases for a while.
  std::map<std::pair<std::string, std::string>, std::map<RegisteredPeer::Ports, Nanos>> peers;
  for (const auto& [session, peer] : peers_)
    peers[{peer.name, peer.gid.to_string()}].insert(peer.ports.begin(), peer.ports.end());
  std::vector<RegisteredPeer> list;
  for (const auto& [who, ports] : peers) {
    RegisteredPeer& out = list.emplace_back(RegisteredPeer{who.first, who.second, {}});
    for (const auto& [pair, at] : ports) out.ports.push_back(pair);
  }
  return list;
}

}  // namespace weft::probes
