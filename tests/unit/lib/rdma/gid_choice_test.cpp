#include "lib/rdma/gid_choice.h"

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::rdma;

namespace {

model::GidEntry entry(unsigned index, const char* text, model::GidType type, const char* netdev = "eth0") {
  auto gid = model::Gid::parse(text);
  REQUIRE(gid);
  return {index, *gid, type, netdev};
}

model::RdmaPort ethernet(std::vector<model::GidEntry> gids) {
  model::RdmaPort port;
  port.link_layer = model::LinkLayer::Ethernet;
  port.state = model::PortState::Active;
  port.netdev = "eth0";
  port.gids = std::move(gids);
  return port;
}

constexpr auto kV1 = model::GidType::RoceV1;
constexpr auto kV2 = model::GidType::RoceV2;

// As mlx5 shows them: each address as v1 and v2, an empty slot between, a VLAN after.
model::RdmaPort typical() {
  return ethernet({entry(0, "fe80::1", kV1), entry(1, "fe80::1", kV2), entry(3, "10.0.1.2", kV1),
                   entry(5, "10.0.9.2", kV2, "eth0.100"), entry(6, "10.0.1.2", kV2), entry(7, "2001:db8::1", kV2)});
}

}  // namespace

TEST_CASE("a bad GID index names itself and the table, and never reads as a port problem (rpingmesh PR 37)", "[rdma]") {
  for (const unsigned index : {2u, 99u}) {
    const auto choice = choose_gid("mlx5_0", typical(), index);
    REQUIRE_FALSE(choice);
    CHECK(choice.error().kind == Error::Kind::Invalid);
    const std::string message = choice.error().message();
    CHECK_THAT(message, ContainsSubstring("mlx5_0 port 1: GID index " + std::to_string(index)));
    CHECK_THAT(message, ContainsSubstring("6 10.0.1.2 RoCE v2"));
    CHECK_THAT(message, !ContainsSubstring("active"));
  }
}

TEST_CASE("a GID index past 255 is refused or passed over: an address handle keeps 8 bits of it", "[rdma]") {
  const auto port = ethernet({entry(1, "fe80::1", kV2), entry(256, "10.0.1.2", kV2)});
  const auto explicit_one = choose_gid("mlx5_0", port, 256);
  REQUIRE_FALSE(explicit_one);
  CHECK(explicit_one.error().kind == Error::Kind::Invalid);
  CHECK_THAT(explicit_one.error().message(), ContainsSubstring("mlx5_0 port 1: GID index 256"));
  CHECK(choose_gid("mlx5_0", port)->entry.index == 1);
}

TEST_CASE("an explicit RoCEv1 index is refused: it has no UDP source port", "[rdma]") {
  const auto choice = choose_gid("mlx5_0", typical(), 3);
  REQUIRE_FALSE(choice);
  CHECK(choice.error().kind == Error::Kind::Invalid);
  CHECK_THAT(choice.error().message(), ContainsSubstring("RoCEv1"));
}

TEST_CASE("a port with no RoCEv2 GID says what it has and what it needs", "[rdma]") {
  for (const auto& port : {ethernet({}), ethernet({entry(0, "fe80::1", kV1)})}) {
    const auto choice = choose_gid("bnxt_re0", port);
    REQUIRE_FALSE(choice);
    CHECK(choice.error().kind == Error::Kind::NotFound);
    CHECK_THAT(choice.error().message(), ContainsSubstring("bnxt_re0 port 1: no RoCEv2 GID"));
    CHECK_THAT(choice.error().message(), ContainsSubstring("eth0"));
  }
}

TEST_CASE(
    "RoCEv2 IPv4 of the port's own interface wins, past v1 ones and empty slots (NCCL 769, perftest 44, Mooncake 1592)",
    "[rdma]") {
  const auto choice = choose_gid("mlx5_0", typical());
  REQUIRE(choice);
  CHECK(choice->entry.index == 6);
  CHECK_THAT(choice->reason, ContainsSubstring("index 6, 10.0.1.2"));
}

