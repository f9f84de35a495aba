// Bad input, the plan and the names: what a Localiser does with what agents say.
#include "lib/localise/localiser.h"

#include <algorithm>
#include <set>

#include "lib/localise/ballot.h"
#include "tests/unit/catch.h"
#include "tests/unit/lib/localise/simulator.h"

using namespace weft;
using namespace weft::test;
using localise::Localiser;
using localise::LocaliserConfig;
using localise::Topology;

namespace {

constexpr Nanos kT = 1'000 * kSecond;

model::PathWindow window(std::uint32_t sent, std::uint32_t acked, std::uint32_t lost) {
  model::PathWindow w;
  w.key = {"h1/rxe0", "h3/rxe0", 50'000, 50'001};
  w.sent = sent;
  w.acked = acked;
  w.lost_unknown = lost;
  return w;
}

model::PathTrace trace(std::vector<std::string> addresses) {
  model::PathTrace t;
  t.from = "h1/rxe0";
  t.to = "h3/rxe0";
  t.source_port = 50'000;
  std::uint8_t ttl = 1;
  for (std::string& address : addresses) {
    model::TraceHop hop;
    hop.ttl = ttl++;
    hop.address = std::move(address);
    t.hops.push_back(hop);
  }
  t.complete = true;
  return t;
}

}  // namespace

TEST_CASE("windows that contradict themselves are refused and counted, negative and endless times are no times",
          "[localiser]") {
  const auto localiser = Localiser::create({}, {});
  localiser->on_window(window(3, 2, 2), kT);
  CHECK(localiser->dropped() == 1);
  localiser->on_window(window(4'000'000'000U, 4'000'000'000U, 0), kT);
  CHECK(localiser->dropped() == 2);
  model::PathWindow bad_name = window(1, 1, 0);
  bad_name.key.from = "h1\n/rxe0";
  localiser->on_window(bad_name, kT);
  bad_name.key.from = "h1";
  localiser->on_window(bad_name, kT);
  CHECK(localiser->dropped() == 4);
  model::PathWindow odd = window(3, 3, 0);
  odd.rtt_median_ns = -5 * kSecond;
  odd.forward.ecn_capable = 2;
  odd.forward.ce = 9;
  localiser->on_window(odd, kT);
  const auto paths = localiser->paths(kT);
  REQUIRE(paths.size() == 1);
  CHECK(paths[0].sent == 3);
  CHECK_FALSE(paths[0].rtt_median_ns.has_value());
  CHECK(paths[0].ce_forward == 0);
}

TEST_CASE("traces with loops, wrong hop numbers or bad addresses are refused", "[localiser]") {
  const auto localiser = Localiser::create({}, {});
  localiser->on_trace(trace({"10.0.0.1", "10.0.0.2", "10.0.0.1"}), kT);
  model::PathTrace zero = trace({"10.0.0.1"});
  zero.hops[0].ttl = 0;
  localiser->on_trace(zero, kT);
  localiser->on_trace(trace({"10.0.0.1 or so"}), kT);
  localiser->on_trace(trace(std::vector<std::string>(40, "")), kT);
  CHECK(localiser->dropped() == 4);
  localiser->on_trace(trace({"10.0.0.1", "", "10.0.0.3"}), kT);
  CHECK(localiser->dropped() == 4);
}

TEST_CASE("rpingmesh PR 28 stale rows: windows to queue pairs of an old epoch say nothing", "[localiser]") {
  Simulator sim({});
  sim.run(40);
  model::PathWindow stale = window(50, 0, 50);
  stale.responder_epoch = 777;
  for (int i = 0; i < 20; ++i) {
    for (const char* from : {"h1/rxe0", "h2/rxe0", "h4/rxe0"}) {
      for (const std::uint16_t port : {50'000, 50'001}) {
        stale.key.from = from;
        stale.key.forward_port = port;
        sim.localiser().on_window(stale, sim.now());
      }
    }
    sim.step();
  }
  CHECK(sim.raised().empty());
  for (const auto& cell : sim.localiser().mesh(sim.now())) CHECK(cell.state == "ok");
}

