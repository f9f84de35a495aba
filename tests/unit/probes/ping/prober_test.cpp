#include "probes/ping/prober.h"

#include <cerrno>
#include <set>

#include "tests/unit/catch.h"
#include "tests/unit/probes/ping/simulation.h"

using namespace weft;
using namespace weft::probes;
using weft::test::Sent;
using weft::test::Simulation;

namespace {

bool is_probe(const ProbePacket& packet) { return packet.type == PacketType::Probe; }
bool is_first_ack(const ProbePacket& packet) { return packet.type == PacketType::Ack; }

ResponderOptions restarted(std::uint64_t epoch) {
  ResponderOptions options;
  options.name = "h3/rxe0";
  options.epoch = epoch;
  return options;
}

}  // namespace

TEST_CASE("prober: a probe that is lost and one whose acknowledgement is lost are told apart", "[ping]") {
  Simulation sim;
  sim.drop = [](const ProbePacket& packet) {
    if (is_probe(packet)) return packet.sequence % 10 == 3;
    return packet.sequence % 10 == 6 || packet.sequence % 10 == 7;
  };
  sim.target(20);
  sim.run(10 * kSecond - kMillisecond);
  sim.stop();
  sim.run(2 * kSecond);
  const auto total = sim.total();
  CHECK(total.sent == 200);
  CHECK(total.forward.lost == 20);
  CHECK(total.back.lost == 40);
  CHECK(total.lost_unknown == 0);
  CHECK(total.acked == 140);
  for (const ProbeOutcome& outcome : sim.outcomes) {
    if (outcome.result == ProbeResult::Timeout) CHECK(outcome.reached == (outcome.sequence % 10 != 3));
  }
}

TEST_CASE("prober: a tail that no later acknowledgement tells about has no direction", "[ping]") {
  Simulation sim;
  sim.target(20);
  sim.run(kSecond);
  sim.drop = [](const ProbePacket&) { return true; };
  sim.run(kSecond);
  sim.stop();
  sim.run(2 * kSecond);
  const auto total = sim.total();
  CHECK(total.lost_unknown == total.sent - total.acked);
  CHECK(total.lost_unknown >= 19);
  CHECK(total.forward.lost + total.back.lost == 0);
}

TEST_CASE("prober: a loss gets its direction from a later acknowledgement while its window is open", "[ping]") {
  Simulation sim;
  sim.target(1);
  // At one probe a second the next acknowledgement comes after the timeout of the last.
  sim.drop = [](const ProbePacket& packet) { return is_probe(packet) && packet.sequence == 3; };
  sim.run(6 * kSecond);
  const auto total = sim.total();
  CHECK(total.forward.lost == 1);
  CHECK(total.lost_unknown == 0);
}

TEST_CASE("prober: reordering between paths does not move losses", "[ping]") {
  Simulation sim;
  sim.extra = [](const ProbePacket& packet) {
    return is_probe(packet) && packet.sequence % 2 == 0 ? 200 * kMillisecond : 0;
  };
  // Both acknowledgements of one probe are lost together.
  sim.drop = [](const ProbePacket& packet) { return !is_probe(packet) && packet.sequence % 8 == 0; };
  sim.target(40);
  sim.run(4 * kSecond);
  sim.stop();
  sim.run(2 * kSecond);
  const auto total = sim.total();
  CHECK(total.forward.lost == 0);
  CHECK(total.back.lost + total.lost_unknown == 160 / 8);
  CHECK(total.lost_unknown <= 1);
}

TEST_CASE("prober: an acknowledgement that comes before the send completion is matched (rpingmesh PR 29)", "[ping]") {
  Simulation sim;
  sim.done_delivery_ns = 50 * kMillisecond;
  sim.target(10);
  sim.run(2 * kSecond);
  CHECK(sim.count(ProbeResult::Ok) >= 19);
  CHECK(sim.count(ProbeResult::Timeout) == 0);
  for (const auto& outcome : sim.outcomes) CHECK(*outcome.rtt_ns == 5 * kMillisecond);
}

