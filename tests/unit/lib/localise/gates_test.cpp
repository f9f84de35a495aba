// Accuracy gates over many simulated faults, and the cases in which the honest answer is less than a link.
#include <algorithm>
#include <set>

#include "tests/unit/catch.h"
#include "tests/unit/lib/localise/simulator.h"

using namespace weft;
using namespace weft::test;
using model::FindingKind;

namespace {

using Names = std::vector<std::string>;

SimConfig fabric(unsigned leaves, unsigned hosts_per_leaf, unsigned spines, std::uint64_t seed = 1) {
  SimConfig config;
  config.leaves = leaves;
  config.hosts_per_leaf = hosts_per_leaf;
  config.spines = spines;
  config.seed = seed;
  config.localiser.delay_floor_ns = 10 * kMillisecond;
  return config;
}

bool has(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string random_spine_link(Random& random, const SimConfig& config) {
  const std::string leaf = "l" + std::to_string(1 + random.below(config.leaves));
  const std::string spine = "s" + std::to_string(1 + random.below(config.spines));
  return random.chance(0.5) ? leaf + ">" + spine : spine + ">" + leaf;
}

struct Suffered {
  unsigned seconds;  // until the finding was there; 40: it did not come
  Names found;
};

// Runs with the links' faults until the finding is there, then without them until all is over.
Suffered suffer(Simulator& sim, const std::string& wanted) {
  const auto before = static_cast<std::ptrdiff_t>(sim.raised().size());
  unsigned seconds = 0;
  while (seconds < 40 && !has(sim.active(), wanted)) {
    sim.step();
    ++seconds;
  }
  sim.clear_links();
  sim.run(50);
  return {seconds, Names(sim.raised().begin() + before, sim.raised().end())};
}

}  // namespace

TEST_CASE("twelve simulated hours of a healthy lab raises nothing", "[gates][slow]") {
  Simulator sim(fabric(2, 2, 2, 11));
  sim.run(43'200);
  CHECK(sim.raised() == Names{});
}

TEST_CASE("a healthy fabric of 64 hosts with a little loss everywhere raises nothing", "[gates][slow]") {
  SimConfig config = fabric(8, 8, 4, 3);
  config.noise = Noise::production();
  config.noise.loss = 0.0003;
  config.localiser.delay_floor_ns = 20 * kMicrosecond;
  Simulator sim(config);
  sim.run(60);
  CHECK(sim.raised() == Names{});
}

TEST_CASE("single hard faults: the link is the only one named, nearly always, within seconds", "[gates][slow]") {
  const SimConfig config = fabric(4, 4, 4, 5);
  Simulator sim(config);
  sim.run(60);
  REQUIRE(sim.localiser().coverage(sim.now()).ready);
  Random random(99);
  unsigned right = 0;
  std::vector<double> times;
  constexpr unsigned kFaults = 20;
  for (unsigned i = 0; i < kFaults; ++i) {
    const std::string link = random_spine_link(random, config);
    FindingKind kind = FindingKind::LinkLoss;
    if (i % 3 == 0) sim.link(link).loss = 0.05 + 0.3 * random.uniform();
    if (i % 3 == 1) {
      sim.link(link).delay_ms = 50;
      kind = FindingKind::LinkDelay;
    }
    if (i % 3 == 2) {
      sim.link(link).ce = 0.3;
      kind = FindingKind::LinkEcn;
    }
    const std::string wanted = std::string(model::finding_info(kind).name) + " link:" + link;
    const auto [second, found] = suffer(sim, wanted);
    times.push_back(second);
    if (found == Names{wanted}) {
      ++right;
    } else {
      std::string list;
      for (const std::string& name : found) list += name + " ";
      WARN(wanted << " came out as: " << list);
    }
  }
  std::sort(times.begin(), times.end());
  INFO("median seconds " << times[times.size() / 2] << ", worst " << times.back());
  CHECK(right * 100 >= kFaults * 95);
  CHECK(times[times.size() / 2] <= 5);
}

TEST_CASE("two leaves, two spines, two hosts a leaf: loss, delay and marks of a spine link are named within seconds",
          "[gates][slow]") {
  struct Trouble {
    FindingKind kind;
    LinkFault fault;
  };
  const std::vector<Trouble> troubles{{FindingKind::LinkLoss, {.loss = 0.2}},
                                      {FindingKind::LinkDelay, {.delay_ms = 50}},
                                      {FindingKind::LinkEcn, {.ce = 0.4}}};
  for (const auto& [kind, fault] : troubles) {
    std::vector<unsigned> times;
    unsigned right = 0;
    Simulator sim(fabric(2, 2, 2, 11));
    sim.run(60);
    Random random(7);
    const SimConfig config;
    constexpr unsigned kFaults = 40;
    for (unsigned i = 0; i < kFaults; ++i) {
      const std::string link = random_spine_link(random, config);
      const std::string wanted = std::string(model::finding_info(kind).name) + " link:" + link;
      sim.link(link) = fault;
      const auto [second, found] = suffer(sim, wanted);
      times.push_back(second);
      right += found == Names{wanted} ? 1 : 0;
    }
    std::sort(times.begin(), times.end());
    INFO(model::finding_info(kind).name << ": " << right << " right, median " << times[kFaults / 2] << " s, 9 of 10 in "
                                        << times[kFaults * 9 / 10] << " s, worst " << times.back() << " s");
    CHECK(right * 100 >= kFaults * 95);
    CHECK(times[kFaults / 2] <= 4);
  }
}

TEST_CASE("over UDP, where both ports choose each way, the spine link is named as well", "[gates]") {
  SimConfig config = fabric(2, 2, 2, 12);
  config.udp = true;
  Simulator sim(config);
  sim.run(60);
  REQUIRE(sim.localiser().coverage(sim.now()).ready);
  Random random(8);
  std::vector<unsigned> times;
  for (unsigned i = 0; i < 12; ++i) {
    const std::string link = random_spine_link(random, config);
    sim.link(link).loss = 0.2;
    const auto [second, found] = suffer(sim, "link_loss link:" + link);
    CHECK(found == Names{"link_loss link:" + link});
    times.push_back(second);
  }
  std::sort(times.begin(), times.end());
  CHECK(times[6] <= 5);
}

TEST_CASE("two faults at once are both found, and nothing else", "[gates]") {
  unsigned right = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const SimConfig config = fabric(4, 4, 4, seed);
    Simulator sim(config);
    sim.run(50);
    Random random(seed + 7);
    const std::string a = random_spine_link(random, config);
    std::string b = a;
    while (b == a) b = random_spine_link(random, config);
    sim.link(a).loss = 0.2;
    sim.link(b).loss = 0.3;
    sim.run(25);
    std::set<std::string> raised(sim.raised().begin(), sim.raised().end());
    if (raised == std::set<std::string>{"link_loss link:" + a, "link_loss link:" + b}) {
      ++right;
    } else {
      std::string list;
      for (const std::string& name : raised) list += name + " ";
      WARN(a << " and " << b << " came out as: " << list);
    }
  }
  CHECK(right >= 5);
}

TEST_CASE("one percent of loss is found in five minutes, and over when it is over", "[gates]") {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    Simulator sim(fabric(4, 2, 2, seed));
    sim.run(60);
    sim.link("s1>l2").loss = 0.01;
    CHECK(sim.until(FindingKind::LinkLoss, "link:s1>l2", 300).has_value());
    sim.clear_links();
    sim.run(90);
    CHECK(sim.raised() == Names{"link_loss link:s1>l2"});
    CHECK(sim.active() == Names{});
  }
}

