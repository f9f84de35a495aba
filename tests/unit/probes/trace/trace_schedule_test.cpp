#include "probes/trace/trace_schedule.h"

#include <cstdlib>
#include <functional>
#include <set>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

namespace {

TraceLimits no_trials() {
  TraceLimits limits;
  limits.routers.trial_packets = 0;
  return limits;
}

IcmpAnswer answer_to(const TraceProbe& probe, const std::string& from) {
  IcmpAnswer answer;
  answer.responder = model::Gid::parse(from).value();
  const bool refused = answer.responder == probe.destination || answer.responder == probe.source;
  answer.kind = refused ? IcmpKind::Unreachable : IcmpKind::TimeExceeded;
  answer.source = probe.source;
  answer.destination = probe.destination;
  answer.source_port = probe.source_port;
  answer.destination_port = probe.destination_port;
  answer.token = probe.token;
  return answer;
}

// Routers in time: which one a port meets at each TTL, whether it answers, and how many answers it has left.
class FakeNetwork {
 public:
  explicit FakeNetwork(TraceLimits limits = no_trials()) : schedule(limits) {}

  TraceSchedule schedule;
  // Router for (source port, TTL); empty: silent. TTL past the last router: the host.
  std::function<std::string(std::uint16_t, std::uint8_t)> route;
  double answers_burst = 6, answers_per_s = 1;  // Linux's default
  std::function<bool(const std::string&)> marks_at = [](const std::string&) { return false; };
  std::map<std::string, unsigned> answered_by, asked_of;
  std::vector<TraceSend> sent;
  unsigned limited = 0;
  Nanos now = 1000 * kSecond;

  void run(Nanos for_ns) {
    const Nanos end = now + for_ns;
    while (now < end) {
      while (auto packet = schedule.next(now)) deliver(*packet);
      now = std::min(end, schedule.wake_at(now));
    }
  }

  model::PathTrace trace(std::uint16_t port, const std::string& to = "10.0.3.2") const {
    for (const TraceView& view : schedule.views()) {
      if (view.trace.source_port == port && view.trace.to_address == to) return view.trace;
    }
    return {};
  }

  bool answers_allowed(const std::string& router) {
    auto& [tokens, last] = budget_.try_emplace(router, answers_burst, now).first->second;
    tokens = std::min(answers_burst, tokens + static_cast<double>(now - last) * 1e-9 * answers_per_s);
    last = now;
    if (tokens < 1) return false;
    tokens -= 1;
    return true;
  }

 private:
  void deliver(const TraceSend& packet) {
    sent.push_back(packet);
    const std::string router = route(packet.probe.source_port, packet.probe.ttl);
    if (router.empty()) return;
    ++asked_of[router];
    if (!answers_allowed(router)) {
      ++limited;
      return;
    }
    ++answered_by[router];
    IcmpAnswer answer = answer_to(packet.probe, router);
    answer.quoted_tos = marks_at(router) ? packet.probe.tos | 3 : packet.probe.tos;
    schedule.on_answer(answer, now + kMillisecond);
  }

  std::map<std::string, std::pair<double, Nanos>> budget_;
};

TraceRequest request(std::uint16_t port, std::optional<std::uint8_t> hops = 3, const char* to = "10.0.3.2") {
  TraceRequest r;
  r.from = "h1/rxe0";
  r.to = "h3/rxe0";
  r.from_address = "10.0.1.2";
  r.to_address = to;
  r.source_port = port;
  r.hops = hops;
  return r;
}

std::vector<TraceRequest> ports(unsigned count, std::optional<std::uint8_t> hops = 3, const char* to = "10.0.3.2") {
  std::vector<TraceRequest> out;
  for (unsigned i = 0; i < count; ++i) out.push_back(request(static_cast<std::uint16_t>(49152 + i), hops, to));
  return out;
}

constexpr const char* kLeaf1 = "10.0.1.1";
constexpr const char* kSpine[] = {"10.1.11.2", "10.1.12.2"};
constexpr const char* kLeaf2 = "10.1.21.1";

// Two leaves, two spines; some hash of the port takes a spine.
std::string clos(std::uint16_t port, std::uint8_t ttl) {
  if (ttl == 1) return kLeaf1;
  if (ttl == 2) return kSpine[(port * 2654435761U >> 16) & 1];
  if (ttl == 3) return kLeaf2;
  return "10.0.3.2";
}

std::vector<std::string> addresses(const model::PathTrace& trace) {
  std::vector<std::string> out;
  for (const auto& hop : trace.hops) out.push_back(hop.address);
  return out;
}

// While sick the link into the last router loses every second packet.
std::function<std::string(std::uint16_t, std::uint8_t)> losing_clos(const bool& sick) {
  return [&sick, crossed = 0U](std::uint16_t port, std::uint8_t ttl) mutable -> std::string {
    if (sick && ttl == 3 && ++crossed % 2 == 0) return "";
    return clos(port, ttl);
  };
}

}  // namespace