TEST_CASE("prober: an acknowledgement that comes before send() returns is matched (rpingmesh PR 29)", "[ping]") {
  Simulation sim;
  sim.near.stamp_rung = sim.far.stamp_rung = model::TimestampRung::Software;
  sim.target(10);
  std::vector<std::uint8_t> answer;
  sim.near.on_send = [&](const Sent& sent) {
    ProbePacket ack = *parse_probe(sent.payload, sim.key);
    ack.type = PacketType::Ack;
    ack.responder_delay_ns = 0;
    ack.received = {ack.sequence, ack.sequence, {~std::uint64_t{0}, ~std::uint64_t{0}}};
    answer.resize(kProbeBytes);
    REQUIRE(encode(ack, kProbeBytes, sim.key, answer) == kProbeBytes);
    sim.deliver_to_prober(answer);
    sim.at(sim.clock.monotonic_ns(), [&sim, sent] {
      sim.prober->on_send_done({Role::Prober, sent.cookie, true, sim.near.stamp_mask & 0, {}});
    });
  };
  sim.run(kSecond - 1);
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.acked == 10);
  CHECK(total.sent == 10);
}

TEST_CASE("prober: a completion that never came blocks nothing and is never taken for another's (rpingmesh PR 29)",
          "[ping]") {
  Simulation sim;
  std::set<std::uint64_t> cookies;
  std::uint64_t withheld = 0;
  sim.lose_completion = [&](const Sent& sent) {
    CHECK(cookies.insert(sent.cookie).second);
    if (cookies.size() == 5) withheld = sent.cookie;
    return cookies.size() == 5;
  };
  sim.drop = [](const ProbePacket& packet) { return packet.sequence == 5; };
  sim.target(10);
  sim.run(3 * kSecond);
  // Not known to have left this host: that accuses nobody.
  CHECK(sim.count(ProbeResult::LocalError) == 1);
  CHECK(sim.count(ProbeResult::Timeout) == 0);
  const std::size_t before = sim.outcomes.size();
  sim.prober->on_send_done({Role::Prober, withheld, true, 1, {}});
  CHECK(sim.outcomes.size() == before);
  sim.run(kSecond);
  CHECK(sim.count(ProbeResult::Ok) >= 38);
}

TEST_CASE("prober: completions nobody waits for are ignored (rdma-core PR 1512)", "[ping]") {
  Simulation sim;
  sim.target(10);
  sim.run(kSecond);
  const auto before = sim.count(ProbeResult::Ok);
  for (const std::uint64_t cookie : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    sim.prober->on_send_done({Role::Prober, cookie, true, 1, {}});
    sim.prober->on_send_done({Role::Prober, cookie, false, 1, "flushed"});
  }
  CHECK(sim.count(ProbeResult::Ok) == before);
  CHECK(sim.total().local_error == 0);
}

TEST_CASE("prober: clocks of different hosts and of process and device are never mixed (rpingmesh PR 27)", "[ping]") {
  Simulation sim;
  sim.done_delivery_ns = 30 * kMicrosecond;
  sim.target(10);
  sim.run(kSecond);
  sim.clock.step_wall(-86400 * kSecond);
  sim.run(kSecond);
  REQUIRE(sim.count(ProbeResult::Ok) == sim.outcomes.size());
  for (const auto& outcome : sim.outcomes) {
    CHECK(*outcome.rtt_ns == 5 * kMillisecond);
    CHECK(*outcome.responder_delay_ns == 400 * kMicrosecond);
    CHECK(*outcome.prober_delay_ns == 100 * kMicrosecond);
  }
  CHECK(sim.total().rung == model::TimestampRung::NicTicks);
}

TEST_CASE("prober: a result says the worse rung of its two ends (perftest PR 286)", "[ping]") {
  Simulation sim;
  sim.far.stamp_rung = model::TimestampRung::Software;
  sim.target(10);
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.acked >= 9);
  CHECK(total.rung == model::TimestampRung::Software);
}

TEST_CASE("prober: packet clocks that wrap are subtracted modulo their width", "[ping]") {
  Simulation sim;
  sim.near.stamp_mask = sim.far.stamp_mask = (std::uint64_t{1} << 30) - 1;  // wraps about once a second
  sim.target(50);
  sim.run(5 * kSecond);
  CHECK(sim.count(ProbeResult::Ok) == sim.outcomes.size());
  for (const auto& outcome : sim.outcomes) CHECK(*outcome.rtt_ns == 5 * kMillisecond);
}

