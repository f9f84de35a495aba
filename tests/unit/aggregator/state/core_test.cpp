#include "aggregator/state/core.h"

#include <algorithm>

#include "lib/wire/codec.h"
#include "tests/unit/aggregator/fakes.h"
#include "tests/unit/catch.h"
#include "tests/unit/log_capture.h"

using weft::FakeClock;
using weft::kSecond;
using namespace weft::aggregator;
using weft::test::FakeLink;
using weft::test::FakeLocaliser;
using weft::test::FakeStore;
namespace localise = weft::localise;
namespace model = weft::model;
namespace wire = weft::wire;

namespace {

struct Fixture {
  FakeClock clock;
  FakeStore store;
  FakeLocaliser::Heard heard;
  MessageQueue queue{64};
  std::unique_ptr<Core> core;

  explicit Fixture(const Recovered& recovered = {}) { restart(recovered); }
  void restart(const Recovered& recovered) {
    heard = {};
    CoreConfig config;
    config.fabric = "lab";
    config.max_agents = 4;
    core = std::make_unique<Core>(
        config, [this](auto, auto) { return std::make_unique<FakeLocaliser>(heard); }, localise::LocaliserConfig{},
        localise::Topology{}, store, queue, clock);
    core->restore(recovered);
  }
  Received now() { return {clock.monotonic_ns(), clock.wall_ns()}; }
  std::shared_ptr<FakeLink> open(const std::string& agent, std::uint64_t epoch = 1, const std::string& fabric = "lab") {
    auto link = std::make_shared<FakeLink>();
    wire::Hello hello;
    hello.fabric = fabric;
    hello.agent = agent;
    hello.epoch = epoch;
    core->handle(Opened{link, hello, now()});
    return link;
  }
  void batch(const std::shared_ptr<FakeLink>& link, std::uint64_t sequence, std::vector<wire::Record> records = {}) {
    Arrived message;
    message.link = link;
    message.sequence = sequence;
    message.at = now();
    for (wire::Record& record : records) {
      std::string bytes = wire::encode_record(record);
      message.records.push_back({std::move(record), std::move(bytes)});
    }
    core->handle(std::move(message));
  }
  long calls(const std::string& what) { return std::count(heard.calls.begin(), heard.calls.end(), what); }
  // Seconds of judging.
  void run(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock.advance(kSecond);
      core->tick();
    }
  }
};

model::PathWindow window() {
  model::PathWindow out;
  out.key = {"h1/rxe0", "h3/rxe0", 1, 2};
  out.sent = out.acked = 10;
  return out;
}

localise::Verdict verdict(weft::Nanos since) {
  localise::Verdict out;
  out.finding.kind = model::FindingKind::LinkLoss;
  out.finding.severity = model::Severity::Critical;
  out.finding.subject = "link:s1>l2";
  out.finding.since_ns = since;
  out.finding.confidence = 0.9;
  return out;
}

model::Finding own_finding() {
  model::Finding out;
  out.kind = model::FindingKind::HostOverloaded;
  out.severity = model::Severity::Warning;
  out.subject = "host:h1";
  out.confidence = 0.9;
  return out;
}

}  // namespace

TEST_CASE("core: a wrong fabric, schema or too many agents are refused with the reason and counted", "[aggregator]") {
  Fixture f;
  auto wrong = f.open("h1", 1, "prod");
  REQUIRE(wrong->welcomes.size() == 1);
  CHECK_THAT(wrong->welcomes[0].refused, ContainsSubstring("\"prod\""));
  CHECK(wrong->ends == std::vector{StreamLink::End::Refused});
  CHECK(wrong->resumed == 0);
  auto link = std::make_shared<FakeLink>();
  wire::Hello hello;
  hello.schema = 2;
  f.core->handle(Opened{link, hello, f.now()});
  CHECK_THAT(link->welcomes.at(0).refused, ContainsSubstring("schema"));
  for (const char* agent : {"a", "b", "c", "d"}) CHECK(f.open(agent)->welcomes.at(0).refused.empty());
  CHECK_FALSE(f.open("e")->welcomes.at(0).refused.empty());
  f.core->tick();
  CHECK(f.core->snapshot()->counters.streams_refused.at("capacity") == 1);
  CHECK(f.core->snapshot()->counters.streams_refused.at("fabric") == 1);
}