TEST_CASE("a path is traced to its last router and the host never sees a packet", "[trace]") {
  FakeNetwork net;
  net.route = clos;
  REQUIRE(net.schedule.set_requests({request(49152)}, net.now));
  net.run(kSecond);
  CHECK(addresses(net.trace(49152)) == std::vector<std::string>{kLeaf1, clos(49152, 2), kLeaf2});
  CHECK(net.trace(49152).complete);
  CHECK(net.schedule.finished());
  CHECK(net.asked_of.count("10.0.3.2") == 0);
  CHECK(net.sent.size() == 3);
}

TEST_CASE("packets look like the probe: ports, class with ECT(0)", "[trace]") {
  FakeNetwork net;
  net.route = clos;
  auto r = request(50000);
  r.traffic_class = 0x68;
  r.destination_port = 7000;
  REQUIRE(net.schedule.set_requests({r}, net.now));
  net.run(kSecond);
  REQUIRE_FALSE(net.sent.empty());
  for (const auto& packet : net.sent) {
    CHECK(packet.probe.source_port == 50000);
    CHECK(packet.probe.destination_port == 7000);
    CHECK(packet.probe.tos == 0x6a);
    CHECK(packet.probe.token != 0);
  }
}

TEST_CASE("with the routers' default limit every port's spine is known in seconds and hardly an answer is lost",
          "[trace]") {
  FakeNetwork net;
  net.route = clos;
  auto all = ports(32);
  const auto other = ports(32, 3, "10.0.4.2");
  all.insert(all.end(), other.begin(), other.end());
  REQUIRE(net.schedule.set_requests(all, net.now));
  net.run(32 * kSecond);
  unsigned right = 0;
  for (const auto& r : all) {
    const auto trace = net.trace(r.source_port, r.to_address);
    REQUIRE(trace.hops.size() == 3);
    // Each port's own measurement, not its siblings': both spines are seen, so nothing is shared there.
    right += trace.hops[1].address == clos(r.source_port, 2);
    CHECK(trace.complete);
    CHECK(trace.hops[0].address == kLeaf1);
    CHECK(trace.hops[2].address == kLeaf2);
  }
  CHECK(right == all.size());
  // 64 answers of two spines cannot come before 26 s; the shared leaves cost far less than one answer a port.
  CHECK(net.limited <= 6);
  CHECK(net.sent.size() < 150);
}

TEST_CASE("a hop that all ports share is asked of a few of them first, the path-deciding hop of all", "[trace]") {
  FakeNetwork net;
  net.route = clos;
  net.answers_burst = net.answers_per_s = 1e6;
  TraceLimits relaxed = no_trials();
  relaxed.routers.rate_per_s = relaxed.routers.burst = 1000;
  net.schedule = TraceSchedule(relaxed);
  REQUIRE(net.schedule.set_requests(ports(40), net.now));
  net.run(kSecond);
  std::map<std::uint8_t, std::set<std::uint16_t>> asked;
  std::map<std::uint8_t, unsigned> before_spines_known;
  for (const auto& packet : net.sent) {
    asked[packet.probe.ttl].insert(packet.probe.source_port);
    if (asked[2].size() < 40) ++before_spines_known[packet.probe.ttl];
  }
  CHECK(asked[2].size() == 40);
  CHECK(before_spines_known[1] <= 9);
  CHECK(before_spines_known[3] <= 9);
}

