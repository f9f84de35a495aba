#include "agent/daemon/trace_requests.h"

#include <algorithm>
#include <set>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::agent;

namespace {

EngineReport report() {
  EngineReport out;
  out.spec.device = "rxe0";
  out.spec.rdma = true;
  out.spec.netdev = "eth1";
  out.endpoint.address = "10.0.1.2";
  out.endpoint.prober_ports = {1001, 1002};
  out.endpoint.responder_ports = {2001};
  return out;
}

std::map<std::string, std::vector<model::PlanTarget>> probing(std::uint16_t port) {
  model::PlanTarget target;
  target.from_device = "rxe0";
  target.to = "h3/rxe0";
  target.to_address = "10.0.3.2";
  target.paths = {{port, 0, 10}};
  return {{"rxe0", {target}}};
}

std::vector<std::uint16_t> ports(const std::vector<probes::TraceRequest>& requests) {
  std::vector<std::uint16_t> out;
  for (const auto& request : requests) out.push_back(request.source_port);
  return out;
}

model::PlanTrace suspected(std::uint16_t port) {
  model::PlanTrace out;
  out.from_device = "rxe0";
  out.to = "h3/rxe0";
  out.to_address = "10.0.3.2";
  out.source_port = port;
  out.probes_per_hop_per_s = 5;
  return out;
}

}  // namespace

constexpr Nanos kNow = 100 * kSecond;

TEST_CASE("trace requests: ports in use come first and the bound leaves out the rest, counted", "[agent]") {
  TraceRequests maker("h1", 0, 1);
  CHECK(ports(maker.make({report()}, probing(1002), {}, kNow)) == std::vector<std::uint16_t>{1002});
  CHECK(maker.left_out() == 1);
}

TEST_CASE("trace requests: own answers to registered peers are traced too", "[agent]") {
  TraceRequests maker("h1", 104, 100);
  EngineReport with_peer = report();
  with_peer.registered = {{"h4/rxe0", "10.0.4.2", {}}};
  const auto requests = maker.make({with_peer}, {}, {}, kNow);
  REQUIRE(requests.size() == 1);
  CHECK(requests[0].to == "h4/rxe0");
  CHECK(requests[0].to_address == "10.0.4.2");
  CHECK(requests[0].source_port == 2001);
  CHECK(requests[0].destination_port == 4791);
  CHECK(requests[0].netdev == "eth1");
  CHECK(requests[0].traffic_class == 104);
}

TEST_CASE("trace requests: over UDP each port goes with the peer's port it is used with, both ways", "[agent]") {
  TraceRequests maker("h1", 0, 100);
  EngineReport udp = report();
  udp.spec.rdma = false;
  const auto pairs = [&] {
    std::set<std::pair<std::uint16_t, std::uint16_t>> out;
    for (const auto& request : maker.make({udp}, probing(0), {}, kNow)) {
      out.emplace(request.source_port, request.destination_port);
    }
    return out;
  };
  // Before the peer said its ports nobody knows the way.
  CHECK(pairs().empty());
  probes::PeerStatus peer;
  peer.to = "h3/rxe0";
  peer.return_ports = {3001, 3002, 3003};
  udp.peers = {peer};
  udp.registered = {{"h4/rxe0", "10.0.4.2", {{2001, 4001}, {2001, 4002}}}};
  CHECK(pairs() ==
        std::set<std::pair<std::uint16_t, std::uint16_t>>{{1001, 3001}, {1002, 3002}, {2001, 4001}, {2001, 4002}});

  model::PlanTrace suspect = suspected(1002);
  suspect.destination_port = 3002;
  const auto requests = maker.make({udp}, probing(0), {suspect}, kNow);
  CHECK(requests[0].source_port == 1002);
  CHECK(requests[0].destination_port == 3002);
  CHECK(requests[0].probes_per_hop_per_s == 5);
  suspect.destination_port = 0;
  for (const auto& request : maker.make({udp}, probing(0), {suspect}, kNow)) CHECK(request.probes_per_hop_per_s == 0);
}