TEST_CASE("the mesh says on which leaf each end hangs", "[localiser]") {
  Simulator sim({});
  sim.run(40);
  const auto mesh = sim.localiser().mesh(sim.now());
  const auto cell = std::find_if(mesh.begin(), mesh.end(), [](const localise::MeshCell& one) {
    return one.from == "h1/rxe0" && one.to == "h3/rxe0";
  });
  REQUIRE(cell != mesh.end());
  CHECK(cell->from_leaf == "l1");
  CHECK(cell->to_leaf == "l2");
}

TEST_CASE("cloudprober 668 late answers: a probe answered after its timeout is late, not lost", "[localiser]") {
  Simulator sim({});
  sim.run(40);
  model::PathWindow late = window(30, 20, 10);
  late.late = 10;
  for (int i = 0; i < 20; ++i) {
    for (const char* from : {"h1/rxe0", "h2/rxe0", "h4/rxe0"}) {
      late.key.from = from;
      for (const std::uint16_t port : {50'000, 50'001}) {
        late.key.forward_port = port;
        sim.localiser().on_window(late, sim.now());
      }
    }
    sim.step();
  }
  CHECK(sim.raised().empty());
}

TEST_CASE("rpingmesh PR 44: no probes is unknown, not zero percent", "[localiser]") {
  const auto localiser = Localiser::create({}, {});
  localiser->on_contact("h1", kT);
  localiser->on_contact("h3", kT);
  localiser->on_window(window(0, 0, 0), kT);
  REQUIRE(localiser->mesh(kT).size() == 1);
  CHECK(localiser->mesh(kT)[0].state == "unknown");
  CHECK_FALSE(localiser->coverage(kT).ready);
}

TEST_CASE("a fabric without routers is ready when every host probes, is probed and is answered", "[localiser]") {
  const auto localiser = Localiser::create({}, {});
  Nanos now = kT;
  const auto second = [&](bool both_ways) {
    now += kSecond;
    model::PathWindow there = window(10, 10, 0);
    there.rtt_median_ns = kMillisecond;
    model::PathWindow back = there;
    std::swap(back.key.from, back.key.to);
    for (const char* host : {"h1", "h3"}) localiser->on_contact(host, now);
    localiser->on_window(there, now);
    if (both_ways) localiser->on_window(back, now);
  };
  const auto ready = [&] { return localiser->coverage(now).ready; };
  second(false);
  model::PathTrace there = trace({});
  model::PathTrace back = there;
  std::swap(back.from, back.to);
  localiser->on_trace(there, now);
  localiser->on_trace(back, now);
  CHECK_FALSE(ready());  // nobody probes h1 yet
  second(true);
  CHECK(localiser->links(now).empty());
  CHECK(ready());
  now += 20 * kSecond;
  for (const char* host : {"h1", "h3"}) localiser->on_contact(host, now);
  CHECK_FALSE(ready());  // and nobody does any more
}

TEST_CASE("where nobody can trace, ready waits for traces that may still come, not for ever", "[localiser]") {
  const auto localiser = Localiser::create({}, {});
  bool ready = false;
  int seconds = 0;
  for (; seconds < 60 && !ready; ++seconds) {
    const Nanos now = kT + seconds * kSecond;
    model::PathWindow there = window(10, 10, 0);
    there.rtt_median_ns = kMillisecond;
    model::PathWindow back = there;
    std::swap(back.key.from, back.key.to);
    for (const char* host : {"h1", "h3"}) localiser->on_contact(host, now);
    localiser->on_window(there, now);
    localiser->on_window(back, now);
    ready = localiser->coverage(now).ready;
  }
  CHECK(ready);
  CHECK(seconds >= 20);
}