TEST_CASE("prober: a clock a thousand times off is a bad timestamp, not a round trip (libxlio PR 640)", "[ping]") {
  Simulation sim;
  sim.target(10);
  sim.far.on_send = nullptr;
  sim.near.on_send = [&](const Sent& sent) {
    const Nanos now = sim.clock.monotonic_ns();
    sim.at(now, [&sim, sent] { sim.prober->on_send_done({Role::Prober, sent.cookie, true, 1'000, {}}); });
    sim.at(now + 5 * kMillisecond, [&sim, sent] {
      ProbePacket ack = *parse_probe(sent.payload, sim.key);
      ack.type = PacketType::Ack;
      ack.responder_delay_ns = 0;
      ack.received = {1, ack.sequence, {1, 0}};
      std::vector<std::uint8_t> bytes(kProbeBytes);
      REQUIRE(encode(ack, kProbeBytes, sim.key, bytes) == kProbeBytes);
      Arrival arrival;
      arrival.payload = bytes;
      arrival.stamp = 1'000 + 5 * kSecond;
      arrival.handled_ns = sim.clock.monotonic_ns();
      sim.prober->on_arrival(arrival);
    });
  };
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.bad_timestamp == total.acked);
  CHECK(total.acked >= 9);
  CHECK_FALSE(total.rtt_max_ns);
  CHECK(sim.count(ProbeResult::BadTimestamp) == total.acked);
}

TEST_CASE("prober: a round trip a little below zero is at the clock's resolution, one far below is wrong (rpingmesh)",
          "[ping]") {
  const auto [rung, too_late_ns, result] = GENERATE(table<model::TimestampRung, Nanos, ProbeResult>({
      {model::TimestampRung::Software, 900 * kMicrosecond, ProbeResult::Ok},
      {model::TimestampRung::Software, 2 * kMillisecond, ProbeResult::BadTimestamp},
      {model::TimestampRung::KernelSoftware, 100 * kMicrosecond, ProbeResult::Ok},
      {model::TimestampRung::KernelSoftware, 300 * kMicrosecond, ProbeResult::BadTimestamp},
      {model::TimestampRung::NicTicks, 4 * kMicrosecond, ProbeResult::Ok},
      {model::TimestampRung::NicTicks, 6 * kMicrosecond, ProbeResult::BadTimestamp},
  }));
  Simulation sim;
  sim.near.stamp_rung = sim.far.stamp_rung = rung;
  if (rung == model::TimestampRung::KernelSoftware) sim.near.transport_name = sim.far.transport_name = "udp";
  sim.target(10);
  // The stamp of sending is taken later than the answer came.
  sim.near.on_send = [&, late = too_late_ns](const Sent& sent) {
    sim.at(sim.clock.monotonic_ns(), [&sim, sent, late] {
      ProbePacket ack = *parse_probe(sent.payload, sim.key);
      ack.type = PacketType::Ack;
      ack.responder_delay_ns = 0;
      ack.received = {1, ack.sequence, {1, 0}};
      std::vector<std::uint8_t> bytes(kProbeBytes);
      REQUIRE(encode(ack, kProbeBytes, sim.key, bytes) == kProbeBytes);
      Arrival arrival;
      arrival.payload = bytes;
      arrival.stamp = 1'000'000'000;
      arrival.handled_ns = sim.clock.monotonic_ns();
      sim.prober->on_arrival(arrival);
      sim.prober->on_send_done({Role::Prober, sent.cookie, true, 1'000'000'000 + static_cast<Stamp>(late), {}});
    });
  };
  sim.run(kSecond);
  REQUIRE_FALSE(sim.outcomes.empty());
  for (const auto& outcome : sim.outcomes) {
    CHECK(outcome.result == result);
    if (result == ProbeResult::Ok) CHECK(outcome.rtt_ns == Nanos{0});
  }
  const auto total = sim.total();
  CHECK(total.acked == total.sent);
}

TEST_CASE("prober: overlapping probes: timeout longer than interval (cloudprober 668)", "[ping]") {
  Simulation sim;
  sim.forward_ns = 300 * kMillisecond;
  sim.target(100);
  sim.run(2 * kSecond);
  sim.stop();
  sim.run(kSecond);
  CHECK(sim.count(ProbeResult::Ok) == 200);
  for (const auto& outcome : sim.outcomes) CHECK(*outcome.rtt_ns == 303 * kMillisecond);
}

TEST_CASE("prober: a late reply is recorded with its round trip, and lost only once (cloudprober 672)", "[ping]") {
  Simulation sim;
  sim.extra = [](const ProbePacket& packet) {
    return is_probe(packet) && packet.sequence == 4 ? 700 * kMillisecond : 0;
  };
  sim.target(10);
  sim.run(3 * kSecond);
  REQUIRE(sim.count(ProbeResult::Late) == 1);
  REQUIRE(sim.count(ProbeResult::Timeout) == 1);
  const auto total = sim.total();
  CHECK(total.late == 1);
  // Neither direction lost it.
  CHECK(total.lost_unknown == 1);
  CHECK(total.forward.lost + total.back.lost == 0);
  CHECK(total.duplicate == 0);
}

TEST_CASE("prober: repeated acknowledgements are counted apart and answer nothing twice", "[ping]") {
  Simulation sim;
  sim.copies = 2;
  sim.target(10);
  sim.run(kSecond - 1);
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.acked == 10);
  CHECK(total.sent == 10);
  CHECK(total.duplicate == 20);  // of both acknowledgements
}

TEST_CASE("prober: one acknowledgement of two says that the path is alive, not how fast", "[ping]") {
  Simulation sim;
  SECTION("the second lost") {
    sim.drop = [](const ProbePacket& packet) { return packet.type == PacketType::Ack2; };
  }
  SECTION("the first lost") { sim.drop = is_first_ack; }
  sim.target(10);
  sim.run(kSecond - 1);
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.sent == 10);
  CHECK(total.acked == 10);
  CHECK(total.acked_without_times == 10);
  CHECK_FALSE(total.rtt_max_ns);
  CHECK(sim.count(ProbeResult::AckWithoutTimes) == 10);
}

TEST_CASE("prober: one that overslept accuses nobody", "[ping]") {
  Simulation sim;
  sim.target(10);
  sim.run(2 * kSecond);
  const std::size_t ok = sim.count(ProbeResult::Ok);
  sim.drop = [](const ProbePacket&) { return true; };
  sim.run(200 * kMillisecond);
  sim.stall(10 * kSecond);
  sim.drop = [](const ProbePacket&) { return false; };
  sim.run(2 * kSecond);
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.overslept >= 2);
  CHECK(total.forward.lost + total.back.lost + total.lost_unknown == 0);
  CHECK(sim.count(ProbeResult::Ok) > ok + 15);
  // The turns of those ten seconds are skipped, not made up for.
  CHECK(total.sent + total.overslept < 50);
}

TEST_CASE("prober: a process that is late again and again sees what is lost all the same", "[ping]") {
  Simulation sim;
  std::uint64_t probes = 0;
  sim.drop = [&](const ProbePacket& packet) { return packet.type == PacketType::Probe && ++probes % 4 == 0; };
  sim.target(20);
  const auto [pause, every] = GENERATE(table<Nanos, Nanos>({{60 * kMillisecond, 250 * kMillisecond},
                                                            {150 * kMillisecond, 400 * kMillisecond},
                                                            {300 * kMillisecond, 1500 * kMillisecond}}));
  for (const Nanos end = sim.clock.monotonic_ns() + 60 * kSecond; sim.clock.monotonic_ns() < end;) {
    sim.run(every - pause);
    sim.stall(pause);
  }
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  INFO(pause << ": " << total.sent << " counted, " << total.overslept << " overslept");
  // Whatever is not counted: of what is, a quarter is lost.
  REQUIRE(total.sent >= 50);
  CHECK(total.forward.lost + total.lost_unknown >= total.sent / 5);
  CHECK(total.forward.lost + total.lost_unknown <= total.sent * 3 / 10);
  if (pause < 200 * kMillisecond) CHECK(total.overslept == 0);
}

TEST_CASE("prober: where software takes the stamps, one that was late for a moment is answered, without times",
          "[ping]") {
  Simulation sim;
  sim.near.stamp_rung = sim.far.stamp_rung = model::TimestampRung::Software;
  sim.target(10);
  sim.run(kSecond + kMillisecond);
  sim.stall(100 * kMillisecond);
  sim.run(20 * kMillisecond);
  const auto total = sim.total();
  CHECK(total.overslept == 0);
  CHECK(total.acked_without_times >= 1);
  CHECK(total.sent == total.acked);
  CHECK(*total.rtt_max_ns < 10 * kMillisecond);
}

TEST_CASE("prober: after a pause there is no burst of probes that could accuse nobody, where that is asked for",
          "[ping]") {
  ProberOptions options;
  options.skip_late_ns = 150 * kMillisecond;
  Simulation sim(options);
  sim.target(2);
  sim.run(2 * kSecond);
  const auto before = sim.near.sent.size();
  // The CPU is had for a moment in each second, a little after the probes were due.
  for (int i = 0; i < 10; ++i) {
    sim.stall(950 * kMillisecond);
    sim.run(10 * kMillisecond);
  }
  CHECK(sim.near.sent.size() - before <= 4);
  CHECK(sim.prober->stats().throttled >= 6);
  const auto paused = sim.near.sent.size();
  sim.run(5 * kSecond);
  CHECK(sim.near.sent.size() - paused >= 9);
  CHECK(sim.total().lost_unknown == 0);
}

TEST_CASE("prober: an acknowledgement that waited while the process slept is still an answer", "[ping]") {
  Simulation sim;
  sim.target(10);
  sim.run(kSecond + 100 * kMicrosecond);
  const auto sent = sim.near.sent.size();
  sim.stall(3 * kSecond);
  sim.run(20 * kMillisecond);
  // NIC stamps do not care when they are read.
  CHECK(sim.count(ProbeResult::Timeout) == 0);
  CHECK(sim.count(ProbeResult::Ok) >= sent - 1);
}

TEST_CASE("prober: where software takes the stamps, a probe that overslept has no round trip", "[ping]") {
  Simulation sim;
  sim.near.stamp_rung = sim.far.stamp_rung = model::TimestampRung::Software;
  sim.target(10);
  sim.run(kSecond + kMillisecond);
  sim.stall(300 * kMillisecond);
  sim.run(20 * kMillisecond);
  const auto total = sim.total();
  CHECK(total.overslept >= 1);
  CHECK(total.sent == total.acked);
  CHECK(*total.rtt_max_ns < 10 * kMillisecond);
}

TEST_CASE("prober: what cannot be sent is a local error with its text, not a loss", "[ping]") {
  Simulation sim;
  sim.target(10);
  SECTION("refused at once") {
    sim.near.refuse = make_error(Error::Kind::Transient, "send queue full");
    sim.run(kSecond - 1);
    CHECK(sim.outcomes.at(0).error == "send queue full");
    CHECK(sim.prober->stats().sent == 0);
  }
  SECTION("refused by the device") {
    sim.near.on_send = [&](const Sent& sent) {
      sim.at(sim.clock.monotonic_ns(), [&sim, sent] {
        sim.prober->on_send_done({Role::Prober, sent.cookie, false, 0, "WR flushed"});
      });
    };
    sim.run(kSecond - 1);
    CHECK(sim.outcomes.at(0).error == "WR flushed");
  }
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.local_error == 10);
  CHECK(total.sent == 0);
  CHECK(sim.prober->stats().local_errors == 10);
  CHECK(sim.count(ProbeResult::LocalError) == 10);
}

TEST_CASE("prober: what was dropped before a small path MTU was learned is no loss (rdma-core 586)", "[ping]") {
  Simulation sim;
  const double per_second = GENERATE(10.0, 1.5);  // the first probe in flight, or already timed out
  sim.target(per_second);
  sim.drop = [](const ProbePacket& packet) { return is_probe(packet); };
  sim.run(700 * kMillisecond);
  REQUIRE_FALSE(sim.near.sent.empty());
  sim.near.refuse = errno_error(EMSGSIZE, "sending 1000 bytes (more than the path MTU)");
  sim.run(kSecond);
  sim.stop();
  sim.run(2 * kSecond);
  const auto total = sim.total();
  CHECK(total.sent == 0);
  CHECK(total.lost_unknown + total.forward.lost + total.back.lost == 0);
  CHECK(total.local_error + total.stale >= 2);
}

TEST_CASE("prober: what went to the queue pairs of a restarted responder is stale, not lost", "[ping]") {
  Simulation sim;
  sim.target(10);
  sim.run(5 * kSecond);
  sim.restart_responder(restarted(6));
  sim.run(750 * kMillisecond);
  REQUIRE_FALSE(sim.suspected.empty());
  CHECK(sim.far_rejects.of(Reject::UnregisteredPeer) > 0);
  CHECK_FALSE(sim.hello().known);
  sim.run(2 * kSecond);
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.stale >= 7);
  CHECK(total.forward.lost + total.back.lost + total.lost_unknown == 0);
  CHECK(total.acked >= 69);
}