TEST_CASE("shared hops are marked, and one port that differs withdraws them", "[trace]") {
  FakeNetwork net;
  bool moved = false;
  // TTL 2 looks like one router to the first ten ports; the last ones meet another.
  net.route = [&](std::uint16_t port, std::uint8_t ttl) -> std::string {
    if (ttl == 2) return port >= 49162 || moved ? "10.1.12.2" : "10.1.11.2";
    return clos(port, ttl);
  };
  REQUIRE(net.schedule.set_requests(ports(12), net.now));
  net.run(5 * kSecond);
  bool any_shared = false;
  for (const auto& view : net.schedule.views()) any_shared |= view.hops[1].shared;
  CHECK(any_shared);
  net.run(30 * kSecond);
  for (const auto& view : net.schedule.views()) {
    CHECK_FALSE(view.hops[1].shared);
    CHECK(view.hops[1].address == (view.trace.source_port >= 49162 ? "10.1.12.2" : "10.1.11.2"));
  }
}

TEST_CASE("silence is unknown: tried again with back-off, and the path is not complete", "[trace]") {
  FakeNetwork net;
  net.route = [](std::uint16_t port, std::uint8_t ttl) { return ttl == 2 ? std::string() : clos(port, ttl); };
  REQUIRE(net.schedule.set_requests({request(49152)}, net.now));
  net.run(10 * kSecond);
  CHECK(net.schedule.finished());
  CHECK(addresses(net.trace(49152)) == std::vector<std::string>{kLeaf1, "", kLeaf2});
  CHECK_FALSE(net.trace(49152).complete);
  const auto early = net.sent.size();
  net.run(200 * kSecond);
  unsigned asked = 0;
  for (std::size_t i = early; i < net.sent.size(); ++i) asked += net.sent[i].probe.ttl == 2;
  CHECK(asked >= 3);
  CHECK(asked <= 8);
  net.route = clos;
  net.run(61 * kSecond);
  CHECK(net.trace(49152).complete);
}

TEST_CASE("a path stays known when its link dies: silence does not erase it", "[trace]") {
  TraceLimits limits = no_trials();
  limits.refresh_ns = 5 * kSecond;
  FakeNetwork net(limits);
  net.route = clos;
  REQUIRE(net.schedule.set_requests({request(49152)}, net.now));
  net.run(2 * kSecond);
  REQUIRE(net.trace(49152).complete);
  net.route = [](std::uint16_t port, std::uint8_t ttl) { return ttl >= 3 ? std::string() : clos(port, ttl); };
  net.run(120 * kSecond);
  CHECK(net.trace(49152).hops[2].address == kLeaf2);
  net.run(600 * kSecond);
  CHECK(net.trace(49152).hops[2].address.empty());
  CHECK_FALSE(net.trace(49152).complete);
}

TEST_CASE("a path that moves is seen at the next refresh and reported", "[trace]") {
  TraceLimits limits = no_trials();
  limits.refresh_ns = 5 * kSecond;
  FakeNetwork net(limits);
  net.route = clos;
  REQUIRE(net.schedule.set_requests({request(49152)}, net.now));
  net.run(2 * kSecond);
  REQUIRE(net.schedule.take_changed(net.now).size() == 1);
  CHECK(net.schedule.take_changed(net.now).empty());
  net.route = [](std::uint16_t port, std::uint8_t ttl) {
    return ttl == 2 ? std::string("10.1.13.2") : clos(port, ttl);
  };
  net.run(8 * kSecond);
  const auto changed = net.schedule.take_changed(net.now);
  REQUIRE(changed.size() == 1);
  CHECK(changed[0].hops[1].address == "10.1.13.2");
}

TEST_CASE("unknown hop count: goes on until the host answers, and leaves the host out", "[trace]") {
  FakeNetwork net;
  net.route = clos;
  REQUIRE(net.schedule.set_requests({request(49152, std::nullopt)}, net.now));
  net.run(5 * kSecond);
  CHECK(addresses(net.trace(49152)) == std::vector<std::string>{kLeaf1, clos(49152, 2), kLeaf2});
  CHECK(net.trace(49152).complete);
  CHECK(net.schedule.views()[0].reached);
  CHECK(net.schedule.finished());
}

TEST_CASE("unknown hop count: two silent hops in a row end the trace, never a walk to 30", "[trace]") {
  FakeNetwork net;
  net.route = [](std::uint16_t port, std::uint8_t ttl) { return ttl > 3 ? std::string() : clos(port, ttl); };
  REQUIRE(net.schedule.set_requests({request(49152, std::nullopt)}, net.now));
  net.run(30 * kSecond);
  CHECK(net.schedule.finished());
  CHECK_FALSE(net.trace(49152).complete);
  CHECK(net.trace(49152).hops.size() == 5);
  for (const auto& packet : net.sent) CHECK(packet.probe.ttl <= 5);
}