TEST_CASE(
    "a device that weftd cannot probe from is cannot_measure with the host's own words, never loss (perftest 105)",
    "[localiser]") {
  const auto localiser = Localiser::create({}, {});
  Nanos now = kT;
  model::Inventory inventory;
  inventory.host = "h1";
  inventory.devices = {{"rxe0", "rxe", "", "", {{}}}};
  inventory.devices[0].ports[0].number = 1;
  inventory.devices[0].ports[0].state = model::PortState::Active;
  inventory.endpoints = {{"rxe0", "rdma", "10.0.1.2", 47910, 1, {49152}, {49152}}};
  localiser->on_start("h1", 1, now);
  localiser->on_inventory(inventory, now);
  const auto judge_after = [&](const std::string& why) {
    inventory.limitations = {{"rnic:h1/rxe1", "another device", ""}, {"port:h1/rxe0/1", why, "..."}};
    for (int second = 0; second < 8; ++second) {
      now += kSecond;
      localiser->on_contact("h1", now);
      localiser->on_inventory(inventory, now);
      localiser->on_health("h1", {}, now);
    }
    return localiser->judge(now);
  };
  CHECK(judge_after("").empty());
  inventory.endpoints.clear();
  const auto verdicts = judge_after("rxe0 port 1: GID index 1 is empty");
  REQUIRE(verdicts.size() == 1);
  const model::Finding& finding = verdicts[0].finding;
  CHECK(finding.kind == model::FindingKind::CannotMeasure);
  CHECK(finding.severity == model::Severity::Info);
  CHECK(finding.subject == "rnic:h1/rxe0");
  CHECK_THAT(finding.summary, ContainsSubstring("no probe endpoint on it: rxe0 port 1: GID index 1 is empty"));
}

TEST_CASE("one aggregator that did not judge for a while accuses no host of silence", "[localiser]") {
  Simulator sim({});
  sim.run(40);
  CHECK(sim.localiser().judge(sim.now() + 30 * kSecond).empty());
}

TEST_CASE("a host whose reports end is not silent while it answers a prober that is too late itself to count answers",
          "[localiser]") {
  const auto localiser = Localiser::create({}, {});
  Nanos now = kT;
  localiser->on_start("h1", 1, now);
  localiser->on_start("h3", 1, now);
  auto uncounted = window(0, 0, 0);
  uncounted.overslept = 3;
  const auto silent = [&] {
    const auto verdicts = localiser->judge(now);
    return std::any_of(verdicts.begin(), verdicts.end(),
                       [](const auto& v) { return v.finding.kind == model::FindingKind::HostSilent; });
  };
  const auto until = [&](Nanos end) {
    bool ever = false;
    for (; now < end; now += kSecond) {
      localiser->on_contact("h1", now);
      localiser->on_window(uncounted, now);
      ever = silent() || ever;
    }
    return ever;
  };
  SECTION("answered") {
    uncounted.rtt_min_ns = kMillisecond;
    CHECK_FALSE(until(kT + 20 * kSecond));
  }
  SECTION("not answered") { CHECK(until(kT + 20 * kSecond)); }
}

TEST_CASE("the plan of a small fabric is a full mesh within the budget, and stands still", "[localiser]") {
  Simulator sim({});
  sim.run(60);
  const auto before = sim.plans();
  REQUIRE(before.size() == 4);
  for (const auto& [host, plan] : before) {
    CHECK(plan.targets.size() == 3);
    double total = 0;
    for (const auto& target : plan.targets) {
      std::set<std::uint16_t> ports;
      for (const auto& path : target.paths) {
        CHECK(path.forward_port != 0);
        CHECK(path.return_port != 0);
        ports.insert(path.forward_port);
        total += path.probes_per_s;
      }
      const bool near = (host == "h1" || host == "h2") == (target.to[1] == '1' || target.to[1] == '2');
      CHECK(ports.size() == (near ? 2 : 4));
    }
    CHECK(total > 30);
    CHECK(total <= 100);
  }
  sim.run(120);
  CHECK(sim.plans() == before);
}