TEST_CASE("prober: when the same responder answers the hello the loss is real", "[ping]") {
  Simulation sim;
  sim.target(10);
  sim.run(2 * kSecond);
  sim.drop = is_probe;
  sim.run(900 * kMillisecond);
  CHECK(sim.hello().known);
  sim.drop = [](const ProbePacket&) { return false; };
  sim.run(kSecond);
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.stale == 0);
  CHECK(total.forward.lost >= 8);
}

TEST_CASE("prober: three timeouts in a row or a second of silence make it ask again", "[ping]") {
  Simulation sim;
  SECTION("three in a row") {
    sim.target(50);
    sim.run(kSecond);
    sim.drop = [](const ProbePacket&) { return true; };
    sim.run(535 * kMillisecond);
    CHECK(sim.suspected.empty());
    sim.run(20 * kMillisecond);
    CHECK_FALSE(sim.suspected.empty());
  }
  SECTION("a second") {
    sim.target(1);
    sim.run(3 * kSecond + 100 * kMillisecond);
    sim.drop = [](const ProbePacket&) { return true; };
    sim.run(1500 * kMillisecond);
    CHECK(sim.suspected == std::vector<std::uint64_t>{Simulation::kSession});
  }
}

TEST_CASE("prober: CE marks, bleaching and hops are counted per direction", "[ping]") {
  Simulation sim;
  sim.target(10);
  sim.forward_header = {std::uint8_t{0x6b}, std::uint8_t{61}};  // CE
  sim.back_header = {std::uint8_t{0x68}, std::uint8_t{60}};     // Not-ECT though ECT(0) was sent
  sim.run(kSecond - 1);
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.forward.ce == 10);
  CHECK(total.forward.ecn_capable == 10);
  CHECK(total.forward.bleached == 0);
  CHECK(total.forward.hops == 3);
  CHECK(total.back.ce == 0);
  CHECK(total.back.ecn_capable == 0);
  CHECK(total.back.bleached == 10);
  CHECK(total.back.hops == 4);
}

