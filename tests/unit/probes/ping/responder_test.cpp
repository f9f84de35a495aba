#include "probes/ping/responder.h"

#include <random>

#include "tests/unit/catch.h"
#include "tests/unit/probes/ping/fake_transport.h"

using namespace weft;
using namespace weft::probes;
using weft::test::FakeTransport;
using weft::test::Sent;

namespace {

struct Fixture {
  FakeClock clock;
  FabricKey key;
  FakeTransport transport;
  RejectCounters rejects;
  ResponderOptions options;
  std::unique_ptr<Responder> responder;
  const model::Gid peer = *model::Gid::parse("10.0.1.2");
  std::uint64_t sequence = 0;

  Fixture() {
    options.name = "h3/rxe0";
    options.epoch = 5;
    transport.stamp_rung = model::TimestampRung::Software;
    transport.address = *model::Gid::parse("10.0.3.2");
    transport.add_lane(Role::Responder, 33, 51001);
    transport.add_lane(Role::Responder, 34, 51002);
  }
  void start() { responder = std::make_unique<Responder>(options, key, transport, clock, rejects); }

  HelloPacket hello(std::uint64_t session, WireTransport over = WireTransport::Rdma) const {
    HelloPacket packet;
    packet.session = session;
    packet.nonce = session + 1000;
    packet.gid = peer;
    packet.transport = over;
    packet.name = "h" + std::to_string(session) + "/rxe0";
    return packet;
  }
  HelloPacket enlist(std::uint64_t session) { return responder->register_peer(hello(session), clock.monotonic_ns()); }
  ProbePacket probe(std::uint64_t session) {
    ProbePacket packet;
    packet.session = session;
    packet.sequence = ++sequence;
    packet.epoch = 5;
    packet.prober_number = 17;
    packet.responder_number = 34;
    packet.forward_port = 50001;
    packet.return_port = 51002;
    packet.traffic_class = 0x68;
    return packet;
  }
  void deliver(const ProbePacket& packet, std::size_t size = kProbeBytes, std::optional<model::Gid> from = {},
               Stamp stamp = 1) {
    std::vector<std::uint8_t> bytes(size);
    REQUIRE(encode(packet, size, key, bytes) == size);
    Arrival arrival;
    arrival.role = Role::Responder;
    arrival.source = {from.value_or(peer), 17};
    arrival.payload = bytes;
    arrival.tos = 0x6b;
    arrival.hop_limit = 61;
    arrival.stamp = stamp;
    arrival.handled_ns = clock.monotonic_ns();
    responder->on_arrival(arrival);
  }
  ProbePacket answer(std::size_t index) const { return *parse_probe(transport.sent.at(index).payload, key); }
};

}  // namespace

TEST_CASE("responder: answers nobody who has not said hello", "[ping]") {
  Fixture f;
  f.start();
  f.deliver(f.probe(1));
  CHECK(f.rejects.of(Reject::UnregisteredPeer) == 1);
  CHECK(f.transport.sent.empty());
}

TEST_CASE("responder: a lease runs out, and a renewal keeps it", "[ping]") {
  Fixture f;
  f.start();
  CHECK_FALSE(f.enlist(1).known);
  f.clock.advance(50 * kSecond);
  CHECK(f.enlist(1).known);
  f.clock.advance(50 * kSecond);
  f.deliver(f.probe(1));
  CHECK(f.transport.sent.size() == 1);
  f.clock.advance(11 * kSecond);
  f.deliver(f.probe(1));
  CHECK(f.rejects.of(Reject::UnregisteredPeer) == 1);
  CHECK(f.responder->peers() == 1);
  f.responder->expire(f.clock.monotonic_ns());
  CHECK(f.responder->peers() == 0);
  CHECK_FALSE(f.enlist(1).known);
}

