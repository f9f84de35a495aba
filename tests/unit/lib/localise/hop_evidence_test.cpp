#include "lib/localise/hop_evidence.h"

#include <array>
#include <optional>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::localise;

namespace {

constexpr const char* kTwoLeaves = R"(
fabric = "test"
[[switch]]
name = "l1"
tier = "leaf"
[[switch]]
name = "l2"
tier = "leaf"
[[switch]]
name = "s1"
tier = "spine"
[[host]]
name = "h1"
[[host]]
name = "h3"
[[link]]
a = "h1/rxe0"
b = "l1"
a_addresses = ["10.0.1.2"]
b_addresses = ["10.0.1.1"]
[[link]]
a = "h3/rxe0"
b = "l2"
a_addresses = ["10.0.3.2"]
b_addresses = ["10.0.3.1"]
[[link]]
a = "l1"
b = "s1"
a_addresses = ["10.1.1.1"]
b_addresses = ["10.1.1.2"]
[[link]]
a = "l2"
b = "s1"
a_addresses = ["10.1.2.1"]
b_addresses = ["10.1.2.2"]
)";

constexpr Nanos kBefore = 100 * kSecond, kFault = 200 * kSecond, kAfter = 205 * kSecond;
constexpr Share kShare{60, 300};

struct Asked {
  unsigned sent = 0, answered = 0;
  std::optional<Nanos> rtt_ns = std::nullopt;
};

// h1 and h3 on their leaves, one spine between: h1>h3 crosses l1>s1 and s1>l2 together.
struct TwoLeaves {
  Fabric fabric{Topology::parse(kTwoLeaves, "test.toml").value(), false};
  EndpointId h1 = *fabric.intern_endpoint("h1/rxe0"), h3 = *fabric.intern_endpoint("h3/rxe0");
  HopEvidence hops;

  // What the three routers answered, in order.
  void told(Nanos at, std::array<Asked, 3> asked, bool there = true) {
    model::PathTrace trace;
    trace.from = there ? "h1/rxe0" : "h3/rxe0";
    trace.to = there ? "h3/rxe0" : "h1/rxe0";
    trace.from_address = there ? "10.0.1.2" : "10.0.3.2";
    trace.to_address = there ? "10.0.3.2" : "10.0.1.2";
    trace.source_port = 49152;
    trace.complete = true;
    const std::array<const char*, 3> way =
        there ? std::array{"10.0.1.1", "10.1.1.2", "10.1.2.1"} : std::array{"10.0.3.1", "10.1.2.2", "10.1.1.1"};
    for (std::size_t i = 0; i < 3; ++i) {
      model::TraceHop hop;
      hop.ttl = static_cast<std::uint8_t>(i + 1);
      hop.address = way[i];
      hop.sent = static_cast<std::uint16_t>(asked[i].sent);
      hop.answered = static_cast<std::uint16_t>(asked[i].answered);
      hop.rtt_ns = asked[i].rtt_ns;
      trace.hops.push_back(hop);
    }
    REQUIRE(fabric.add_trace(trace, at));
    hops.add(trace, there ? h1 : h3, there ? h3 : h1, at);
  }
  std::vector<LinkId> suspects() const {
    const Route* route = fabric.traced(h1, h3, {49152, 0});
    REQUIRE(route != nullptr);
    REQUIRE(route->links.size() == 4);
    return {route->links[1], route->links[2]};
  }
  void answered_in(Nanos at, std::array<unsigned, 3> ms) {
    std::array<Asked, 3> asked;
    for (std::size_t i = 0; i < 3; ++i) asked[i] = {5, 5, ms[i] * kMillisecond};
    told(at, asked);
  }
  std::string late(double margin) {
    const auto verdict = hops.separate(fabric, suspects(), Trouble::Delay, {10, 10}, 50e6, kFault);
    return verdict && verdict->margin_nats >= margin ? fabric.link_label(verdict->link) : "";
  }
  std::string blamed(double margin) {
    const auto verdict = hops.separate(fabric, suspects(), Trouble::Loss, kShare, 0, kFault);
    return verdict && verdict->margin_nats >= margin ? fabric.link_label(verdict->link) : "";
  }
};

}  // namespace

TEST_CASE("hop counts: without counts nothing is told apart", "[localise]") {
  TwoLeaves net;
  net.told(kAfter, {});
  CHECK_FALSE(net.hops.separate(net.fabric, net.suspects(), Trouble::Loss, kShare, 0, kFault));
}

TEST_CASE("hop counts: a router that answers clears the links up to it", "[localise]") {
  TwoLeaves net;
  net.told(kAfter, {{{30, 30}, {30, 30}, {30, 24}}});
  CHECK(net.blamed(5) == "s1>l2");
}

TEST_CASE("hop counts: a router known to answer that falls silent is beyond the sick link", "[localise]") {
  TwoLeaves net;
  net.told(kBefore, {{{100, 100}, {100, 100}, {100, 100}}});
  net.told(kAfter, {{{50, 50}, {50, 40}, {50, 40}}});
  CHECK(net.blamed(5) == "l1>s1");
}