TEST_CASE("prober: without an IP header ECN and hops are absent, never zero percent", "[ping]") {
  Simulation sim;
  sim.forward_header = sim.back_header = {std::nullopt, std::nullopt};
  sim.target(10);
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.acked >= 9);
  CHECK(total.forward == model::DirectionCounts{});
  CHECK(total.back == model::DirectionCounts{});
}

TEST_CASE("prober: probes and acknowledgements leave ECT(0) in the class asked for", "[ping]") {
  ProberOptions options;
  options.traffic_class = 0x69;  // the ECN bits of the option are not used
  Simulation sim(options);
  sim.target(10);
  sim.run(kSecond);
  for (const Sent& sent : sim.near.sent) CHECK(sent.traffic_class == 0x6a);
  for (const Sent& sent : sim.far.sent) CHECK(sent.traffic_class == 0x6a);
  CHECK_FALSE(sim.far.sent.empty());
}

TEST_CASE("prober: acknowledgements of strangers, other sessions and other ports match nothing (rpingmesh PR 9)",
          "[ping]") {
  Simulation sim;
  sim.target(10);
  sim.drop = [](const ProbePacket&) { return true; };
  sim.run(10 * kMillisecond);
  REQUIRE(sim.near.sent.size() == 1);
  const ProbePacket probe = *parse_probe(sim.near.sent[0].payload, sim.key);
  ProbePacket good = probe;
  good.type = PacketType::Ack;
  good.received = {1, good.sequence, {1, 0}};
  const auto deliver = [&](const ProbePacket& ack, const FabricKey& key) {
    std::vector<std::uint8_t> bytes(kProbeBytes);
    REQUIRE(encode(ack, kProbeBytes, key, bytes) == kProbeBytes);
    sim.deliver_to_prober(bytes);
  };
  ProbePacket other = good;
  other.session = 78;
  deliver(other, sim.key);
  CHECK(sim.near_rejects.of(Reject::UnknownSession) == 1);
  other = good;
  other.sequence = other.received.highest = 2;
  deliver(other, sim.key);
  other = good;
  other.forward_port = 1;
  deliver(other, sim.key);
  CHECK(sim.near_rejects.of(Reject::UnknownSequence) == 2);
  other = good;
  other.epoch = 4;
  deliver(other, sim.key);
  CHECK(sim.near_rejects.of(Reject::StaleEpoch) == 1);
  deliver(good, *FabricKey::parse(std::string(64, '1')));
  CHECK(sim.near_rejects.of(Reject::BadMac) == 1);
  deliver(probe, sim.key);
  CHECK(sim.near_rejects.of(Reject::NotForUs) == 1);
  CHECK(sim.total().acked == 0);
  deliver(good, sim.key);
  CHECK(sim.total().acked == 1);
}

