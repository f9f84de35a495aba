#include "probes/ping/udp_transport.h"

#include <poll.h>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

namespace {

struct Seen {
  Arrival arrival;
  std::vector<std::uint8_t> payload;
};

struct Recorder final : TransportEvents {
  std::vector<Seen> arrivals;
  std::vector<SendDone> done;
  void on_arrival(const Arrival& arrival) override {
    arrivals.push_back({arrival, {arrival.payload.begin(), arrival.payload.end()}});
  }
  void on_send_done(const SendDone& one) override { done.push_back(one); }
};

// Waits for the kernel, not for time: returns as soon as the condition holds, fails after a generous deadline.
template <typename Condition>
bool poll_until(std::vector<Transport*> transports, Recorder& events, const Condition& condition) {
  const SystemClock clock;
  const Nanos deadline = clock.monotonic_ns() + 10 * kSecond;
  while (clock.monotonic_ns() < deadline) {
    std::vector<pollfd> fds;
    for (Transport* transport : transports) {
      REQUIRE(transport->poll(events));
      for (const int fd : transport->wait_fds()) fds.push_back({fd, POLLIN, 0});
    }
    if (condition()) return true;
    (void)::poll(fds.data(), fds.size(), 20);
  }
  return false;
}

std::unique_ptr<Transport> open(const std::string& address, UdpTransportOptions options = {}) {
  static const SystemClock clock;
  options.local = *model::Gid::parse(address);
  auto opened = open_udp_transport(options, clock);
  if (!opened) FAIL(opened.error().message());
  return std::move(*opened);
}

void carries_both_ways(const std::string& from, const std::string& to) {
  const auto prober = open(from);
  const auto responder = open(to);
  const std::uint16_t port = prober->source_ports(Role::Prober).at(0);
  const std::uint16_t lane = responder->source_ports(Role::Responder).at(0);
  const std::vector<std::uint8_t> probe(100, 7);
  Recorder events;
  REQUIRE(prober->send(Role::Prober, port, port, {responder->local_address(), lane}, 0x6a, probe, 11));
  REQUIRE(poll_until({prober.get(), responder.get()}, events,
                     [&] { return events.arrivals.size() == 1 && events.done.size() == 1; }));
  const Seen arrived = events.arrivals[0];
  CHECK(arrived.payload == probe);
  CHECK(arrived.arrival.role == Role::Responder);
  CHECK(arrived.arrival.local_port == lane);
  CHECK(arrived.arrival.source == Destination{prober->local_address(), port});
  CHECK(arrived.arrival.tos == 0x6a);
  CHECK(arrived.arrival.hop_limit == 64);
  CHECK(events.done[0].ok);
  CHECK(events.done[0].cookie == 11);
  // Sent before it arrived, by one clock, and not a day apart.
  const Nanos flight = prober->elapsed_ns(events.done[0].stamp, arrived.arrival.stamp);
  CHECK(flight >= -kMillisecond);
  CHECK(flight < 10 * kSecond);

  REQUIRE(responder->send(Role::Responder, lane, lane, arrived.arrival.source, 0x02, std::span(probe).first(50), 12));
  REQUIRE(poll_until({prober.get(), responder.get()}, events,
                     [&] { return events.arrivals.size() == 2 && events.done.size() == 2; }));
  CHECK(events.arrivals[1].arrival.role == Role::Prober);
  CHECK(events.arrivals[1].arrival.source == Destination{responder->local_address(), lane});
  CHECK(events.arrivals[1].arrival.tos == 0x02);
  CHECK(events.arrivals[1].payload.size() == 50);
}

}  // namespace

TEST_CASE("udp transport: an address that is not this host's is named", "[ping]") {
  const SystemClock clock;
  UdpTransportOptions options;
  options.local = *model::Gid::parse("192.0.2.77");
  const auto opened = open_udp_transport(options, clock);
  REQUIRE_FALSE(opened);
  CHECK_THAT(opened.error().context, ContainsSubstring("192.0.2.77"));
}

TEST_CASE("udp transport: a taken port is named, and how to see who has it (perftest 383)", "[ping]") {
  const auto first = open("127.0.0.1");
  const std::uint16_t port = first->source_ports(Role::Responder).at(0);
  const SystemClock clock;
  UdpTransportOptions options;
  options.local = *model::Gid::parse("127.0.0.1");
  options.responder_ports = {port};
  const auto second = open_udp_transport(options, clock);
  REQUIRE_FALSE(second);
  CHECK_THAT(second.error().context, ContainsSubstring(std::to_string(port)));
  CHECK_THAT(second.error().context, ContainsSubstring("ss -ulpn"));
}