TEST_CASE("that this host cannot reach the next hop is no answer of a router, and ends the trace", "[trace]") {
  const auto hops = GENERATE(std::optional<std::uint8_t>(), std::optional<std::uint8_t>(3));
  FakeNetwork net;
  net.answers_burst = net.answers_per_s = 1e6;
  net.route = [](std::uint16_t, std::uint8_t) { return "10.0.1.2"; };  // its own address
  REQUIRE(net.schedule.set_requests({request(49152, hops)}, net.now));
  net.run(30 * kSecond);
  const auto trace = net.trace(49152);
  CHECK_FALSE(trace.complete);
  REQUIRE_FALSE(trace.hops.empty());
  for (const std::string& address : addresses(trace)) CHECK(address.empty());
  CHECK(net.schedule.stats().send_errors > 0);
  CHECK(net.schedule.stats().answered == 0);
  CHECK(net.schedule.finished());
}

TEST_CASE("an endless way ends at TTL 30", "[trace]") {
  FakeNetwork net;
  net.route = [](std::uint16_t, std::uint8_t ttl) { return "10.9.0." + std::to_string(ttl); };
  REQUIRE(net.schedule.set_requests({request(49152, std::nullopt)}, net.now));
  net.run(60 * kSecond);
  CHECK(net.schedule.finished());
  CHECK(net.trace(49152).hops.size() == 30);
}

TEST_CASE("the hop count of probes arriving later bounds a trace begun without it", "[trace]") {
  FakeNetwork net;
  net.route = [](std::uint16_t port, std::uint8_t ttl) { return ttl > 3 ? std::string() : clos(port, ttl); };
  REQUIRE(net.schedule.set_requests({request(49152, std::nullopt)}, net.now));
  net.run(5 * kSecond);
  REQUIRE(net.schedule.set_requests({request(49152, 3)}, net.now));
  net.run(kSecond);
  CHECK(net.trace(49152).hops.size() == 3);
  CHECK(net.trace(49152).complete);
}

TEST_CASE("no router between: complete at once and nothing is sent", "[trace]") {
  FakeNetwork net;
  net.route = clos;
  REQUIRE(net.schedule.set_requests({request(49152, 0)}, net.now));
  net.run(kSecond);
  CHECK(net.sent.empty());
  REQUIRE(net.schedule.take_changed(net.now).size() == 1);
  CHECK(net.trace(49152).complete);
}

TEST_CASE("an ICMP that quotes another token, port or address changes nothing and is counted (sichek PR 110)",
          "[trace]") {
  FakeNetwork net;
  net.route = [](std::uint16_t, std::uint8_t) { return std::string(); };
  REQUIRE(net.schedule.set_requests({request(49152)}, net.now));
  const auto packet = net.schedule.next(net.now);
  REQUIRE(packet);
  IcmpAnswer good;
  good.responder = model::Gid::parse("10.66.6.6").value();
  good.source = packet->probe.source;
  good.destination = packet->probe.destination;
  good.source_port = packet->probe.source_port;
  good.destination_port = packet->probe.destination_port;
  good.token = packet->probe.token;
  auto wrong = good;
  wrong.token = static_cast<std::uint16_t>(good.token + 100);
  net.schedule.on_answer(wrong, net.now);
  wrong = good;
  wrong.source_port ^= 1;
  net.schedule.on_answer(wrong, net.now);
  wrong = good;
  wrong.destination_port ^= 1;
  net.schedule.on_answer(wrong, net.now);
  wrong = good;
  wrong.destination = model::Gid::parse("10.0.9.9").value();
  net.schedule.on_answer(wrong, net.now);
  net.schedule.on_answer(IcmpReject::OtherType, net.now);
  CHECK(net.schedule.stats().unmatched == 4);
  CHECK(net.schedule.stats().rejected[0] == 1);
  CHECK(net.trace(49152).hops[packet->probe.ttl - 1U].address.empty());
  net.schedule.on_answer(good, net.now);
  CHECK(net.trace(49152).hops[packet->probe.ttl - 1U].address == "10.66.6.6");
  net.schedule.on_answer(good, net.now);  // the same answer again
  CHECK(net.schedule.stats().unmatched == 5);
}