TEST_CASE("the ports of a weftd that ended are planned no more, before the new ones are traced", "[localiser]") {
  const auto localiser = Localiser::create({}, {});
  const auto start = [&](const std::string& host, std::uint64_t epoch, std::uint16_t base, Nanos at) {
    model::Inventory inventory;
    inventory.host = host;
    model::ProbeEndpoint endpoint;
    endpoint.device = "eth0";
    endpoint.transport = "udp";
    endpoint.address = "10.0.0." + host.substr(1);
    endpoint.hello_port = 47910;
    endpoint.responder_epoch = epoch;
    endpoint.prober_ports = {base, static_cast<std::uint16_t>(base + 1)};
    endpoint.responder_ports = {static_cast<std::uint16_t>(base + 10), static_cast<std::uint16_t>(base + 11)};
    inventory.endpoints.push_back(endpoint);
    localiser->on_start(host, epoch, at);
    localiser->on_inventory(inventory, at);
  };
  const auto traced = [&](const std::string& from, const std::string& to, std::uint16_t source,
                          std::uint16_t destination, Nanos at) {
    model::PathTrace t;
    t.from = from + "/eth0";
    t.to = to + "/eth0";
    t.source_port = source;
    t.destination_port = destination;
    t.complete = true;
    model::TraceHop hop;
    hop.ttl = 1;
    hop.address = "10.0.0.254";
    t.hops.push_back(hop);
    localiser->on_trace(t, at);
  };
  const auto planned = [&](const std::string& host, Nanos at) {
    std::set<std::uint16_t> ports;
    const auto plans = localiser->plan(at);
    for (const auto& target : plans.at(host).targets) {
      for (const auto& path : target.paths) ports.insert({path.forward_port, path.return_port});
    }
    return ports;
  };
  Nanos now = kT;
  start("h1", 1, 50'000, now);
  start("h2", 1, 51'000, now);
  for (std::uint16_t i = 0; i < 2; ++i) {
    traced("h1", "h2", 50'000 + i, 51'010 + i, now);
    traced("h2", "h1", 51'010 + i, 50'000 + i, now);
    traced("h2", "h1", 51'000 + i, 50'010 + i, now);
    traced("h1", "h2", 50'010 + i, 51'000 + i, now);
  }
  now += 5 * kSecond;
  REQUIRE(planned("h1", now) == std::set<std::uint16_t>{50'000, 50'001, 51'010, 51'011});
  start("h1", 2, 60'000, now);
  start("h2", 2, 61'000, now);
  now += 5 * kSecond;
  // Any port, in turn, until traces say which way each goes.
  CHECK(planned("h1", now) == std::set<std::uint16_t>{0});
  CHECK(planned("h2", now) == std::set<std::uint16_t>{0});
}

TEST_CASE("each directed link of a small fabric gets its ten probes a second within the budget, and so it stays",
          "[localiser]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SimConfig config;
    config.seed = seed;
    Simulator sim(config);
    sim.run(60);
    for (int round = 0; round < 6; ++round) {
      const auto links = sim.localiser().links(sim.now());
      CHECK(links.size() == 16);  // 4 cables to hosts, 4 between switches, both ways
      for (const auto& link : links) {
        INFO("seed " << seed << ": " << link.from << ">" << link.to << " at " << link.probes_per_s << "/s");
        CHECK(link.probes_per_s >= 10);
        CHECK(link.covered);
      }
      sim.run(10);
    }
    for (const auto& [host, plan] : sim.plans()) {
      double total = 0;
      for (const auto& target : plan.targets) {
        for (const auto& path : target.paths) total += path.probes_per_s;
      }
      CHECK(total <= config.localiser.probes_per_s_per_endpoint);
    }
  }
}

TEST_CASE("a link that no probe crosses any more is uncovered, named and counted, until it is probed again",
          "[localiser]") {
  std::string text = "[[switch]]\nname = \"l1\"\n";
  for (const char* host : {"h1", "h2", "h3"}) {
    text += std::string("[[host]]\nname = \"") + host + "\"\n[[link]]\na = \"" + host + "/rxe0\"\nb = \"l1\"\n";
  }
  const auto topology = Topology::parse(text, "x");
  REQUIRE(topology.has_value());
  const auto localiser = Localiser::create({}, *topology);
  Nanos now = kT;
  const auto run = [&](int seconds, double to_third) {
    for (int second = 0; second < seconds; ++second) {
      now += kSecond;
      for (const char* host : {"h1", "h2", "h3"}) localiser->on_contact(host, now);
      const auto probe = [&](const char* from, const char* to, std::uint32_t sent) {
        model::PathWindow w = window(sent, sent, 0);
        w.key.from = from;
        w.key.to = to;
        localiser->on_window(w, now);
      };
      probe("h1/rxe0", "h2/rxe0", 10);
      probe("h2/rxe0", "h1/rxe0", 10);
      if (to_third > 0) probe("h1/rxe0", "h3/rxe0", static_cast<std::uint32_t>(to_third));
    }
    return localiser->coverage(now);
  };
  const std::vector<std::string> third{"link:h3>l1", "link:l1>h3"};
  const auto sorted = [](std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    return names;
  };
  auto coverage = run(10, 10);
  CHECK(coverage.links == 6);
  CHECK(coverage.covered == 6);
  CHECK(coverage.uncovered.empty());
  CHECK(coverage.ready);

  coverage = run(7, 0);
  CHECK(coverage.links == 6);
  CHECK(coverage.covered == 4);
  CHECK(sorted(coverage.uncovered) == third);
  CHECK_FALSE(coverage.ready);
  for (const auto& link : localiser->links(now)) {
    const bool silenced = link.from == "h3" || link.to == "h3";
    CHECK(link.covered == !silenced);
    if (silenced) CHECK(link.probes_per_s == 0);
  }

  // A trickle is not coverage.
  coverage = run(10, 5);
  CHECK(coverage.covered == 4);
  CHECK(sorted(coverage.uncovered) == third);

  coverage = run(7, 10);
  CHECK(coverage.covered == 6);
  CHECK(coverage.ready);
}

TEST_CASE("ports are asked for until each spine has three for each pair", "[localiser]") {
  SimConfig config;
  config.ports = 8;
  config.spines = 4;
  Simulator sim(config);
  sim.run(60);
  std::uint32_t most = 0;
  for (const auto& [host, plan] : sim.plans()) most = std::max(most, plan.ports_wanted);
  CHECK(most == 16);
  SimConfig few = config;
  few.ports = 32;
  Simulator enough(few);
  enough.run(60);
  for (const auto& [host, plan] : enough.plans()) CHECK(plan.ports_wanted <= 32);
}

TEST_CASE("before traces exist ports are taken in turn, at half the rate", "[localiser]") {
  Simulator sim({});
  sim.step();
  for (const auto& [host, plan] : sim.plans()) {
    for (const auto& target : plan.targets) {
      REQUIRE(target.paths.size() == 1);
      CHECK(target.paths[0].forward_port == 0);
      CHECK(target.paths[0].probes_per_s <= 6);
    }
  }
}

TEST_CASE("a host with two ports on one leaf has its cables told apart by device", "[localiser]") {
  const auto topology = Topology::parse(R"(
[[switch]]
name = "l1"
[[switch]]
name = "l2"
[[host]]
name = "h1"
[[host]]
name = "h2"
[[link]]
a = "h1/rxe0"
b = "l1"
[[link]]
a = "h1/rxe1"
b = "l1"
[[link]]
a = "h2/rxe0"
b = "l1"
[[link]]
a = "h2/rxe1"
b = "l2"
)",
                                        "x");
  REQUIRE(topology.has_value());
  const auto localiser = Localiser::create({}, *topology);
  std::set<std::string> names;
  for (const auto& link : localiser->links(kT)) names.insert(link.from + ">" + link.to);
  CHECK(names.count("h1/rxe0>l1") == 1);
  CHECK(names.count("h1/rxe1>l1") == 1);
  CHECK(names.count("h2>l1") == 1);
  CHECK(names.count("h2>l2") == 1);
}

TEST_CASE("a link finding says in one line what, how much, of how many and what is clean beside it", "[localiser]") {
  SimConfig config;
  config.localiser.delay_floor_ns = 10 * kMillisecond;
  Simulator sim(config);
  sim.run(60);
  sim.link("s1>l2").loss = 0.2;
  sim.run(20);
  const auto active = sim.tracker().active();
  REQUIRE(active.size() == 1);
  const model::Finding& finding = active[0];
  CHECK_THAT(finding.summary, ContainsSubstring("s1>l2 loses ") && ContainsSubstring(" % of probes one way (") &&
                                  ContainsSubstring("4 host pairs") && ContainsSubstring("sibling spine s2 is clean"));
  CHECK(finding.severity == model::Severity::Critical);
  CHECK(finding.confidence > 0.7);
  CHECK(finding.victims == std::vector<std::string>{"pair:h1>h3", "pair:h1>h4", "pair:h2>h3", "pair:h2>h4"});
  CHECK_FALSE(finding.not_checked.empty());
  for (const auto& item : finding.evidence) CHECK_FALSE(item.unit.empty());
}

TEST_CASE("forgotten evidence is no evidence, and what is known of hosts and ways stays", "[localiser]") {
  SimConfig config;
  Simulator sim(config);
  sim.run(60);
  sim.link("s1>l2").loss = 0.2;
  sim.run(10);
  sim.clear_links();
  sim.run(1);
  sim.localiser().forget_evidence();
  sim.tracker().clear_all(0);
  const std::size_t before = sim.raised().size();
  sim.run(30);
  CHECK(sim.raised().size() == before);
  CHECK(sim.localiser().coverage(sim.now()).ready);
}

namespace {

// What `weft mesh --direct` tells: h1 alone probes h3 and h4 over two spines, by ports 1 to 8 each.
class OneProber {
 public:
  OneProber() {
    const auto topology = Topology::parse(
        "fabric = \"t\"\n"
        "[[switch]]\nname = \"l1\"\ntier = \"leaf\"\n[[switch]]\nname = \"l2\"\ntier = \"leaf\"\n"
        "[[switch]]\nname = \"s1\"\ntier = \"spine\"\n[[switch]]\nname = \"s2\"\ntier = \"spine\"\n"
        "[[host]]\nname = \"h1\"\n[[host]]\nname = \"h3\"\n[[host]]\nname = \"h4\"\n" +
            link("h1/eth0", "l1", "10.0.1.2", "10.0.1.1") + link("h3/eth0", "l2", "10.0.3.2", "10.0.3.1") +
            link("h4/eth0", "l2", "10.0.4.2", "10.0.4.1") + link("l1", "s1", "10.1.1.1", "10.1.1.2") +
            link("l1", "s2", "10.1.2.1", "10.1.2.2") + link("l2", "s1", "10.2.1.1", "10.2.1.2") +
            link("l2", "s2", "10.2.2.1", "10.2.2.2"),
        "t.toml");
    REQUIRE(topology);
    localiser_ = Localiser::create({}, *topology);
    for (const char* host : {"h1", "h3", "h4"}) {
      localiser_->on_start(host, 1, now_);
      model::Inventory inventory;
      inventory.host = host;
      model::ProbeEndpoint endpoint;
      endpoint.device = "eth0";
      endpoint.transport = "udp";
      endpoint.address = "10.0." + std::string(host).substr(1) + ".2";
      for (std::uint16_t port = 1; port <= 8; ++port) {
        endpoint.prober_ports.push_back(port);
        endpoint.responder_ports.push_back(static_cast<std::uint16_t>(100 + port));
      }
      inventory.endpoints = {endpoint};
      localiser_->on_inventory(inventory, now_);
    }
  }
  void trace(const std::string& to, std::uint16_t port, unsigned spine) {
    model::PathTrace t;
    t.from = "h1/eth0";
    t.to = to + "/eth0";
    t.source_port = port;
    t.destination_port = static_cast<std::uint16_t>(100 + port);
    const std::string s = std::to_string(spine);
    t.hops = {{.ttl = 1, .address = "10.0.1.1"},
              {.ttl = 2, .address = "10.1." + s + ".2"},
              {.ttl = 3, .address = "10.2." + s + ".1"}};
    t.complete = true;
    localiser_->on_trace(t, now_);
  }
  // A second in which every fourth probe of each path that the function names is lost on the way out.
  template <typename Lossy>
  std::set<std::string> second(Lossy lossy) {
    now_ += kSecond;
    for (const char* host : {"h1", "h3", "h4"}) localiser_->on_contact(host, now_);
    for (const char* to : {"h3", "h4"}) {
      for (std::uint16_t port = 1; port <= 8; ++port) {
        model::PathWindow w;
        w.key = {"h1/eth0", std::string(to) + "/eth0", port, static_cast<std::uint16_t>(100 + port)};
        w.sent = 8;
        w.forward.lost = lossy(to, port) ? 2 : 0;
        w.acked = w.sent - w.forward.lost;
        localiser_->on_window(w, now_);
      }
    }
    std::set<std::string> out;
    for (const auto& verdict : localiser_->judge(now_)) out.insert(verdict.finding.subject);
    return out;
  }

 private:
  static std::string link(const std::string& a, const std::string& b, const std::string& at_a,
                          const std::string& at_b) {
    return "[[link]]\na = \"" + a + "\"\nb = \"" + b + "\"\na_addresses = [\"" + at_a + "\"]\nb_addresses = [\"" +
           at_b + "\"]\n";
  }
  Nanos now_ = kT;
  std::unique_ptr<Localiser> localiser_;
};

}  // namespace

TEST_CASE("bad paths that are not traced yet accuse no link that a clean path crosses as well", "[localiser]") {
  OneProber one;
  // All but two paths go over s1, which loses; two of the bad ones are not traced.
  const auto over_s2 = [](const std::string& to, std::uint16_t port) { return to == "h3" && port <= 2; };
  const auto silent = [](const std::string& to, std::uint16_t port) { return to == "h4" && port <= 2; };
  for (const char* to : {"h3", "h4"}) {
    for (std::uint16_t port = 1; port <= 8; ++port) {
      if (!silent(to, port)) one.trace(to, port, over_s2(to, port) ? 2 : 1);
    }
  }
  std::set<std::string> named;
  for (int i = 0; i < 40; ++i) {
    named.merge(one.second([&](const std::string& to, std::uint16_t port) { return !over_s2(to, port); }));
  }
  CHECK(named.count("link:h1>l1") == 0);
}

TEST_CASE("over UDP the way of a probe goes by both its ports, and evidence of other ports is not laid on it",
          "[localiser]") {
  OneProber one;
  for (const char* to : {"h3", "h4"}) {
    for (std::uint16_t port = 1; port <= 8; ++port) one.trace(to, port, port % 2 == 0 ? 1 : 2);
  }
  std::set<std::string> named;
  for (int i = 0; i < 40; ++i) {
    named = one.second([](const std::string&, std::uint16_t port) { return port % 2 == 0; });
  }
  // Which of the links over s1 only hop counts would tell.
  CHECK(named == std::set<std::string>{"switch:s1"});
}

TEST_CASE("how many clean paths a sick link may have depends on how much crossed each", "[localiser]") {
  localise::Tally tally;
  tally.paths_by_size = {{1, 100}};
  tally.clean_by_size = {{1, 90}};
  CHECK(tally.clean_surprise(0.1) < 1);
  tally.paths_by_size = {{100, 14}};
  tally.clean_by_size = {{100, 1}};
  CHECK(tally.clean_surprise(0.25) > 15);
  tally.clean_by_size = {};
  CHECK(tally.clean_surprise(0.25) == 0);
}
