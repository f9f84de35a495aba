#include "lib/rdma/source_port.h"

#include <algorithm>
#include <set>

#include "tests/unit/catch.h"

using namespace weft::rdma;

TEST_CASE("no port maps to flow label 0, which mlx5 reads as a random port for each handle", "[rdma]") {
  for (unsigned port = kFirstSourcePort; port <= 0xFFFF; ++port)
    REQUIRE(flow_label_of_source_port(static_cast<std::uint16_t>(port)) != 0);
}

TEST_CASE("every port of the range is reached by its flow label", "[rdma]") {
  for (unsigned port = kFirstSourcePort; port <= 0xFFFF; ++port)
    REQUIRE(source_port_of_flow_label(flow_label_of_source_port(static_cast<std::uint16_t>(port))) == port);
}

TEST_CASE("two flow labels can share a port, so spreads are made of ports (rpingmesh PR 32)", "[rdma]") {
  CHECK(source_port_of_flow_label(0x7683D) == source_port_of_flow_label(0x2E82B));
  CHECK(source_port_of_flow_label(0x7683D) == 59424);
}

TEST_CASE("the flow label rule uses only the low 20 bits", "[rdma]") {
  CHECK(source_port_of_flow_label(0x00012345) == source_port_of_flow_label(0xFFF12345));
}

TEST_CASE("a spread has distinct ports in the range, and a longer one begins with the shorter", "[rdma]") {
  const auto all = spread_of_source_ports(100'000);
  REQUIRE(all.size() == kSourcePorts);
  CHECK(std::set<std::uint16_t>(all.begin(), all.end()).size() == kSourcePorts);
  CHECK(*std::min_element(all.begin(), all.end()) == kFirstSourcePort);
  const auto few = spread_of_source_ports(16);
  CHECK(std::equal(few.begin(), few.end(), all.begin()));
  CHECK(spread_of_source_ports(0).empty());
}

TEST_CASE("rxe fixes a UD source port by the queue pair number, as captured on kernel 6.1", "[rdma]") {
  CHECK(rxe_source_port(17) == 57236);
  CHECK(rxe_source_port(18) == 63494);
  CHECK(rxe_source_port(19) == 53368);
  CHECK(rxe_source_port(20) == 59626);
  CHECK(rxe_source_port(21) == 49500);
  CHECK(rxe_source_port(25) == 58149);
  CHECK(rxe_source_port(28) == 60539);
}