TEST_CASE("core: streams that ingest has no room for are counted, and said once each time it begins", "[aggregator]") {
  weft::test::expect_log("no room for more streams");
  weft::test::expect_log("no room for more streams");
  Fixture f;
  for (const std::uint64_t streams : {0, 3, 2, 0, 1}) f.core->turned_away(streams);
  f.core->tick();
  CHECK(f.core->snapshot()->counters.streams_refused.at("capacity") == 6);
  CHECK(weft::test::logged().size() == 2);
}

TEST_CASE("core: a batch is acknowledged only once it is stored, and read on before that", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1");
  f.batch(link, 1, {window()});
  CHECK(link->acks.empty());
  CHECK(link->resumed == 2);
  CHECK(f.store.batches.back().records == 1);
  f.core->handle(Stored{{{"h1", 1, 1, 0, 1, 1}}});
  REQUIRE(link->acks.size() == 1);
  CHECK(link->acks[0].sequence == 1);
  f.core->tick();
  CHECK(f.core->snapshot()->counters.batches_stored == 1);
  CHECK(f.core->snapshot()->counters.records_stored == 1);
}

TEST_CASE("core: a resent batch is not judged twice and acknowledged at once when stored", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1");
  f.batch(link, 1, {window()});
  f.core->handle(Stored{{{"h1", 1, 1, 0}}});
  f.batch(link, 1, {window()});
  CHECK(f.calls("window h1/rxe0 h3/rxe0") == 1);
  CHECK(link->acks.size() == 2);
  f.core->tick();
  CHECK(f.core->snapshot()->counters.batches_duplicate == 1);
}

TEST_CASE("core: a stream that was replaced is not listened to", "[aggregator]") {
  Fixture f;
  auto old = f.open("h1", 1);
  auto fresh = f.open("h1", 2);
  CHECK(old->ends == std::vector{StreamLink::End::Replaced});
  f.batch(old, 1, {window()});
  CHECK(f.calls("window h1/rxe0 h3/rxe0") == 0);
  f.core->handle(Closed{old, false, f.now()});
  f.batch(fresh, 1, {window()});
  CHECK(f.calls("window h1/rxe0 h3/rxe0") == 1);
}

TEST_CASE("core: with no room in the store judging goes on, and once it works the agent sends again", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1");
  f.store.room = false;
  f.store.state.acknowledging = false;
  f.batch(link, 1, {window()});
  f.batch(link, 2, {window()});
  CHECK(f.calls("window h1/rxe0 h3/rxe0") == 2);
  CHECK(link->resumed == 3);
  f.core->tick();
  CHECK(link->ends.empty());
  f.store.room = true;
  f.batch(link, 3, {window()});
  CHECK(std::none_of(f.store.batches.begin(), f.store.batches.end(), [](const auto& b) { return b.sequence == 3; }));
  f.store.state.acknowledging = true;
  f.core->tick();
  CHECK(link->ends == std::vector{StreamLink::End::SendAgain});
  auto again = f.open("h1");
  CHECK(again->welcomes.at(0).last_stored == 0);
  f.batch(again, 1, {window()});
  CHECK(f.calls("window h1/rxe0 h3/rxe0") == 3);
  CHECK(f.store.batches.back().sequence == 1);
}

TEST_CASE("core: an agent that waits for a store that is full or stands still is not called silent", "[aggregator]") {
  Fixture f;
  const bool full = GENERATE(true, false);  // or it takes batches and stores none
  auto waits = f.open("h1");
  auto quiet = f.open("h2");
  f.store.room = f.store.state.acknowledging = !full;
  f.batch(waits, 1, {window()});
  const long before = f.calls("contact h1");
  f.run(10);
  CHECK(f.calls("contact h1") == before + 10);
  CHECK(f.calls("contact h2") == 1);  // owes nothing and says nothing
  f.core->handle(Stored{{{"h1", 1, 1, 0, 1, 1}}});
  f.run(10);
  CHECK(f.calls("contact h1") == before + 10);
}

TEST_CASE("core: a finding is in the store before it is published, also when the disk refuses", "[aggregator]") {
  Fixture f;
  f.store.saves = false;
  f.heard.verdicts = {verdict(f.clock.monotonic_ns() - 2 * kSecond)};
  f.core->tick();
  REQUIRE(f.store.findings.size() == 1);
  const auto snapshot = f.core->snapshot();
  REQUIRE(snapshot->active.size() == 1);
  CHECK(snapshot->active[0].id == f.store.findings[0].id);
  CHECK(snapshot->active[0].since_ns == f.clock.wall_ns() - 2 * kSecond);
  CHECK(snapshot->counters.detection.count == 1);
  CHECK(snapshot->counters.detection.sum == Approx(2.0));
}