TEST_CASE("a dead cable between switches is one undirected link_down", "[gates]") {
  for (const unsigned leaves : {2U, 4U}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      Simulator sim(fabric(leaves, 2, 2, seed));
      sim.run(60);
      sim.both_ways("s1", "l2", {1, 0, 0, false});
      INFO("leaves " << leaves << " seed " << seed);
      CHECK(sim.until(FindingKind::LinkDown, "link:l2-s1", 30).value_or(99) <= 7);
      sim.run(20);
      sim.clear_links();
      sim.run(40);
      CHECK(sim.raised() == Names{"link_down link:l2-s1"});
      CHECK(sim.active() == Names{});
    }
  }
}

TEST_CASE("a link that is dead one way is link_down of that direction", "[gates]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Simulator sim(fabric(2, 2, 2, seed));
    sim.run(60);
    sim.link("s1>l2").loss = 1;
    INFO("seed " << seed);
    CHECK(sim.until(FindingKind::LinkDown, "link:s1>l2", 30).value_or(99) <= 7);
    sim.run(20);
    CHECK(sim.raised() == Names{"link_down link:s1>l2"});
  }
}

TEST_CASE("a dead spine is one finding on the switch", "[gates]") {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    Simulator sim(fabric(4, 2, 3, seed));
    sim.run(60);
    for (unsigned l = 1; l <= 4; ++l) sim.both_ways("s2", "l" + std::to_string(l), {1, 0, 0, false});
    sim.run(25);
    INFO("seed " << seed);
    CHECK(sim.raised() == Names{"link_down switch:s2"});
  }
}

TEST_CASE("a dead leaf is one finding on the switch", "[gates]") {
  Simulator sim(fabric(3, 3, 2));
  sim.run(60);
  for (unsigned s = 1; s <= 2; ++s) sim.both_ways("l2", "s" + std::to_string(s), {1, 0, 0, false});
  for (unsigned h = 4; h <= 6; ++h) sim.both_ways("l2", "h" + std::to_string(h), {1, 0, 0, false});
  sim.run(25);
  CHECK(sim.raised() == Names{"link_down switch:l2"});
}