TEST_CASE("a late answer still tells the hop", "[trace]") {
  FakeNetwork net;
  net.route = [](std::uint16_t, std::uint8_t) { return std::string(); };
  REQUIRE(net.schedule.set_requests({request(49152, 1)}, net.now));
  const auto packet = net.schedule.next(net.now);
  REQUIRE(packet);
  net.now += 3 * kSecond;
  (void)net.schedule.next(net.now);
  net.schedule.on_answer(answer_to(packet->probe, kLeaf1), net.now);
  CHECK(net.trace(49152).complete);
  CHECK(net.schedule.stats().late == 1);
}

TEST_CASE("that this host could not reach the next hop is no answer when it is told late either", "[trace]") {
  FakeNetwork net;
  net.route = [](std::uint16_t, std::uint8_t) { return std::string(); };
  REQUIRE(net.schedule.set_requests({request(49152, 1)}, net.now));
  const auto packet = net.schedule.next(net.now);
  REQUIRE(packet);
  net.now += 3 * kSecond;
  (void)net.schedule.next(net.now);
  net.schedule.on_answer(answer_to(packet->probe, "10.0.1.2"), net.now);
  CHECK(addresses(net.trace(49152)) == std::vector<std::string>{""});
  CHECK(net.schedule.stats().send_errors == 1);
}

TEST_CASE("requests that go away leave nothing behind, kept ones keep what is known", "[trace]") {
  FakeNetwork net;
  net.route = clos;
  REQUIRE(net.schedule.set_requests(ports(4), net.now));
  net.run(5 * kSecond);
  const auto known = addresses(net.trace(49153));
  const auto sent = net.sent.size();
  REQUIRE(net.schedule.set_requests({request(49153)}, net.now));
  net.run(kSecond);
  CHECK(net.schedule.views().size() == 1);
  CHECK(addresses(net.trace(49153)) == known);
  CHECK(net.sent.size() == sent);
}

TEST_CASE("bad and too many requests are refused and counted, the others are traced", "[trace]") {
  TraceLimits limits = no_trials();
  limits.max_traces = 2;
  FakeNetwork net(limits);
  net.route = clos;
  auto bad = request(49152);
  bad.to_address = "fd00::1";
  auto outcome = net.schedule.set_requests({bad, request(49153)}, net.now);
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().kind == Error::Kind::Invalid);
  CHECK(net.schedule.views().size() == 1);
  outcome = net.schedule.set_requests(ports(3), net.now);
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().kind == Error::Kind::Exhausted);
  CHECK(net.schedule.views().size() == 2);
  CHECK(net.schedule.stats().refused_requests == 2);
}

TEST_CASE("a packet that cannot be sent is tried again later and does not block the others", "[trace]") {
  FakeNetwork net;
  net.route = clos;
  REQUIRE(net.schedule.set_requests(ports(2), net.now));
  unsigned failed = 0;
  while (auto packet = net.schedule.next(net.now)) {
    net.schedule.on_send_error(packet->probe.token, net.now);
    REQUIRE(++failed < 100);
  }
  CHECK(net.schedule.stats().send_errors == failed);
  net.run(20 * kSecond);
  CHECK(net.trace(49152).complete);
  CHECK(net.trace(49153).complete);
}

TEST_CASE("the whole tracer stays within its rate", "[trace]") {
  TraceLimits limits = no_trials();
  limits.rate_per_s = 10;
  limits.burst = 5;
  limits.routers.rate_per_s = limits.routers.burst = 1e6;
  FakeNetwork net(limits);
  net.answers_burst = net.answers_per_s = 1e6;
  net.route = clos;
  REQUIRE(net.schedule.set_requests(ports(200), net.now));
  net.run(10 * kSecond);
  CHECK(net.sent.size() <= 106);
  CHECK(net.sent.size() >= 95);
}