TEST_CASE("a private IPv4 address is as good as any (Mooncake 2747: RFC 1918 is not an overlay)", "[rdma]") {
  const auto choice = choose_gid("rxe0", ethernet({entry(0, "2001:db8::1", kV2), entry(1, "192.168.1.7", kV2)}));
  REQUIRE(choice);
  CHECK(choice->entry.index == 1);
  CHECK_THAT(choice->reason, ContainsSubstring("the only RoCEv2 IPv4"));
}

TEST_CASE("without IPv4 a global or unique local IPv6 address goes before a link-local one (UCX PR 10939, uccl 803)",
          "[rdma]") {
  const std::string global = GENERATE("2001:db8::1", "fd93:16d3:59b6::1");
  const auto choice = choose_gid("bnxt_re0", ethernet({entry(0, "fe80::1", kV1), entry(1, "fe80::1", kV2),
                                                       entry(2, global.c_str(), kV1), entry(3, global.c_str(), kV2)}));
  REQUIRE(choice);
  CHECK(choice->entry.index == 3);
  CHECK_THAT(choice->reason, ContainsSubstring("there is no IPv4 one"));
}

TEST_CASE("an IPv4 address that the host gave itself is link-local too, and goes after what is routed", "[rdma]") {
  const auto choice = choose_gid("rxe0", ethernet({entry(0, "169.254.7.7", kV2), entry(1, "2001:db8::1", kV2)}));
  REQUIRE(choice);
  CHECK(choice->entry.index == 1);
  const auto only = choose_gid("rxe0", ethernet({entry(0, "169.254.7.7", kV2)}));
  REQUIRE(only);
  CHECK_THAT(only->reason, ContainsSubstring("behind a router cannot be reached"));
}

TEST_CASE("an fe80 GID is a link-local address, not just any IPv6 one, in whichever way it is written (sichek PR 110)",
          "[rdma]") {
  for (const char* text : {"fe80::1", "fe80:0000:0000:0000:0690:81ff:fe37:a9e8", "febf::1"}) {
    const auto choice = choose_gid("rxe0", ethernet({entry(0, text, kV2), entry(9, "fec0::1", kV2)}));
    REQUIRE(choice);
    CHECK(choice->entry.index == 9);
  }
}

TEST_CASE("on a VLAN's device its own address is found, and the port's goes before it (SoftRoCE 71)", "[rdma]") {
  auto port = ethernet({entry(0, "10.0.9.2", kV2, "eth0.100"), entry(1, "10.0.1.2", kV2)});
  CHECK(choose_gid("mlx5_0", port)->entry.index == 1);
  port.gids = {entry(0, "fe80::1", kV2), entry(4, "10.0.9.2", kV2, "eth0.100")};
  const auto vlan = choose_gid("mlx5_0", port);
  REQUIRE(vlan);
  CHECK(vlan->entry.index == 4);
  CHECK_THAT(vlan->reason, ContainsSubstring("eth0.100"));
}

TEST_CASE("only a link-local address: it is taken, and the reason warns about routers (Mooncake 2747)", "[rdma]") {
  const auto choice = choose_gid("rxe0", ethernet({entry(0, "fe80::1", kV2)}));
  REQUIRE(choice);
  CHECK_THAT(choice->reason, ContainsSubstring("router"));
}

TEST_CASE("an explicit usable index is honoured", "[rdma]") {
  const auto choice = choose_gid("mlx5_0", typical(), 1);
  REQUIRE(choice);
  CHECK(choice->entry.index == 1);
  CHECK_THAT(choice->reason, ContainsSubstring("asked for"));
}

TEST_CASE("InfiniBand takes index 0, and without one asks for the subnet manager", "[rdma]") {
  model::RdmaPort port;
  port.link_layer = model::LinkLayer::InfiniBand;
  const auto none = choose_gid("mlx5_0", port);
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().message(), ContainsSubstring("subnet manager"));
  port.gids = {entry(0, "fe80::9803:9b03:0", model::GidType::InfiniBand, "")};
  const auto choice = choose_gid("mlx5_0", port);
  REQUIRE(choice);
  CHECK(choice->entry.index == 0);
}

TEST_CASE("a long GID table is cut in messages", "[rdma]") {
  model::RdmaPort port = ethernet({});
  for (unsigned i = 0; i < 20; ++i) port.gids.push_back(entry(i, "10.0.1.2", kV1));
  CHECK_THAT(describe_gids(port), ContainsSubstring("and 12 more"));
}