TEST_CASE("udp transport: link-local addresses need their interface", "[ping]") {
  const SystemClock clock;
  UdpTransportOptions options;
  options.local = *model::Gid::parse("fe80::1");
  const auto opened = open_udp_transport(options, clock);
  REQUIRE_FALSE(opened);
  CHECK_THAT(opened.error().context, ContainsSubstring("interface"));
}

TEST_CASE("udp transport: refuses what it cannot send, in words, and goes on", "[ping]") {
  const auto transport = open("127.0.0.1");
  const auto peer = open("127.0.0.2");
  const std::uint16_t port = transport->source_ports(Role::Prober).at(0);
  const std::uint16_t lane = peer->source_ports(Role::Responder).at(0);
  const std::vector<std::uint8_t> probe(100);
  const Destination v6{*model::Gid::parse("::1"), lane};
  CHECK_FALSE(transport->send(Role::Prober, port, port, v6, 2, probe, 1));
  CHECK_FALSE(transport->send(Role::Prober, port, port, {peer->local_address(), 70000}, 2, probe, 2));
  CHECK_FALSE(transport->send(Role::Responder, 1, 1, {peer->local_address(), lane}, 2, probe, 3));
  // Larger than any packet: the kernel says no, and stamps of later packets are still matched to their cookies.
  const std::vector<std::uint8_t> huge(70000);
  const auto too_big = transport->send(Role::Prober, port, port, {peer->local_address(), lane}, 2, huge, 4);
  REQUIRE_FALSE(too_big);
  CHECK_THAT(too_big.error().context, ContainsSubstring("MTU"));
  Recorder events;
  for (std::uint64_t cookie = 5; cookie < 8; ++cookie) {
    REQUIRE(transport->send(Role::Prober, port, port, {peer->local_address(), lane}, 2, probe, cookie));
  }
  REQUIRE(poll_until({transport.get(), peer.get()}, events,
                     [&] { return events.done.size() == 3 && events.arrivals.size() == 3; }));
  for (std::size_t i = 0; i < 3; ++i) CHECK(events.done[i].cookie == 5 + i);
}

TEST_CASE("udp transport: opens ports as wanted, up to its bound", "[ping]") {
  UdpTransportOptions options;
  options.max_lanes = 4;
  const auto transport = open("127.0.0.1", options);
  REQUIRE(transport->want_ports(Role::Prober, 3));
  CHECK(transport->source_ports(Role::Prober).size() == 3);
  CHECK(transport->source_ports(Role::Responder).size() == 1);
  REQUIRE_FALSE(transport->want_ports(Role::Prober, 5));
  CHECK(transport->source_ports(Role::Prober).size() == 4);
  CHECK(transport->lanes().size() == 5);
}

TEST_CASE("udp transport: a source port of the sender's choice is opened and used (perftest PR 224, 279)", "[ping]") {
  const auto transport = open("127.0.0.1");
  const auto peer = open("127.0.0.2");
  std::uint16_t chosen = 0;
  {
    // A port that is free now; the socket that found it is gone before it is used.
    const auto finder = open("127.0.0.1");
    chosen = finder->source_ports(Role::Prober).at(0);
  }
  Recorder events;
  const std::vector<std::uint8_t> probe(100);
  const Destination to{peer->local_address(), peer->source_ports(Role::Responder).at(0)};
  REQUIRE(transport->send(Role::Prober, chosen, chosen, to, 2, probe, 1));
  REQUIRE(poll_until({transport.get(), peer.get()}, events, [&] { return !events.arrivals.empty(); }));
  CHECK(events.arrivals[0].arrival.source.number == chosen);
}

TEST_CASE("udp transport: carries payload, TOS, hop limit 64 and stamps over IPv4 (rdma-core PR 1637)", "[ping]") {
  carries_both_ways("127.0.0.1", "127.0.0.2");
}

TEST_CASE("udp transport: carries payload, TOS, hop limit 64 and stamps over IPv6 (rdma-core PR 1637)", "[ping]") {
  carries_both_ways("::1", "::1");
}
