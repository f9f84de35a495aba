// The scenarios of the lab, simulated: what must be found, how soon, and that nothing else is.
#include <algorithm>

#include "tests/unit/catch.h"
#include "tests/unit/lib/localise/simulator.h"

using namespace weft;
using namespace weft::test;
using model::FindingKind;

namespace {

SimConfig lab(std::uint64_t seed = 1) {
  SimConfig config;
  config.seed = seed;
  config.localiser.delay_floor_ns = 10 * kMillisecond;
  return config;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a healthy lab with emulated noise raises nothing in half an hour", "[localise]") {
  for (const std::uint64_t seed : {1, 2}) {
    Simulator sim(lab(seed));
    sim.run(1800);
    CHECK(sim.raised() == Names{});
    CHECK(sim.localiser().coverage(sim.now()).ready);
    CHECK(sim.localiser().dropped() == 0);
  }
}

TEST_CASE("spine-loss: 20 percent one way on s1>l2 is that link, within five seconds", "[localise]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Simulator sim(lab(seed));
    sim.run(60);
    sim.link("s1>l2").loss = 0.2;
    const auto took = sim.until(FindingKind::LinkLoss, "link:s1>l2", 30);
    INFO("seed " << seed);
    CHECK(took.value_or(99) <= 6);
    sim.run(30);
    CHECK(sim.raised() == Names{"link_loss link:s1>l2"});
  }
}

TEST_CASE("spine-delay: 50 ms one way on s1>l2 is that link and direction", "[localise]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Simulator sim(lab(seed));
    sim.run(60);
    sim.link("s1>l2").delay_ms = 50;
    const auto took = sim.until(FindingKind::LinkDelay, "link:s1>l2", 30);
    INFO("seed " << seed);
    CHECK(took.value_or(99) <= 6);
    sim.run(30);
    CHECK(sim.raised() == Names{"link_delay link:s1>l2"});
  }
}

TEST_CASE("spine-ecn: marks one way on s1>l2 are that link and direction, and no loss", "[localise]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Simulator sim(lab(seed));
    sim.run(60);
    sim.link("s1>l2").ce = 0.4;
    const auto took = sim.until(FindingKind::LinkEcn, "link:s1>l2", 30);
    INFO("seed " << seed);
    CHECK(took.value_or(99) <= 6);
    sim.run(30);
    CHECK(sim.raised() == Names{"link_ecn link:s1>l2"});
  }
}

TEST_CASE("host-link-down: a dead cable with the port still active is one link_down of the cable", "[localise]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Simulator sim(lab(seed));
    sim.run(60);
    sim.both_ways("h3", "l2", {1, 0, 0, false});
    const auto took = sim.until(FindingKind::LinkDown, "link:h3-l2", 30);
    INFO("seed " << seed);
    CHECK(took.value_or(99) <= 7);
    sim.run(30);
    CHECK(sim.raised() == Names{"link_down link:h3-l2"});
  }
}

TEST_CASE("host-link-down: the port's own word names the same cable at once", "[localise]") {
  Simulator sim(lab());
  sim.run(60);
  sim.host("h3").port_up = false;
  sim.send_inventory("h3");
  CHECK(sim.until(FindingKind::LinkDown, "link:h3-l2", 30).value_or(99) <= 2);
  sim.run(30);
  CHECK(sim.raised() == Names{"link_down link:h3-l2"});
}

TEST_CASE("rnic-gone: a deleted device is rnic_unreachable, and clears when it is back", "[localise]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Simulator sim(lab(seed));
    sim.run(60);
    sim.host("h3").device = false;
    sim.run(1);
    sim.send_inventory("h3");
    CHECK(sim.until(FindingKind::RnicUnreachable, "rnic:h3/rxe0", 30).value_or(99) <= 3);
    sim.run(20);
    sim.host("h3").device = true;
    ++sim.host("h3").epoch;
    sim.send_inventory("h3");
    sim.run(40);
    INFO("seed " << seed);
    CHECK(sim.raised() == Names{"rnic_unreachable rnic:h3/rxe0"});
    CHECK(sim.active() == Names{});
    CHECK(sim.localiser().coverage(sim.now()).ready);
  }
}