TEST_CASE("a path under suspicion is asked all along, counted hop by hop and reported each second", "[trace]") {
  FakeNetwork net = FakeNetwork(TraceLimits{});
  net.answers_burst = net.answers_per_s = 1e6;
  // The link into the last router loses every second packet, and the one into the spine marks all.
  bool sick = false;
  net.route = losing_clos(sick);
  REQUIRE(net.schedule.set_requests({request(49152), request(49153)}, net.now));
  net.run(30 * kSecond);
  (void)net.schedule.take_changed(net.now);
  sick = true;
  net.marks_at = [](const std::string& router) { return router != kLeaf1; };
  auto suspect = request(49152);
  suspect.probes_per_hop_per_s = 5;
  REQUIRE(net.schedule.set_requests({suspect, request(49153)}, net.now));
  std::map<std::uint8_t, std::array<unsigned, 4>> sum;
  unsigned reports = 0;
  for (int second = 0; second < 20; ++second) {
    net.run(kSecond);
    for (const auto& trace : net.schedule.take_changed(net.now)) {
      if (trace.source_port != 49152) continue;
      ++reports;
      for (const auto& hop : trace.hops) {
        CHECK(hop.answered <= hop.sent);
        sum[hop.ttl][0] += hop.sent;
        sum[hop.ttl][1] += hop.answered;
        sum[hop.ttl][2] += hop.ce;
        sum[hop.ttl][3] += hop.ecn_capable;
        if (hop.answered > 0) CHECK(hop.rtt_ns == kMillisecond);
      }
    }
  }
  CHECK(reports >= 19);
  for (std::uint8_t ttl = 1; ttl <= 3; ++ttl) {
    INFO("TTL " << int(ttl));
    CHECK(sum[ttl][0] >= 85);
    CHECK(sum[ttl][0] <= 105);
    CHECK(sum[ttl][3] == sum[ttl][1]);
  }
  CHECK(sum[1][1] == sum[1][0]);
  CHECK(sum[1][2] == 0);
  CHECK(sum[2][1] == sum[2][0]);
  CHECK(sum[2][2] == sum[2][1]);
  CHECK(sum[3][1] * 10 > sum[3][0] * 4);
  CHECK(sum[3][1] * 10 < sum[3][0] * 6);
}

TEST_CASE("the answer that tells a hop is not counted, as silence before it is not: no path would seem to lose",
          "[trace]") {
  FakeNetwork net;
  net.answers_burst = net.answers_per_s = 1e6;
  const bool sick = true;
  net.route = losing_clos(sick);
  REQUIRE(net.schedule.set_requests(ports(32), net.now));
  int asked = 0;
  int answered = 0;
  for (int step = 0; step < 5; ++step) {
    net.run(kSecond);
    for (const auto& trace : net.schedule.take_changed(net.now)) {
      if (trace.hops.size() < 3) continue;
      asked += trace.hops[2].sent;
      answered += trace.hops[2].answered;
    }
  }
  CHECK(net.sent.size() > 24);
  CHECK(answered == 0);
  CHECK(asked == 0);
}

