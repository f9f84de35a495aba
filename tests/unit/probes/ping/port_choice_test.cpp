#include "probes/ping/port_choice.h"

#include <set>
#include <utility>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

namespace {

const std::vector<std::uint16_t> kOwn{50001, 50002, 50003};
const std::vector<LaneInfo> kLanes{{Role::Prober, 11, 50001}, {Role::Prober, 12, 50002}, {Role::Prober, 13, 50003}};

ResponderInfo peer_with(std::vector<HelloLane> lanes, bool any_port = false) {
  ResponderInfo peer;
  peer.name = "h3/rxe0";
  peer.lanes = std::move(lanes);
  peer.any_port = any_port;
  return peer;
}

std::set<std::pair<std::uint16_t, std::uint16_t>> pairs_of(const ResponderInfo& peer, bool udp, std::size_t turns) {
  std::set<std::pair<std::uint16_t, std::uint16_t>> pairs;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    const auto ports = choose_ports({}, turn, kOwn, kLanes, peer, udp);
    CHECK(ports.error.empty());
    pairs.emplace(ports.forward, ports.back);
  }
  return pairs;
}

}  // namespace

TEST_CASE("port choice: without an open port it says so", "[ping]") {
  CHECK(choose_ports({}, 0, {}, {}, peer_with({{21, 51001}}), false).error == "no prober port is open");
}

TEST_CASE("port choice: a planned acknowledgement port that the peer lacks is said, with those it has", "[ping]") {
  model::PlanPath plan;
  plan.return_port = 51009;
  const auto ports = choose_ports(plan, 0, kOwn, kLanes, peer_with({{21, 51001}, {22, 51002}}), false);
  CHECK(ports.error == "h3/rxe0 has no acknowledgement port 51009; it offers 51001 51002");
}

TEST_CASE("port choice: a peer that answers from any port is asked for the planned one", "[ping]") {
  model::PlanPath plan;
  plan.return_port = 51009;
  const auto ports = choose_ports(plan, 0, kOwn, kLanes, peer_with({{21, 51001}}, true), false);
  CHECK(ports.error.empty());
  CHECK(ports.back == 51009);
  CHECK(ports.responder_number == 21);
}

TEST_CASE("port choice: turns over RoCE come to every pair, each once", "[ping]") {
  CHECK(pairs_of(peer_with({{21, 51001}, {22, 51002}, {23, 51003}, {24, 51004}}), false, 12).size() == 12);
}

TEST_CASE("port choice: turns over UDP keep each port with its partner", "[ping]") {
  const auto pairs = pairs_of(peer_with({{21, 51001}, {22, 51002}, {23, 51003}, {24, 51004}}), true, 100);
  CHECK(pairs.size() == kOwn.size());
}

TEST_CASE("port choice: the lanes are those of the ports", "[ping]") {
  model::PlanPath plan;
  plan.forward_port = 50002;
  plan.return_port = 51002;
  const auto ports = choose_ports(plan, 7, kOwn, kLanes, peer_with({{21, 51001}, {22, 51002}}), false);
  CHECK(ports.prober_number == 12);
  CHECK(ports.responder_number == 22);
  CHECK(ports.forward == 50002);
  CHECK(ports.back == 51002);
}