TEST_CASE("trace requests: a hop count once learned is kept when the path loses everything", "[agent]") {
  TraceRequests maker("h1", 0, 100);
  EngineReport seen = report();
  model::PathWindow window;
  window.key = {"h1/rxe0", "h3/rxe0", 1001, 2001};
  window.forward.hops = 3;
  seen.windows = {window};
  for (const auto& request : maker.make({seen}, probing(0), {}, kNow)) CHECK(request.hops == 3);
  for (const auto& request : maker.make({report()}, probing(0), {}, kNow)) CHECK(request.hops == 3);
}

TEST_CASE("trace requests: a suspected path is asked at its own rate, once", "[agent]") {
  TraceRequests maker("h1", 0, 100);
  const model::PlanTrace suspect = suspected(1002);
  const auto requests = maker.make({report()}, probing(0), {suspect, suspect}, kNow);
  CHECK(ports(requests) == std::vector<std::uint16_t>{1002, 1001});
  CHECK(requests[0].probes_per_hop_per_s == 5);
  CHECK(requests[1].probes_per_hop_per_s == 0);
}

TEST_CASE("trace requests: a path in trouble is a suspect at once, for some seconds", "[agent]") {
  TraceRequests maker("h1", 0, 100);
  EngineReport seen = report();
  model::PathWindow good;
  good.key = {"h1/rxe0", "h3/rxe0", 1001, 2001};
  good.sent = good.acked = 10;
  good.rtt_median_ns = kMillisecond;
  good.forward.ecn_capable = good.back.ecn_capable = 10;
  model::PathWindow bad = good;
  bad.key.forward_port = 1002;
  SECTION("one probe lost on the way back") {
    bad.acked = 9;
    bad.back.lost = 1;
  }
  SECTION("marked") { bad.forward.ce = 3; }
  seen.windows = {good, bad};
  auto requests = maker.make({seen}, probing(0), {}, kNow);
  CHECK(ports(requests) == std::vector<std::uint16_t>{1002, 1001});
  CHECK(requests[0].probes_per_hop_per_s == 5);
  CHECK(requests[1].probes_per_hop_per_s == 0);
  requests = maker.make({report()}, probing(0), {}, kNow + 4 * kSecond);
  CHECK(requests[0].probes_per_hop_per_s == 5);
  requests = maker.make({report()}, probing(0), {}, kNow + 6 * kSecond);
  for (const auto& request : requests) CHECK(request.probes_per_hop_per_s == 0);
}

TEST_CASE("trace requests: a few marks are no trouble, and being late is for the aggregator to judge", "[agent]") {
  TraceRequests maker("h1", 0, 100);
  EngineReport seen = report();
  model::PathWindow window;
  window.key = {"h1/rxe0", "h3/rxe0", 1001, 2001};
  window.sent = window.acked = 10;
  window.forward.ecn_capable = 10;
  window.forward.ce = 1;
  window.rtt_median_ns = kMillisecond;
  seen.windows = {window};
  window.key.forward_port = 1002;
  window.rtt_median_ns = 90 * kMillisecond;
  seen.windows.push_back(window);
  for (const auto& request : maker.make({seen}, probing(0), {}, kNow)) CHECK(request.probes_per_hop_per_s == 0);
}

TEST_CASE("trace requests: of many paths in trouble only the worst few are suspects", "[agent]") {
  TraceRequests maker("h1", 0, 100);
  EngineReport seen = report();
  seen.endpoint.prober_ports.clear();
  for (std::uint16_t port = 1001; port <= 1020; ++port) {
    seen.endpoint.prober_ports.push_back(port);
    model::PathWindow window;
    window.key = {"h1/rxe0", "h3/rxe0", port, 2001};
    window.sent = 100;
    window.lost_unknown = port - 1000U;
    window.acked = window.sent - window.lost_unknown;
    seen.windows.push_back(window);
  }
  std::vector<std::uint16_t> suspects;
  for (const auto& request : maker.make({seen}, probing(0), {}, kNow)) {
    if (request.probes_per_hop_per_s > 0) suspects.push_back(request.source_port);
  }
  std::sort(suspects.begin(), suspects.end());
  CHECK(suspects == std::vector<std::uint16_t>{1017, 1018, 1019, 1020});
}