TEST_CASE("host-stall: a frozen weftd is host_silent, no link and no rnic", "[localise]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Simulator sim(lab(seed));
    sim.run(60);
    sim.host("h3").frozen = true;
    const auto took = sim.until(FindingKind::HostSilent, "host:h3", 9);
    sim.run(static_cast<unsigned>(10 - took.value_or(9)));
    sim.host("h3").frozen = false;
    sim.run(40);
    INFO("seed " << seed);
    CHECK(took.value_or(99) <= 6);
    CHECK(sim.raised() == Names{"host_silent host:h3"});
    CHECK(sim.active() == Names{});
  }
}

TEST_CASE("spine-delay: on paths whose healthy time nobody knows, how late they are is told from their siblings",
          "[localise]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Simulator sim(lab(seed));
    sim.link("s1>l2").delay_ms = 50;
    sim.run(60);
    INFO("seed " << seed);
    CHECK(sim.raised() == Names{"link_delay link:s1>l2"});
  }
}

TEST_CASE("spine-delay: noise that all paths share does not hide a path later than its siblings", "[localise]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Simulator sim(lab(seed));
    sim.set_busy_ms(60);
    sim.run(60);
    CHECK(sim.raised() == Names{});
    sim.link("s1>l2").delay_ms = 50;
    INFO("seed " << seed);
    CHECK(sim.until(FindingKind::LinkDelay, "link:s1>l2", 15));
    CHECK(sim.raised() == Names{"link_delay link:s1>l2"});
  }
}

TEST_CASE("spine-delay: hosts late for a moment of each second do not hide a late path, and are no link's delay",
          "[localise]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SimConfig config = lab(seed);
    config.noise.host_stall_per_s = 0.8;
    config.noise.host_stall_most_ms = 140;
    Simulator sim(config);
    sim.run(120);
    INFO("seed " << seed);
    CHECK(sim.raised() == Names{});
    sim.link("s1>l2").delay_ms = 50;
    CHECK(sim.until(FindingKind::LinkDelay, "link:s1>l2", 15));
    sim.run(30);
    CHECK(sim.raised() == Names{"link_delay link:s1>l2"});
  }
}

TEST_CASE("suspicions: what is not blamed yet is told with its numbers, and gone when nothing is wrong", "[localise]") {
  Simulator sim(lab());
  sim.run(60);
  CHECK(sim.localiser().suspicions().empty());
  sim.link("s1>l2").loss = 0.2;
  REQUIRE(sim.until(FindingKind::LinkLoss, "link:s1>l2", 20));
  const std::vector<std::string>& lines = sim.localiser().suspicions();
  CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("loss of link:s1>l2 over ") && line.ends_with(": blamed");
  }));
}

TEST_CASE("spine-delay: a finding stays while its hosts run too late to say anything, and clears when they do",
          "[localise]") {
  Simulator sim(lab());
  sim.run(60);
  sim.link("s1>l2").delay_ms = 50;
  REQUIRE(sim.until(FindingKind::LinkDelay, "link:s1>l2", 20));
  for (const char* host : {"h1", "h2", "h3", "h4"}) sim.host(host).hog = 0.3;
  sim.run(40);
  const Names during = sim.active();
  CHECK(std::count(during.begin(), during.end(), "link_delay link:s1>l2") == 1);
  for (const char* host : {"h1", "h2", "h3", "h4"}) sim.host(host).hog = 0;
  sim.run(30);
  CHECK(sim.active() == Names{"link_delay link:s1>l2"});
  sim.link("s1>l2").delay_ms = 0;
  sim.run(60);
  CHECK(sim.active() == Names{});
}

TEST_CASE("host-hog: a host without time to run is host_overloaded, no link and no rnic", "[localise]") {
  for (const double share : {0.3, 0.7, 0.9}) {
    Simulator sim(lab());
    sim.run(60);
    sim.host("h3").hog = share;
    CHECK(sim.until(FindingKind::HostOverloaded, "host:h3", 30).value_or(99) <= 6);
    sim.run(60);
    sim.host("h3").hog = 0;
    sim.run(60);
    INFO("share " << share);
    CHECK(sim.raised() == Names{"host_overloaded host:h3"});
    CHECK(sim.active() == Names{});
  }
}