TEST_CASE("core: an agent's clock a day off changes nothing: times are those of receipt", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1");
  auto finding = own_finding();
  finding.since_ns = finding.raised_ns = f.clock.wall_ns() + 86'400 * kSecond;
  f.batch(link, 1, {finding, window()});
  f.clock.advance(kSecond);
  f.core->tick();
  REQUIRE(f.core->snapshot()->active.size() == 1);
  CHECK(f.core->snapshot()->active[0].since_ns == f.clock.wall_ns() - kSecond);
  CHECK(f.heard.window_times.at(0) == f.clock.monotonic_ns() - kSecond);
}

TEST_CASE("core: an agent's finding stands until it is taken back or the agent stops", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1");
  f.batch(link, 1, {own_finding()});
  f.run(60);
  CHECK(f.core->snapshot()->active.size() == 1);
  auto over = own_finding();
  over.until_ns = 1;
  f.batch(link, 2, {over});
  f.run(16);
  CHECK(f.core->snapshot()->active.empty());
  CHECK(f.core->snapshot()->cleared->size() == 1);
  f.batch(link, 3, {own_finding()});
  f.run(1);
  CHECK(f.core->snapshot()->active.size() == 1);
  f.core->handle(Left{link, {0, "stop"}, f.now()});
  f.run(16);
  CHECK(f.core->snapshot()->active.empty());
}

TEST_CASE("core: an agent may not flood with findings", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1");
  std::vector<wire::Record> records;
  for (int i = 0; i < 70; ++i) {
    auto finding = own_finding();
    finding.subject = "rnic:h1/rxe" + std::to_string(i);
    records.push_back(finding);
  }
  f.batch(link, 1, records);
  f.core->tick();
  CHECK(f.core->snapshot()->active.size() == 64);
  CHECK(f.core->snapshot()->counters.findings_over_bound == 6);
}

TEST_CASE("core: acknowledging and clearing reach the store and the snapshot", "[aggregator]") {
  Fixture f;
  f.heard.verdicts = {verdict(f.clock.monotonic_ns())};
  f.core->tick();
  const std::string id = f.core->snapshot()->active.at(0).id;
  const auto acknowledge = [&](const std::string& which) {
    auto promise = std::make_shared<std::promise<weft::Result<model::Finding>>>();
    auto future = promise->get_future();
    f.core->handle(AcknowledgeFinding{which, promise});
    return future.get();
  };
  CHECK_FALSE(acknowledge("nope"));
  REQUIRE(acknowledge(id));
  CHECK(f.store.findings.back().acknowledged);
  CHECK(f.core->snapshot()->active.at(0).acknowledged);
  f.run(3);
  CHECK(f.core->snapshot()->active.at(0).acknowledged);
  auto promise = std::make_shared<std::promise<std::size_t>>();
  auto future = promise->get_future();
  f.core->handle(ClearFindings{promise});
  CHECK(future.get() == 1);
  CHECK(f.heard.forgotten == 1);
  CHECK(f.core->snapshot()->active.empty());
  CHECK(f.store.findings.back().until_ns.has_value());
  REQUIRE(acknowledge(id));
}

TEST_CASE("core: what an operator cleared does not come back with the next process", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1");
  f.batch(link, 1, {own_finding()});
  f.core->tick();
  auto promise = std::make_shared<std::promise<std::size_t>>();
  f.core->handle(ClearFindings{promise});
  const auto& last = f.store.batches.back();
  CHECK(last.sequence == 0);
  CHECK(last.latest.at(0).key == "finding host_overloaded host:h1");
  CHECK_FALSE(last.latest.at(0).record.has_value());
}

TEST_CASE("core: a plan goes out when its revision changes, and to each new stream", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1");
  f.heard.plans["h1"].revision = 3;
  f.run(3);
  CHECK(link->plans.size() == 1);
  f.heard.plans["h1"].revision = 4;
  f.run(2);
  CHECK(link->plans.size() == 2);
  auto again = f.open("h1", 2);
  f.run(1);
  CHECK(again->plans.size() == 1);
}