TEST_CASE("prober: ports taken in turn cover every pair of own and responder's ports", "[ping]") {
  Simulation sim;
  sim.near.add_lane(Role::Prober, 18, 50002);
  sim.near.add_lane(Role::Prober, 19, 50003);
  sim.near.add_lane(Role::Prober, 20, 50004);
  sim.far.add_lane(Role::Responder, 34, 51002);
  sim.far.add_lane(Role::Responder, 35, 51003);
  sim.far.add_lane(Role::Responder, 36, 51004);
  sim.prober->refresh_ports();
  sim.target(16);
  sim.run(kSecond - 1);
  std::set<std::pair<std::uint16_t, std::uint16_t>> pairs;
  for (const Sent& sent : sim.near.sent) {
    const auto probe = parse_probe(sent.payload, sim.key);
    pairs.emplace(probe->forward_port, probe->return_port);
    CHECK(sent.source_port == probe->forward_port);
    CHECK(sent.lane_number == sent.source_port - 50001u + 17u);
    CHECK(probe->prober_number == sent.lane_number);
    CHECK(sent.to.number == probe->return_port - 51001u + 33u);
  }
  CHECK(pairs.size() == 16);
  for (const Sent& sent : sim.far.sent) CHECK(sent.lane_number == sent.source_port - 51001u + 33u);
}