TEST_CASE("responder: over UDP the pairs of ports that are answered on are told, of late ones only and within a bound",
          "[ping]") {
  Fixture f;
  f.options.transport = WireTransport::Udp;
  f.start();
  const auto enlist = [&] { f.responder->register_peer(f.hello(1, WireTransport::Udp), f.clock.monotonic_ns()); };
  const auto told = [&] { return f.responder->registered().at(0).ports; };
  enlist();
  CHECK(told().empty());
  f.deliver(f.probe(1));
  f.deliver(f.probe(1));
  CHECK(told() == std::vector<RegisteredPeer::Ports>{{51002, 17}});
  ProbePacket other = f.probe(1);
  other.prober_number = 50'000;
  for (int seconds = 0; seconds < 150; seconds += 10) {
    f.clock.advance(10 * kSecond);
    enlist();
    other.sequence = ++f.sequence;
    f.deliver(other);
    f.responder->expire(f.clock.monotonic_ns());
  }
  CHECK(told() == std::vector<RegisteredPeer::Ports>{{51002, 50'000}});
  for (std::uint32_t port = 1; port <= 100; ++port) {
    f.clock.advance(100 * kMillisecond);
    other.prober_number = port;
    other.sequence = ++f.sequence;
    f.deliver(other);
  }
  CHECK(told().size() == 64);
  CHECK(f.responder->answered() == 2 + 15 + 100);
}

TEST_CASE("responder: a probe from another address than the hello named is not answered (perftest 64: over a VF)",
          "[ping]") {
  Fixture f;
  f.start();
  f.enlist(1);
  f.deliver(f.probe(1), kProbeBytes, *model::Gid::parse("10.0.9.9"));
  CHECK(f.rejects.of(Reject::UnregisteredPeer) == 1);
  CHECK(f.transport.sent.empty());
  // On InfiniBand a packet without a global header names none; the key must do.
  f.deliver(f.probe(1), kProbeBytes, model::Gid{});
  CHECK(f.transport.sent.size() == 1);
  CHECK(f.transport.sent[0].to.gid == f.peer);
}

TEST_CASE("responder: probes seen before, of old queue pairs, damaged or none at all are refused", "[ping]") {
  Fixture f;
  f.start();
  f.enlist(1);
  const ProbePacket first = f.probe(1);
  f.deliver(first);
  f.deliver(first);
  CHECK(f.rejects.of(Reject::Replayed) == 1);
  ProbePacket far_ahead = f.probe(1);
  far_ahead.sequence = 5000;
  f.deliver(far_ahead);
  f.deliver(first);  // so old that it cannot be told from a replay
  CHECK(f.rejects.of(Reject::Replayed) == 2);
  ProbePacket stale = f.probe(1);
  stale.epoch = 4;
  f.deliver(stale);
  CHECK(f.rejects.of(Reject::StaleEpoch) == 1);
  ProbePacket ack = f.probe(1);
  ack.type = PacketType::Ack;
  ack.received = {1, ack.sequence, {1, 0}};
  f.deliver(ack);
  CHECK(f.rejects.of(Reject::NotForUs) == 1);
  Arrival garbage;
  const std::vector<std::uint8_t> bytes(200, 1);
  garbage.payload = bytes;
  f.responder->on_arrival(garbage);
  CHECK(f.rejects.of(Reject::BadMagic) == 1);
  CHECK(f.transport.sent.size() == 2);
}

TEST_CASE("responder: whatever authentic packets say, they are answered with no more bytes or counted (perftest 64)",
          "[ping][property]") {
  Fixture f;
  f.transport.stamp_rung = GENERATE(model::TimestampRung::NicTicks, model::TimestampRung::Software);
  f.options.max_peers = 8;
  f.start();
  std::mt19937_64 random(64);
  const auto any = [&](std::uint64_t most) { return random() % (most + 1); };
  std::size_t received = 0, answered = 0;
  for (int round = 0; round < 5000; ++round) {
    HelloPacket hello = f.hello(1 + any(12), any(3) == 0 ? WireTransport::Udp : WireTransport::Rdma);
    for (auto& byte : hello.gid.raw) byte = static_cast<std::uint8_t>(random());
    if (any(1) == 0) hello.gid = f.peer;
    for (std::uint64_t i = any(kMaxHelloLanes); i > 0; --i) {
      hello.lanes.push_back({static_cast<std::uint32_t>(random()), static_cast<std::uint16_t>(random())});
    }
    if (any(9) == 0) {
      const HelloPacket answer = f.responder->register_peer(hello, f.clock.monotonic_ns());
      std::vector<std::uint8_t> bytes(kHelloBytes);
      CHECK(encode(answer, f.key, bytes) == kHelloBytes);
    }
    ProbePacket probe = f.probe(1 + any(12));
    probe.sequence = any(2) == 0 ? 1 + any(f.sequence + 20) : f.sequence;
    probe.epoch = any(5) == 0 ? random() : 5;
    probe.prober_number = static_cast<std::uint32_t>(random());
    probe.responder_number = static_cast<std::uint32_t>(random());
    probe.return_port = static_cast<std::uint16_t>(random());
    const std::size_t size = kProbeBytes + any(kMaxProbeBytes - kProbeBytes);
    f.transport.sent.clear();
    f.deliver(probe, size, any(3) == 0 ? std::optional(hello.gid) : std::nullopt);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < f.transport.sent.size(); ++i) {
      bytes += f.transport.sent[i].payload.size();
      if (any(1) == 0) f.responder->on_send_done({Role::Responder, f.transport.sent[i].cookie, true, random(), {}});
    }
    CHECK(bytes <= size);
    ++received;
    answered += f.transport.sent.empty() ? 0 : 1;
    f.clock.advance(static_cast<Nanos>(any(20)) * kMillisecond);
    f.responder->expire(f.clock.monotonic_ns());
  }
  CHECK(f.responder->peers() <= 8);
  CHECK(answered > 100);
  CHECK(answered + f.rejects.total() == received);
}

TEST_CASE("responder: a peer is answered at a bounded rate, and others do not suffer", "[ping]") {
  Fixture f;
  f.options.answer_rate_per_peer = 100;
  f.start();
  f.enlist(1);
  f.enlist(2);
  for (int i = 0; i < 1000; ++i) f.deliver(f.probe(1));
  const auto burst = f.transport.sent.size();
  CHECK(burst <= 20);
  CHECK(f.rejects.of(Reject::Rate) == 1000 - burst);
  f.deliver(f.probe(2));
  CHECK(f.transport.sent.size() == burst + 1);
  f.clock.advance(kSecond);
  f.deliver(f.probe(1));
  CHECK(f.transport.sent.size() == burst + 2);
}

TEST_CASE("responder: a full table refuses in words until a lease runs out", "[ping]") {
  Fixture f;
  f.options.max_peers = 2;
  f.start();
  CHECK(f.enlist(1).refusal == Refusal::None);
  f.clock.advance(30 * kSecond);
  CHECK(f.enlist(2).refusal == Refusal::None);
  const HelloPacket refused = f.enlist(3);
  CHECK(refused.refusal == Refusal::TableFull);
  CHECK(refused.lanes.empty());
  CHECK(f.enlist(1).known);
  f.clock.advance(61 * kSecond);
  CHECK(f.enlist(3).refusal == Refusal::None);
}

TEST_CASE("responder: a peer that probes over another transport is told", "[ping]") {
  Fixture f;
  f.start();
  const auto answer = f.responder->register_peer(f.hello(1, WireTransport::Udp), f.clock.monotonic_ns());
  CHECK(answer.refusal == Refusal::OtherTransport);
  CHECK(f.responder->peers() == 0);
}

TEST_CASE("responder: a hello is answered with lanes, epoch, lease and the question's nonce", "[ping]") {
  Fixture f;
  f.start();
  const HelloPacket answer = f.enlist(1);
  CHECK(answer.type == PacketType::HelloAck);
  CHECK(answer.session == 1);
  CHECK(answer.nonce == 1001);
  CHECK(answer.epoch == 5);
  CHECK(answer.gid == f.transport.address);
  CHECK(answer.lease_ms == 60000);
  CHECK(answer.lanes == std::vector<HelloLane>{{33, 51001}, {34, 51002}});
  CHECK_FALSE(answer.any_port);
  CHECK_FALSE(answer.two_acks);
  CHECK(f.responder->registered() == std::vector<RegisteredPeer>{{"h1/rxe0", "10.0.1.2", {}}});
  f.transport.stamp_rung = model::TimestampRung::NicTicks;
  f.transport.responder_ports = {51001, 51002, 51003};
  CHECK(f.enlist(2).two_acks);
  CHECK(f.enlist(2).any_port);
  CHECK(f.enlist(2).lanes.size() == 3);
}

TEST_CASE("responder: the acknowledgement leaves by the lane and port asked for and says what arrived", "[ping]") {
  Fixture f;
  f.start();
  f.enlist(1);
  f.deliver(f.probe(1), 300);
  REQUIRE(f.transport.sent.size() == 1);
  const Sent& sent = f.transport.sent[0];
  CHECK(sent.lane_number == 34);
  CHECK(sent.source_port == 51002);
  CHECK(sent.to == Destination{f.peer, 17});
  CHECK(sent.traffic_class == 0x6a);
  CHECK(sent.payload.size() == 300);
  const ProbePacket ack = f.answer(0);
  CHECK(ack.type == PacketType::Ack);
  CHECK(ack.tos == 0x6b);
  CHECK(ack.hop_limit == 61);
  CHECK(ack.responder_delay_ns == 0);
  CHECK_FALSE(ack.second_follows);
}

TEST_CASE("responder: its count and map tell which probes came", "[ping]") {
  Fixture f;
  f.start();
  f.enlist(1);
  for (std::uint64_t s = 1; s <= 300; ++s) {
    ProbePacket probe = f.probe(1);
    f.clock.advance(10 * kMillisecond);
    if (s % 7 != 0) f.deliver(probe);
  }
  const ProbePacket last = f.answer(f.transport.sent.size() - 1);
  CHECK(last.received.count == 300 - 300 / 7);
  CHECK(last.received.highest == 300);
  for (std::uint64_t s = 300 - kReceivedMapBits + 1; s <= 300; ++s) CHECK(last.received.has(s) == (s % 7 != 0));
}

TEST_CASE("responder: with NIC stamps the second acknowledgement carries T4 - T3", "[ping]") {
  Fixture f;
  f.transport.stamp_rung = model::TimestampRung::NicTicks;
  f.start();
  f.enlist(1);
  f.deliver(f.probe(1), 2 * kProbeBytes, {}, 5000);
  REQUIRE(f.transport.sent.size() == 1);
  CHECK(f.answer(0).second_follows);
  CHECK_FALSE(f.answer(0).responder_delay_ns);
  const std::uint64_t cookie = f.transport.sent[0].cookie;
  f.responder->on_send_done({Role::Responder, cookie, true, 5750, {}});
  REQUIRE(f.transport.sent.size() == 2);
  CHECK(f.answer(1).type == PacketType::Ack2);
  CHECK(f.answer(1).responder_delay_ns == 750);
  // Once only, whatever completions come (rdma-core PR 1512).
  f.responder->on_send_done({Role::Responder, cookie, true, 5800, {}});
  f.responder->on_send_done({Role::Responder, 0, true, 5800, {}});
  f.responder->on_send_done({Role::Responder, ~std::uint64_t{0}, true, 5800, {}});
  CHECK(f.transport.sent.size() == 2);
}

TEST_CASE("responder: a probe too small for two acknowledgements gets one", "[ping]") {
  Fixture f;
  f.transport.stamp_rung = model::TimestampRung::NicTicks;
  f.start();
  f.enlist(1);
  f.deliver(f.probe(1), 2 * kProbeBytes - 1);
  REQUIRE(f.transport.sent.size() == 1);
  CHECK_FALSE(f.answer(0).second_follows);
  CHECK(f.transport.sent[0].payload.size() == 2 * kProbeBytes - 1);
}

TEST_CASE("responder: completions that never come do not stop it from answering", "[ping]") {
  Fixture f;
  f.options.answer_rate_per_peer = 1e9;
  f.transport.stamp_rung = model::TimestampRung::NicTicks;
  f.start();
  f.enlist(1);
  for (int i = 0; i < 5000; ++i) f.deliver(f.probe(1), 2 * kProbeBytes);
  CHECK(f.transport.sent.size() == 5000);
  CHECK(f.answer(0).second_follows);
  CHECK_FALSE(f.answer(4999).second_follows);
}

TEST_CASE("responder: an acknowledgement that cannot be sent is a local error and leaves no slot behind", "[ping]") {
  Fixture f;
  f.options.answer_rate_per_peer = 1e9;
  f.transport.stamp_rung = model::TimestampRung::NicTicks;
  f.start();
  f.enlist(1);
  f.transport.refuse = make_error(Error::Kind::Transient, "send queue full");
  for (int i = 0; i < 5000; ++i) f.deliver(f.probe(1), 2 * kProbeBytes);
  CHECK(f.responder->local_errors() == 5000);
  CHECK(f.responder->answered() == 0);
  f.transport.refuse.reset();
  f.deliver(f.probe(1), 2 * kProbeBytes);
  CHECK(f.answer(0).second_follows);
  f.responder->on_send_done({Role::Responder, f.transport.sent[0].cookie, false, 0, "flushed"});
  CHECK(f.transport.sent.size() == 1);
  CHECK(f.responder->local_errors() == 5001);
}