TEST_CASE("hop counts: a dozen answers before the trouble are too few to accuse by silence", "[localise]") {
  TwoLeaves net;
  net.told(kBefore, {{{12, 12}, {12, 12}, {12, 12}}});
  net.told(kAfter, {{{50, 50}, {50, 43}, {50, 40}}});
  CHECK(net.blamed(3).empty());
}

TEST_CASE("hop counts: silence of a router nobody knows is no word against a link", "[localise]") {
  TwoLeaves net;
  net.told(kAfter, {{{50, 50}, {50, 40}, {50, 40}}});
  CHECK(net.blamed(0.5).empty());
}

TEST_CASE("hop counts: silence that fits the loss is no word for the other link either, where nobody knows the router",
          "[localise]") {
  TwoLeaves net;
  net.told(kAfter, {{{100, 100}, {100, 78}, {100, 78}}});
  CHECK(net.blamed(0.5).empty());
}

TEST_CASE("hop counts: a router at its ICMP limit accuses nobody (a limited router looks like loss)", "[localise]") {
  TwoLeaves net;
  SECTION("never known to answer") {}
  SECTION("known to answer well, asked too much since") { net.told(kBefore, {{{20, 20}, {20, 20}, {20, 20}}}); }
  SECTION("known to answer half") { net.told(kBefore, {{{40, 40}, {40, 20}, {40, 40}}}); }
  net.told(kAfter, {{{50, 50}, {50, 7}, {50, 40}}});
  CHECK(net.blamed(1) != "l1>s1");
}

TEST_CASE("hop counts: a router that is as silent to probes that cross no suspect accuses nobody", "[localise]") {
  TwoLeaves net;
  net.told(kAfter, {{{20, 20}, {50, 40}, {50, 40}}});
  net.told(kAfter, {{{50, 50}, {50, 40}, {50, 40}}}, false);
  CHECK(net.blamed(1) != "l1>s1");
}

TEST_CASE("hop counts: how a router answers is remembered when the counts themselves are old", "[localise]") {
  TwoLeaves net;
  net.told(kBefore, {{{100, 100}, {100, 100}, {100, 100}}});
  SECTION("expired") { net.hops.expire(kBefore + 100 * kSecond); }
  SECTION("forgotten") { net.hops.forget(); }
  net.told(kAfter, {{{50, 50}, {50, 40}, {50, 40}}});
  CHECK(net.blamed(5) == "l1>s1");
}

TEST_CASE("hop counts: silence in a trouble does not become a habit of the router", "[localise]") {
  TwoLeaves net;
  net.told(kBefore, {{{100, 100}, {100, 100}, {100, 100}}});
  net.told(kAfter, {{{200, 200}, {200, 160}, {200, 160}}});
  CHECK(net.blamed(5) == "l1>s1");
  net.hops.forget();
  net.told(kAfter, {{{50, 50}, {50, 40}, {50, 40}}});
  CHECK(net.blamed(5) == "l1>s1");
}

TEST_CASE("hop counts: more answers than packets are clamped, absurd hop numbers refused", "[localise]") {
  TwoLeaves net;
  net.told(kAfter, {{{10, 65535}, {10, 65535}, {10, 65535}}});
  const auto verdict = net.hops.separate(net.fabric, net.suspects(), Trouble::Loss, kShare, 0, kFault);
  REQUIRE(verdict);
  CHECK(verdict->tries == 10);
}

TEST_CASE("hop delay: routers late from one hop on name the link before it", "[localise]") {
  for (const bool known : {true, false}) {
    TwoLeaves far;
    TwoLeaves near;
    if (known) {
      far.answered_in(kBefore, {2, 3, 4});
      near.answered_in(kBefore, {2, 3, 4});
    }
    for (int i = 0; i < 3; ++i) {
      far.answered_in(kAfter + i * kSecond, {3, 4, 55});
      near.answered_in(kAfter + i * kSecond, {3, 54, 55});
    }
    CHECK(far.late(5) == "s1>l2");
    CHECK(near.late(5) == "l1>s1");
  }
}

TEST_CASE("hop delay: a host that finds even the router before all suspects late says nothing", "[localise]") {
  TwoLeaves net;
  net.answered_in(kBefore, {2, 3, 4});
  for (int i = 0; i < 20; ++i) net.answered_in(kAfter + i * kMillisecond, {40, 45, 90});
  CHECK(net.late(0.1).empty());
}

TEST_CASE("hop delay: a second in which the router beyond all suspects was on time says nothing", "[localise]") {
  TwoLeaves net;
  net.answered_in(kBefore, {2, 3, 4});
  for (int i = 0; i < 20; ++i) net.answered_in(kAfter + i * kMillisecond, {3, 40, 5});
  CHECK(net.late(0.1).empty());
}