TEST_CASE("prober: a path named by its ports is probed by them and no others (perftest PR 224, 279)", "[ping]") {
  Simulation sim;
  sim.near.add_lane(Role::Prober, 18, 50002);
  sim.far.add_lane(Role::Responder, 34, 51002);
  sim.prober->refresh_ports();
  sim.target(10, 50002, 51002);
  sim.run(2 * kSecond);
  REQUIRE(sim.count(ProbeResult::Ok) >= 19);
  for (const auto& outcome : sim.outcomes) CHECK(outcome.key == model::PathKey{"h1/rxe0", "h3/rxe0", 50002, 51002});
}

TEST_CASE("prober: an acknowledgement port the responder does not have is said, with those it has", "[ping]") {
  Simulation sim;
  sim.target(10, 0, 51009);
  sim.run(kSecond - 1);
  CHECK(sim.near.sent.empty());
  REQUIRE_FALSE(sim.outcomes.empty());
  CHECK(sim.outcomes[0].result == ProbeResult::LocalError);
  CHECK(sim.outcomes[0].error == "h3/rxe0 has no acknowledgement port 51009; it offers 51001");
  CHECK(sim.total().sent == 0);
  const std::string& said = sim.outcomes[0].error;
  CHECK(sim.prober->send_errors() == std::map<std::string, std::string>{{"h3/rxe0", said}});
  sim.target(10, 0, 51001);
  sim.run(kSecond);
  REQUIRE(sim.count(ProbeResult::Ok) > 0);
  CHECK(sim.prober->send_errors().empty());
}

TEST_CASE("prober: where ports are chosen by flow label, any acknowledgement port can be asked for", "[ping]") {
  Simulation sim;
  sim.far.responder_ports = {51001, 51002, 51003};
  sim.near.prober_ports = {50001, 50002};
  sim.prober->refresh_ports();
  sim.target(10, 50002, 60000);
  sim.run(kSecond);
  REQUIRE(sim.count(ProbeResult::Ok) >= 9);
  CHECK(sim.near.sent[0].lane_number == 17);
  CHECK(sim.near.sent[0].source_port == 50002);
  CHECK(sim.far.sent[0].lane_number == 33);
  CHECK(sim.far.sent[0].source_port == 60000);
}

TEST_CASE("prober: past its budget nothing is sent, and what was held back is counted", "[ping]") {
  ProberOptions options;
  options.max_probes_per_s = 20;
  SECTION("packets") {}
  SECTION("share of a slow link") {
    options.max_probes_per_s = 1000;
    options.max_link_share = 0.001;
    // 20 probes of 208 + 86 bytes a second
    options.rate_bits_per_s = 20 * (208 + 86) * 8 * 1000;
  }
  Simulation sim(options);
  sim.target(100);
  sim.run(10 * kSecond);
  sim.stop();
  sim.run(kSecond);
  const auto total = sim.total();
  CHECK(total.sent <= 10 * 20 + 30);
  CHECK(total.sent >= 10 * 20 - 5);
  CHECK(total.sent + total.throttled == 1000);
  CHECK(sim.prober->stats().throttled == total.throttled);
}

