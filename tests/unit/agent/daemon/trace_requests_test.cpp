#include "agent/daemon/trace_requests.h"

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

}  // namespace

TEST_CASE("trace requests: ports in use come first and the bound leaves out the rest, counted", "[agent]") {
  TraceRequests maker("h1", 0, 1);
  CHECK(ports(maker.make({report()}, probing(1002), {})) == std::vector<std::uint16_t>{1002});
  CHECK(maker.left_out() == 1);
}

TEST_CASE("trace requests: own answers to registered peers are traced too", "[agent]") {
  TraceRequests maker("h1", 104, 100);
  EngineReport with_peer = report();
  with_peer.registered = {{"h4/rxe0", "10.0.4.2"}};
  const auto requests = maker.make({with_peer}, {}, {});
  REQUIRE(requests.size() == 1);
  CHECK(requests[0].to == "h4/rxe0");
  CHECK(requests[0].to_address == "10.0.4.2");
  CHECK(requests[0].source_port == 2001);
  CHECK(requests[0].destination_port == 4791);
  CHECK(requests[0].netdev == "eth1");
  CHECK(requests[0].traffic_class == 104);
}

TEST_CASE("trace requests: a hop count once learned is kept when the path loses everything", "[agent]") {
  TraceRequests maker("h1", 0, 100);
  EngineReport seen = report();
  model::PathWindow window;
  window.key = {"h1/rxe0", "h3/rxe0", 1001, 2001};
  window.forward.hops = 3;
  seen.windows = {window};
  for (const auto& request : maker.make({seen}, probing(0), {})) CHECK(request.hops == 3);
  for (const auto& request : maker.make({report()}, probing(0), {})) CHECK(request.hops == 3);
}

TEST_CASE("trace requests: a suspected path is asked at its own rate, once", "[agent]") {
  TraceRequests maker("h1", 0, 100);
  model::PlanTrace suspect;
  suspect.from_device = "rxe0";
  suspect.to = "h3/rxe0";
  suspect.to_address = "10.0.3.2";
  suspect.source_port = 1002;
  suspect.probes_per_hop_per_s = 5;
  const auto requests = maker.make({report()}, probing(0), {suspect, suspect});
  CHECK(ports(requests) == std::vector<std::uint16_t>{1002, 1001});
  CHECK(requests[0].probes_per_hop_per_s == 5);
  CHECK(requests[1].probes_per_hop_per_s == 0);
}