TEST_CASE("core: a restart keeps findings and evidence, at the time of its receipt", "[aggregator]") {
  FakeClock wall;
  Recovered recovered;
  const weft::Nanos now = wall.wall_ns();
  recovered.agents = {{"h1", 7, 42, now - 5 * kSecond}};
  recovered.journal = {{"h1", 7, now - 5 * kSecond, {wire::encode_record(window()), "damaged"}}};
  model::Inventory inventory;
  inventory.host = "h1";
  recovered.latest = {{"h1", "inventory", wire::encode_record(inventory), now - 100 * kSecond}};
  model::Finding finding = verdict(0).finding;
  finding.id = "f1-0";
  finding.since_ns = now - 30 * kSecond;
  finding.raised_ns = now - 28 * kSecond;
  recovered.findings = {finding};
  Fixture f(recovered);
  CHECK(f.calls("window h1/rxe0 h3/rxe0") == 1);
  CHECK(f.heard.window_times.at(0) == f.clock.monotonic_ns() - 5 * kSecond);
  CHECK(f.calls("inventory h1") == 1);
  CHECK(f.calls("resume " + finding.subject) == 1);
  CHECK(f.core->snapshot()->active.at(0).id == "f1-0");
  // Nobody supports it for as long as agents may take to come back.
  f.run(20);
  CHECK(f.core->snapshot()->active.size() == 1);
  f.heard.verdicts = {verdict(f.clock.monotonic_ns())};
  f.run(20);
  REQUIRE(f.core->snapshot()->active.size() == 1);
  CHECK(f.core->snapshot()->active.at(0).id == "f1-0");
  CHECK(f.core->snapshot()->active.at(0).since_ns == now - 30 * kSecond);
  CHECK(f.core->snapshot()->counters.findings_raised.empty());
  CHECK(f.open("h1", 7)->welcomes.at(0).last_stored == 42);
}

TEST_CASE("core: after a restart silence is excused until the allowance has passed or the agent is back",
          "[aggregator]") {
  FakeClock wall;
  Recovered recovered;
  recovered.agents = {{"h1", 7, 42, wall.wall_ns() - 5 * kSecond}, {"h2", 1, 1, wall.wall_ns() - 5 * kSecond}};
  Fixture f(recovered);
  f.run(2);
  CHECK(f.calls("contact h1") == 2);
  f.open("h1", 7);
  const long back = f.calls("contact h1");
  f.run(40);
  CHECK(f.calls("contact h1") == back);
  CHECK(f.calls("contact h2") == 30);
}

TEST_CASE("core: one who said goodbye before a restart is not waited for", "[aggregator]") {
  FakeClock wall;
  Recovered recovered;
  recovered.agents = {{"h1", 7, 42, wall.wall_ns() - 5 * kSecond}};
  recovered.latest = {{"h1", "goodbye", std::to_string(9 * kSecond), wall.wall_ns() - 4 * kSecond}};
  Fixture f(recovered);
  f.run(2);
  CHECK(f.calls("goodbye h1 9") == 1);
  CHECK(f.calls("contact h1") == 0);
}

TEST_CASE("core: reloading keeps evidence, and stays on its feet when the store gives none", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1", 7);
  f.store.recovered.agents = {{"h1", 7, 1, f.clock.wall_ns()}};
  f.store.recovered.journal = {{"h1", 7, f.clock.wall_ns() - kSecond, {wire::encode_record(window())}}};
  f.heard.calls.clear();
  f.core->handle(Reload{});
  CHECK(f.calls("window h1/rxe0 h3/rxe0") == 1);
  CHECK(f.calls("start h1 7") == 2);
  f.heard.plans["h1"].revision = 1;
  f.run(1);
  CHECK(link->plans.size() == 1);
}

TEST_CASE("core: a store that was replaced while running gets the active findings again", "[aggregator]") {
  Fixture f;
  f.heard.verdicts = {verdict(f.clock.monotonic_ns())};
  f.core->tick();
  f.store.findings.clear();
  f.store.state.generation = 1;
  f.core->tick();
  REQUIRE(f.store.findings.size() == 1);
  CHECK(f.store.findings[0].id == f.core->snapshot()->active.at(0).id);
}

TEST_CASE("core: stopping ends every stream", "[aggregator]") {
  Fixture f;
  auto link = f.open("h1");
  f.core->stop();
  CHECK(link->ends == std::vector{StreamLink::End::Stopping});
}