TEST_CASE("prober: with nothing to probe there is nothing to wake for (rpingmesh PR 11)", "[ping]") {
  Simulation sim;
  CHECK_FALSE(sim.prober->next_deadline());
  sim.target(10);
  sim.run(kSecond);
  sim.stop();
  sim.run(kSecond);
  CHECK_FALSE(sim.prober->next_deadline());
  sim.target(10);
  sim.prober->remove(Simulation::kSession);
  CHECK_FALSE(sim.prober->next_deadline());
}

TEST_CASE("prober: no probe leaves before its responder is known, none after it refused", "[ping]") {
  Simulation sim;
  sim.prober->set_target(Simulation::kSession, {"rxe0", "h3/rxe0", "10.0.3.2", 0, {{0, 0, 10}}},
                         sim.clock.monotonic_ns());
  sim.run(kSecond);
  CHECK(sim.near.sent.empty());
  sim.hello();
  sim.run(kSecond);
  const auto sent = sim.near.sent.size();
  CHECK(sent >= 9);
  sim.prober->set_responder(Simulation::kSession, {}, true, sim.clock.monotonic_ns());
  sim.run(kSecond);
  CHECK(sim.near.sent.size() == sent);
}

TEST_CASE("prober: the whole answer to a probe is never more bytes than the probe", "[ping]") {
  const auto rung = GENERATE(model::TimestampRung::NicWallClock, model::TimestampRung::Software);
  const std::size_t payload = GENERATE(std::size_t{0}, std::size_t{150}, std::size_t{1024}, std::size_t{9000});
  ProberOptions options;
  options.payload_bytes = payload;
  Simulation sim(options);
  sim.near.stamp_rung = sim.far.stamp_rung = rung;
  sim.target(10);
  sim.run(kSecond - 1);
  sim.stop();
  sim.run(kSecond);
  CHECK(sim.count(ProbeResult::Ok) == 10);
  CHECK(sim.answer_bytes == sim.probe_bytes);
  CHECK(sim.probe_bytes >= 10 * std::min<std::size_t>(payload, kMaxProbeBytes));
}

TEST_CASE("prober: latency does not grow with the number of targets (cloudprober 531)", "[ping]") {
  ProberOptions options;
  options.max_probes_per_s = 1000;
  Simulation sim(options);
  const std::uint64_t targets = 500;
  for (std::uint64_t session = 1; session <= targets; ++session) {
    sim.prober->set_target(session, {"rxe0", "t" + std::to_string(session), "10.0.3.2", 0, {{0, 0, 1}}},
                           sim.clock.monotonic_ns());
    sim.hello(session);
  }
  sim.run(5 * kSecond);
  CHECK(sim.count(ProbeResult::Ok) == sim.outcomes.size());
  CHECK(sim.outcomes.size() >= 4 * targets);
  for (const auto& outcome : sim.outcomes) {
    if (*outcome.rtt_ns != 5 * kMillisecond) FAIL("round trip " << *outcome.rtt_ns);
  }
  // Spread: 500 a second is one each 2 ms; no 20 ms hold more than three times their share.
  std::map<Nanos, unsigned> bins;
  for (const Nanos at : sim.send_times) ++bins[at / (20 * kMillisecond)];
  for (const auto& [bin, count] : bins) CHECK(count <= 30);
  CHECK(sim.total().throttled == 0);
}

TEST_CASE("prober: runs on for a day of restarts and losses without growing (rpingmesh 6)", "[ping]") {
  Simulation sim;
  sim.prober->want_outcomes(false);
  std::uint64_t epoch = 5;
  sim.drop = [](const ProbePacket& packet) { return packet.sequence % 17 == 0; };
  sim.target(1);
  std::uint64_t acked = 0;
  for (int hour = 0; hour < 24; ++hour) {
    for (int minute = 0; minute < 60; ++minute) {
      sim.run(60 * kSecond);
      sim.hello();
      for (const auto& window : sim.folder.take()) acked += window.acked;
      sim.near.sent.clear();
      sim.far.sent.clear();
      sim.send_times.clear();
    }
    sim.restart_responder(restarted(++epoch));
    CHECK_FALSE(sim.hello().known);
    CHECK(sim.prober->remembered() <= 15);
  }
  CHECK(acked > 86400 * 16 / 17 - 200);
}