TEST_CASE("over UDP a trace tells the port that the probes go to, over RoCE none, as it is always the same",
          "[trace]") {
  FakeNetwork net;
  net.route = clos;
  auto udp = request(49153);
  udp.destination_port = 50'000;
  REQUIRE(net.schedule.set_requests({request(49152), udp}, net.now));
  net.run(kSecond);
  CHECK(net.trace(49152).destination_port == 0);
  CHECK(net.trace(49153).destination_port == 50'000);
}

TEST_CASE("an answer counts when its timeout would have: no report sees only those who answered", "[trace]") {
  TraceLimits limits;
  limits.counted_report_ns = 50 * kMillisecond;
  FakeNetwork net = FakeNetwork(limits);
  net.answers_burst = net.answers_per_s = 1e6;
  bool sick = false;
  net.route = losing_clos(sick);
  auto suspect = request(49152);
  REQUIRE(net.schedule.set_requests({suspect}, net.now));
  net.run(30 * kSecond);
  (void)net.schedule.take_changed(net.now);
  sick = true;
  suspect.probes_per_hop_per_s = 20;
  REQUIRE(net.schedule.set_requests({suspect}, net.now));
  int asked = 0;
  int answered = 0;
  for (int step = 0; step < 40; ++step) {
    net.run(50 * kMillisecond);
    for (const auto& trace : net.schedule.take_changed(net.now)) {
      if (trace.hops.size() < 3) continue;
      asked += trace.hops[2].sent;
      answered += trace.hops[2].answered;
    }
    INFO("after " << (step + 1) * 50 << " ms: " << answered << " of " << asked << " answered");
    CHECK(std::abs(2 * answered - asked) <= 1);
  }
  CHECK(asked >= 30);
}

TEST_CASE("paths under suspicion are asked no more than their routers answer, and hardly an answer is lost",
          "[trace]") {
  FakeNetwork net = FakeNetwork(TraceLimits{});
  net.route = clos;
  auto all = ports(4);
  REQUIRE(net.schedule.set_requests(all, net.now));
  net.run(60 * kSecond);
  const unsigned limited = net.limited;  // by the trials
  for (auto& r : all) r.probes_per_hop_per_s = 50;
  REQUIRE(net.schedule.set_requests(all, net.now));
  (void)net.schedule.take_changed(net.now);
  net.run(30 * kSecond);
  CHECK(net.limited == limited);
  unsigned counted = 0;
  unsigned silent = 0;
  for (const auto& trace : net.schedule.take_changed(net.now)) {
    for (const auto& hop : trace.hops) {
      counted += hop.sent;
      silent += hop.sent - hop.answered;
    }
  }
  CHECK(counted >= 60);
  CHECK(silent == 0);
}

TEST_CASE("a router that answers ten in a row is asked more often, one at its limit is not", "[trace]") {
  FakeNetwork net = FakeNetwork(TraceLimits{});
  net.route = clos;
  SECTION("it answers all") { net.answers_burst = net.answers_per_s = 1e6; }
  SECTION("Linux's default") {}
  const bool willing = net.answers_per_s > 1;
  REQUIRE(net.schedule.set_requests({request(49152)}, net.now));
  net.run(60 * kSecond);
  (void)net.schedule.take_changed(net.now);
  net.sent.clear();
  auto suspect = request(49152);
  suspect.probes_per_hop_per_s = 10;
  REQUIRE(net.schedule.set_requests({suspect}, net.now));
  net.run(10 * kSecond);
  if (willing) {
    CHECK(net.sent.size() >= 280);
  } else {
    CHECK(net.sent.size() <= 50);
  }
}

TEST_CASE("no router is tried while a path is under suspicion", "[trace]") {
  FakeNetwork net = FakeNetwork(TraceLimits{});
  net.route = clos;
  net.answers_burst = net.answers_per_s = 1e6;
  auto suspect = request(49152);
  suspect.probes_per_hop_per_s = 0.01;
  REQUIRE(net.schedule.set_requests({suspect, request(49153)}, net.now));
  net.run(50 * kSecond);
  const auto before = net.sent.size();
  CHECK(before < 20);
  REQUIRE(net.schedule.set_requests({request(49152), request(49153)}, net.now));
  net.run(10 * kSecond);
  CHECK(net.sent.size() >= before + 3 * 10);
}

TEST_CASE("a trial whose path goes away ends, and the router is tried no more for a while", "[trace]") {
  FakeNetwork net = FakeNetwork(TraceLimits{});
  net.route = clos;
  net.answers_burst = net.answers_per_s = 1e6;
  REQUIRE(net.schedule.set_requests({request(49152)}, net.now));
  // Until some trial is half done.
  for (int step = 0; step < 100'000 && net.sent.size() < 6; ++step) net.run(kMillisecond);
  REQUIRE(net.sent.size() < 10);
  REQUIRE(net.schedule.set_requests({request(49153)}, net.now));
  net.run(30 * kSecond);
  CHECK(net.trace(49153).complete);
  // Three routers, each met and tried once: the broken trial too is not taken up again.
  CHECK(net.sent.size() < 10 + 3 * (10 + 3));
}

TEST_CASE("a path no longer under suspicion is no longer counted, and keeps its hops", "[trace]") {
  FakeNetwork net;
  net.answers_burst = net.answers_per_s = 1e6;
  net.route = clos;
  auto suspect = request(49152);
  suspect.probes_per_hop_per_s = 5;
  REQUIRE(net.schedule.set_requests({suspect}, net.now));
  net.run(15 * kSecond);
  REQUIRE(net.schedule.set_requests({request(49152)}, net.now));
  (void)net.schedule.take_changed(net.now);
  const auto sent = net.sent.size();
  net.run(20 * kSecond);
  CHECK(net.sent.size() == sent);
  CHECK(net.trace(49152).complete);
}

TEST_CASE("paths under suspicion stay within their own rate and leave the others theirs", "[trace]") {
  TraceLimits limits = no_trials();
  limits.suspect_rate_per_s = 20;
  FakeNetwork net(limits);
  net.answers_burst = net.answers_per_s = 1e6;
  net.route = clos;
  auto all = ports(20);
  for (auto& r : all) r.probes_per_hop_per_s = 50;
  all.push_back(request(60000));
  REQUIRE(net.schedule.set_requests(all, net.now));
  net.run(10 * kSecond);
  unsigned counted = 0;
  for (const auto& packet : net.sent) counted += packet.probe.source_port != 60000;
  CHECK(counted <= 20 * 10 + 150);
  CHECK(net.trace(60000).complete);
}