TEST_CASE("a device that loses both ways is rnic_unreachable, one that loses one way is that way's cable", "[gates]") {
  SECTION("both ways") {
    Simulator sim(fabric(2, 3, 2));
    sim.run(60);
    sim.host("h3").receive_loss = 0.3;
    sim.host("h3").send_loss = 0.3;
    sim.run(30);
    CHECK(sim.raised() == Names{"rnic_unreachable rnic:h3/rxe0"});
  }
  SECTION("inward only") {
    Simulator sim(fabric(2, 3, 2));
    sim.run(60);
    sim.host("h3").receive_loss = 0.3;
    sim.run(30);
    CHECK(sim.raised() == Names{"link_loss link:l1>h3"});
  }
}

TEST_CASE("where two hosts share a leaf, a device that loses is named, its neighbour and the switch are not",
          "[gates]") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Simulator sim(fabric(2, 2, 2, seed));
    sim.run(60);
    sim.host("h3").receive_loss = 0.3;
    sim.host("h3").send_loss = 0.3;
    sim.run(30);
    INFO("seed " << seed);
    CHECK(sim.raised() == Names{"rnic_unreachable rnic:h3/rxe0"});
  }
}

TEST_CASE("two sick devices under one leaf are both named, the worse one does not hide the other", "[gates]") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Simulator sim(fabric(2, 4, 2, seed));
    sim.run(60);
    sim.host("h5").receive_loss = sim.host("h5").send_loss = 0.6;
    sim.host("h6").receive_loss = sim.host("h6").send_loss = 0.25;
    sim.run(40);
    INFO("seed " << seed);
    const std::set<std::string> raised(sim.raised().begin(), sim.raised().end());
    CHECK(raised == std::set<std::string>{"rnic_unreachable rnic:h5/rxe0", "rnic_unreachable rnic:h6/rxe0"});
  }
}

TEST_CASE("of a host with a device on each of two leaves the sick cable is named, the other device is not accused",
          "[gates]") {
  const auto dual = [](std::uint64_t seed) {
    SimConfig config = fabric(2, 2, 2, seed);
    config.devices = 2;
    return config;
  };
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    INFO("seed " << seed);
    {
      Simulator sim(dual(seed));
      sim.run(90);
      CHECK(sim.localiser().coverage(sim.now()).ready);
      CHECK(sim.raised() == Names{});
      // rxe0 of h1 is on l1, rxe1 on l2.
      sim.both_ways("h1", "l2", {1, 0, 0, false});
      sim.run(30);
      CHECK(sim.raised() == Names{"link_down link:h1-l2"});
    }
    {
      Simulator sim(dual(seed));
      sim.run(90);
      sim.link("l2>h1").loss = 0.2;
      sim.run(30);
      CHECK(sim.raised() == Names{"link_loss link:l2>h1"});
    }
    {
      Simulator sim(dual(seed));
      sim.run(90);
      sim.host("h1").device = false;
      sim.send_inventory("h1");
      sim.run(30);
      CHECK(sim.raised() == Names{"rnic_unreachable rnic:h1/rxe0"});
    }
  }
}

TEST_CASE("loss of one host pair only is said of the pair, and no link is accused", "[gates]") {
  Simulator sim(fabric(2, 3, 2));
  sim.run(60);
  sim.host("h1").peers_refused.insert("h4");
  sim.run(40);
  CHECK(sim.raised() == Names{"link_loss pair:h1>h4"});
}

TEST_CASE("with two leaves and no hop counts the claim stops at the switch both suspects touch", "[gates]") {
  SimConfig config = fabric(2, 2, 2);
  config.hop_counts = false;
  Simulator sim(config);
  sim.run(60);
  sim.link("s1>l2").loss = 0.2;
  sim.run(60);
  REQUIRE(sim.raised() == Names{"link_loss switch:s1"});
  const model::Finding& finding = sim.raised_findings().front();
  CHECK(finding.confidence < 0.75);
  CHECK_THAT(finding.not_checked.at(0), ContainsSubstring("l1>s1") && ContainsSubstring("s1>l2"));
}

TEST_CASE("with two leaves and routers at Linux's default ICMP limit the link is named within 40 s, or less is claimed",
          "[gates]") {
  unsigned named = 0;
  for (const std::string sick : {"s1>l2", "l1>s1"}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SimConfig config = fabric(2, 2, 2, seed);
      config.limited_routers = true;
      Simulator sim(config);
      sim.run(60);
      sim.link(sick).loss = 0.2;
      sim.run(40);
      INFO(sick << ", seed " << seed);
      if (sim.raised() == Names{"link_loss link:" + sick}) {
        ++named;
      } else {
        CHECK(sim.raised() == Names{"link_loss switch:s1"});
      }
    }
  }
  INFO(named << " of 20 named");
  CHECK(named >= 19);
}