TEST_CASE("host-hog: a host that is heard only now and then is host_overloaded, not silent", "[localise]") {
  for (const bool answers : {true, false}) {
    Simulator sim(lab());
    sim.run(60);
    sim.host("h3").hog = 0.95;
    sim.run(3);
    // From here on its reports come in bunches, and no probe is answered in time.
    sim.host("h3").report_every_s = 5;
    if (!answers) sim.host("h3").receive_loss = 1;
    CHECK(sim.until(FindingKind::HostOverloaded, "host:h3", 30).value_or(99) <= 8);
    sim.run(40);
    sim.host("h3").receive_loss = 0;
    sim.host("h3").report_every_s = 1;
    sim.host("h3").hog = 0;
    sim.run(60);
    INFO("answers " << answers);
    CHECK(sim.raised() == Names{"host_overloaded host:h3"});
    CHECK(sim.active() == Names{});
  }
}

Nanos since_of(Simulator& sim, FindingKind kind) {
  std::vector<Nanos> since;
  for (const auto& verdict : sim.localiser().judge(sim.now())) {
    if (verdict.finding.kind == kind) since.push_back(verdict.finding.since_ns);
  }
  REQUIRE(since.size() == 1);
  return since[0];
}

TEST_CASE("host-stall: a second silence soon after the first begins by itself", "[localise]") {
  Simulator sim(SimConfig{});
  sim.run(40);
  sim.host("h3").frozen = true;
  sim.run(8);
  sim.host("h3").frozen = false;
  sim.run(8);
  const Nanos stopped = sim.now();
  sim.host("h3").frozen = true;
  sim.run(8);
  CHECK(since_of(sim, FindingKind::HostSilent) >= stopped - 2 * kSecond);
}

TEST_CASE("host-hog: a host overloaded again soon after the first time is so since then", "[localise]") {
  Simulator sim(lab());
  sim.run(60);
  sim.host("h3").hog = 0.8;
  REQUIRE(sim.until(FindingKind::HostOverloaded, "host:h3", 30));
  sim.host("h3").hog = 0;
  sim.run(12);
  const Nanos again = sim.now();
  sim.host("h3").hog = 0.8;
  sim.run(12);
  CHECK(since_of(sim, FindingKind::HostOverloaded) >= again - 2 * kSecond);
}

TEST_CASE("host-hog: a host that was overloaded and then dies is host_silent all the same", "[localise]") {
  Simulator sim(lab());
  sim.run(60);
  sim.host("h3").hog = 0.8;
  REQUIRE(sim.until(FindingKind::HostOverloaded, "host:h3", 30));
  sim.host("h3").frozen = true;
  CHECK(sim.until(FindingKind::HostSilent, "host:h3", 30).value_or(99) <= 10);
}

TEST_CASE("agent-restart: a goodbye and a start five seconds later raise nothing", "[localise]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Simulator sim(lab(seed));
    sim.run(60);
    sim.goodbye("h3", 30 * kSecond);
    sim.run(5);
    sim.start("h3");
    sim.run(60);
    CHECK(sim.raised() == Names{});
    CHECK(sim.localiser().coverage(sim.now()).ready);
  }
}

TEST_CASE("aggregator-restart: during spine-loss the finding is neither lost nor doubled", "[localise]") {
  for (const std::string sick : {"s1>l2", "l1>s1"}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      Simulator sim(lab(seed));
      sim.run(60);
      sim.link(sick).loss = 0.2;
      sim.run(20);
      INFO(sick << ", seed " << seed);
      REQUIRE(sim.active() == Names{"link_loss link:" + sick});
      const std::string id = sim.tracker().active().front().id;
      sim.restart_aggregator();
      sim.run(60);
      CHECK(sim.active() == Names{"link_loss link:" + sick});
      CHECK(sim.tracker().active().front().id == id);
      CHECK(sim.raised() == Names{"link_loss link:" + sick});
    }
  }
}
