#include "lib/localise/topology.h"

#include "tests/unit/catch.h"

using namespace weft;
using localise::Topology;

namespace {

const std::string kGood = R"(fabric = "lab"
[[switch]]
name = "l1"
tier = "leaf"
[[switch]]
name = "s1"
tier = "spine"
[[host]]
name = "h1"
rail = "0"
pod = "a"
[[link]]
a = "h1/rxe0"
b = "l1"
a_addresses = ["10.1.1.2"]
b_addresses = ["10.1.1.1"]
[[link]]
a = "l1"
b = "s1"
a_addresses = ["10.9.1.1", "fd00::1"]
b_addresses = ["10.9.1.2"]
)";

std::string error_of(const std::string& text) {
  const auto parsed = Topology::parse(text, "fabric.toml");
  REQUIRE_FALSE(parsed.has_value());
  return parsed.error().context;
}

}  // namespace

TEST_CASE("a topology with an unknown key is refused with its line and column", "[topology]") {
  CHECK_THAT(error_of(kGood + "speed = 1\n"), ContainsSubstring("fabric.toml:22:1: unknown key 'link.speed'"));
}

TEST_CASE("a topology that names a switch or a host twice is refused", "[topology]") {
  CHECK_THAT(error_of(kGood + "[[switch]]\nname = \"l1\"\n"), ContainsSubstring("fabric.toml:23:8"));
  CHECK_THAT(error_of(kGood + "[[host]]\nname = \"h1\"\n"), ContainsSubstring("'h1' is named twice"));
  CHECK_THAT(error_of(kGood + "[[host]]\nname = \"s1\"\n"), ContainsSubstring("'s1' is named twice"));
}

TEST_CASE("a link to an unknown node, to a bare host or to itself is refused", "[topology]") {
  CHECK_THAT(error_of(kGood + "[[link]]\na = \"l1\"\nb = \"s9\"\n"), ContainsSubstring("no switch is named 's9'"));
  CHECK_THAT(error_of(kGood + "[[link]]\na = \"h9/rxe0\"\nb = \"l1\"\n"), ContainsSubstring("no host is named 'h9'"));
  CHECK_THAT(error_of(kGood + "[[link]]\na = \"h1\"\nb = \"l1\"\n"),
             ContainsSubstring("name its port, like h1/mlx5_0"));
  CHECK_THAT(error_of(kGood + "[[link]]\na = \"l1\"\nb = \"l1\"\n"), ContainsSubstring("two different ends"));
}

TEST_CASE("an address at two places is refused", "[topology]") {
  CHECK_THAT(error_of(kGood + "[[link]]\na = \"l1\"\nb = \"s1\"\na_addresses = [\"10.1.1.2\"]\n"),
             ContainsSubstring("address 10.1.1.2 is used twice"));
}

TEST_CASE("an address that is none, or that no interface has, is refused with its place", "[topology]") {
  for (const char* address :
       {"10.0.0", "s1-l1", "10.1.1.3/24", "fd00::1%eth0", "", "0.0.0.0", "224.0.0.5", "ff02::1"}) {
    CAPTURE(address);
    const std::string error =
        error_of(kGood + "[[link]]\na = \"l1\"\nb = \"s1\"\nb_addresses = [\"" + address + "\"]\n");
    CHECK_THAT(error,
               ContainsSubstring("fabric.toml:25:15: 'link.b_addresses': '" + std::string(address) + "' is no "));
  }
}

TEST_CASE("an address is the same however it is written", "[topology]") {
  const std::string again = kGood + "[[link]]\na = \"l1\"\nb = \"s1\"\na_addresses = [\"FD00:0:0::%\"]\n";
  const auto written = [&](char last) { return std::string(again).replace(again.find('%'), 1, 1, last); };
  CHECK_THAT(error_of(written('1')), ContainsSubstring("address fd00::1 is used twice"));
  const auto parsed = Topology::parse(written('7'), "fabric.toml");
  REQUIRE(parsed.has_value());
  CHECK(parsed->node_of("fd00::7") == "l1");
}

TEST_CASE("a tier that is no tier is refused", "[topology]") {
  CHECK_THAT(error_of("[[switch]]\nname = \"x\"\ntier = \"lead\"\n"), ContainsSubstring("must be one of"));
}

TEST_CASE("nodes are found by the addresses of their interfaces", "[topology]") {
  const auto parsed = Topology::parse(kGood, "fabric.toml");
  REQUIRE(parsed.has_value());
  CHECK(parsed->fabric() == "lab");
  CHECK(parsed->node_of("10.9.1.2") == "s1");
  CHECK(parsed->node_of("fd00::1") == "l1");
  CHECK(parsed->node_of("10.1.1.2") == "h1/rxe0");
  CHECK_FALSE(parsed->node_of("10.7.7.7").has_value());
  CHECK(parsed->link_of("10.9.1.1") == 1);
  CHECK(parsed->tier_of("s1") == "spine");
  CHECK(parsed->tier_of("h1/rxe0") == "");
  CHECK(parsed->leaf_of("h1/rxe0") == "l1");
  CHECK_FALSE(parsed->leaf_of("h2/rxe0").has_value());
}

TEST_CASE("rail and pod of a host are kept as they were said", "[topology]") {
  const auto parsed = Topology::parse(kGood + "[[host]]\nname = \"h2\"\n", "fabric.toml");
  REQUIRE(parsed.has_value());
  CHECK(parsed->place_of("h1").rail == "0");
  CHECK(parsed->place_of("h1").pod == "a");
  CHECK(parsed->place_of("h2").rail.empty());
  CHECK(parsed->place_of("h9").pod.empty());
}

TEST_CASE("a host with a port on each of two rails has a leaf for each port", "[topology]") {
  const auto parsed =
      Topology::parse(kGood + "[[switch]]\nname = \"l2\"\n[[link]]\na = \"h1/rxe1\"\nb = \"l2\"\n", "x");
  REQUIRE(parsed.has_value());
  CHECK(parsed->leaf_of("h1/rxe0") == "l1");
  CHECK(parsed->leaf_of("h1/rxe1") == "l2");
}

TEST_CASE("a port that is cabled to two switches has no one leaf", "[topology]") {
  const auto parsed =
      Topology::parse(kGood + "[[switch]]\nname = \"l2\"\n[[link]]\na = \"h1/rxe0\"\nb = \"l2\"\n", "x");
  REQUIRE(parsed.has_value());
  CHECK_FALSE(parsed->leaf_of("h1/rxe0").has_value());
}

TEST_CASE("no file is an empty topology", "[topology]") { CHECK(Topology().empty()); }