TEST_CASE("with three leaves end-to-end probes alone name link and direction", "[gates]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SimConfig config = fabric(3, 2, 2, seed);
    config.hop_counts = false;
    Simulator sim(config);
    sim.run(60);
    sim.link("s1>l2").loss = 0.2;
    sim.run(30);
    CHECK(sim.raised() == Names{"link_loss link:s1>l2"});
  }
}

TEST_CASE("without a topology file links are named by the addresses routers answer from", "[gates]") {
  SECTION("inbound interface: the next address is the link") {
    SimConfig config = fabric(2, 2, 2);
    config.topology = false;
    Simulator sim(config);
    sim.run(60);
    CHECK(sim.localiser().coverage(sim.now()).ready);
    sim.link("s1>l2").loss = 0.2;
    sim.run(30);
    CHECK(sim.raised() == Names{"link_loss link:10.1.1.2>10.2.1.1"});
  }
  SECTION("one address a router: both ends are the link") {
    SimConfig config = fabric(2, 2, 2);
    config.topology = false;
    config.inbound_addresses = false;
    Simulator sim(config);
    sim.run(60);
    CHECK(sim.localiser().coverage(sim.now()).ready);
    sim.link("s1>l2").loss = 0.2;
    sim.run(30);
    CHECK(sim.raised() == Names{"link_loss link:192.0.2.1>192.0.1.2"});
  }
}

TEST_CASE("where a port is no path the claim is the pair of leaves", "[gates]") {
  SimConfig config = fabric(3, 3, 2);
  config.localiser.paths_not_pinned = true;
  Simulator sim(config);
  sim.run(60);
  sim.link("s1>l2").loss = 0.4;
  sim.run(40);
  for (const std::string& name : sim.raised()) {
    INFO(name);
    CHECK((name == "link_loss pair:l1>l2" || name == "link_loss pair:l3>l2"));
  }
  CHECK(sim.raised().size() == 2);
}

TEST_CASE("cleared ECN bits are cannot_measure, never no congestion and never a fault", "[gates]") {
  Simulator sim(fabric(3, 2, 2));
  sim.run(60);
  sim.link("s1>l2").bleach = true;
  sim.run(40);
  CHECK(sim.raised() == Names{});
  CHECK(has(sim.told(), "cannot_measure link:s1>l2"));
}

TEST_CASE("a host whose reports stop while it answers probes is cannot_measure, not silent", "[gates]") {
  Simulator sim(fabric(2, 2, 2));
  sim.run(60);
  sim.host("h3").reports = false;
  sim.run(30);
  CHECK(sim.raised() == Names{});
  CHECK(has(sim.told(), "cannot_measure host:h3"));
}

TEST_CASE("a stop that was announced pages nobody, however long: it is cannot_measure past its allowance", "[gates]") {
  Simulator sim(fabric(2, 2, 2));
  sim.run(60);
  sim.goodbye("h3", 10 * kSecond);
  sim.run(9);
  CHECK_FALSE(has(sim.told(), "cannot_measure host:h3"));
  sim.run(60);
  CHECK(has(sim.told(), "cannot_measure host:h3"));
  sim.start("h3");
  sim.run(20);
  CHECK(sim.raised() == Names{});
  CHECK(sim.active() == Names{});
}

TEST_CASE("a delay before the cable of one host is said of the cable, direction not claimed", "[gates]") {
  Simulator sim(fabric(2, 3, 2));
  sim.run(120);
  sim.link("l2>h5").delay_ms = 60;
  sim.run(40);
  CHECK(sim.raised() == Names{"link_delay link:h5-l2"});
}

TEST_CASE("judging a thousand hosts takes well under a second, and every link is covered", "[gates][slow]") {
  SimConfig config = fabric(32, 32, 4);
  config.noise = Noise::production();
  config.ports = 2;
  Simulator sim(config);
  sim.run(16);
  const auto coverage = sim.localiser().coverage(sim.now());
  INFO("covered " << coverage.covered << " of " << coverage.links);
  CHECK(coverage.covered * 100 >= coverage.links * 99);
  for (const auto& [host, plan] : sim.plans()) {
    double total = 0;
    for (const auto& target : plan.targets) {
      for (const auto& path : target.paths) total += path.probes_per_s;
    }
    REQUIRE(total <= 100.0);
  }
  sim.link("s3>l7").loss = 0.1;
  const double before = sim.judge_seconds();
  sim.run(6);
  const double each = (sim.judge_seconds() - before) / 6;
  INFO("judge took " << each << " s");
  CHECK(each < 1.0);
  CHECK(sim.raised() == Names{"link_loss link:s3>l7"});
}
