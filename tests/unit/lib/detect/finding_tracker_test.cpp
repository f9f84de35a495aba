#include "lib/detect/finding_tracker.h"

#include "tests/unit/catch.h"

using namespace weft;
using detect::FindingChange;
using detect::FindingTracker;
using detect::TrackerConfig;
using model::Finding;
using model::FindingKind;

namespace {

constexpr Nanos kStart = 1'000 * kSecond;
constexpr Nanos kWall = 1'700'000'000 * kSecond;

Finding verdict(const std::string& subject, Nanos since, double sure = 0.9) {
  Finding finding;
  finding.kind = FindingKind::LinkLoss;
  finding.subject = subject;
  finding.severity = model::Severity::Critical;
  finding.since_ns = since;
  finding.confidence = sure;
  return finding;
}

}  // namespace

TEST_CASE("a verdict is raised at once, with wall times by the receiver's clock", "[tracker]") {
  FindingTracker tracker({});
  const auto changes = tracker.step({verdict("link:s1>l2", kStart - 3 * kSecond)}, kStart, kWall);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].what == FindingChange::What::Raised);
  CHECK_FALSE(changes[0].finding.id.empty());
  CHECK(changes[0].finding.since_ns == kWall - 3 * kSecond);
  CHECK(changes[0].finding.raised_ns == kWall);
}

TEST_CASE("a finding without support clears slowly, and not before its hold", "[tracker]") {
  FindingTracker tracker({});
  const Finding bad = verdict("link:s1>l2", kStart);
  tracker.step({bad}, kStart, kWall);
  for (int s = 1; s < 15; ++s) CHECK(tracker.step({}, kStart + s * kSecond, kWall + s * kSecond).empty());
  const auto changes = tracker.step({}, kStart + 15 * kSecond, kWall + 15 * kSecond);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].what == FindingChange::What::Cleared);
  CHECK(changes[0].finding.until_ns == kWall + 15 * kSecond);
  CHECK(tracker.active().empty());
}

TEST_CASE("while nothing can be said about a finding its time to clearing stands still", "[tracker]") {
  FindingTracker tracker({});
  tracker.step({verdict("link:s1>l2", kStart)}, kStart, kWall);
  Nanos at = kStart;
  const auto seconds = [&](int count, const std::set<std::string>& blind) {
    std::size_t cleared = 0;
    for (int i = 0; i < count; ++i) {
      at += kSecond;
      for (const auto& change : tracker.step({}, at, kWall + at - kStart, blind)) {
        cleared += change.what == FindingChange::What::Cleared ? 1 : 0;
      }
    }
    return cleared;
  };
  const std::string it = detect::identity(verdict("link:s1>l2", kStart).kind, "link:s1>l2");
  CHECK(seconds(5, {}) == 0);
  CHECK(seconds(60, {it}) == 0);
  CHECK(seconds(9, {"link_loss link:l1>s1"}) == 0);
  CHECK(seconds(1, {}) == 1);
}

TEST_CASE("support that comes and goes keeps one finding with one id", "[tracker]") {
  FindingTracker tracker({});
  const Finding bad = verdict("link:s1>l2", kStart);
  const std::string id = tracker.step({bad}, kStart, kWall).at(0).finding.id;
  for (int s = 1; s < 120; ++s) {
    const bool seen = s % 10 == 0;
    const auto changes = tracker.step(seen ? std::vector<Finding>{bad} : std::vector<Finding>{}, kStart + s * kSecond,
                                      kWall + s * kSecond);
    for (const auto& change : changes) CHECK(change.what == FindingChange::What::Updated);
  }
  REQUIRE(tracker.active().size() == 1);
  CHECK(tracker.active()[0].id == id);
}

TEST_CASE("after a restart a finding keeps its id and since, and is not doubled", "[tracker]") {
  FindingTracker before({});
  before.step({verdict("link:s1>l2", kStart)}, kStart, kWall);
  const std::vector<Finding> active = before.active();
  FindingTracker after({});
  after.restore(active, 5 * kSecond);
  const auto changes = after.step({verdict("link:s1>l2", 6 * kSecond)}, 7 * kSecond, kWall + 60 * kSecond);
  for (const auto& change : changes) CHECK(change.what != FindingChange::What::Raised);
  REQUIRE(after.active().size() == 1);
  CHECK(after.active()[0].id == active[0].id);
  CHECK(after.active()[0].since_ns == active[0].since_ns);
  const auto other = after.step({verdict("link:s2>l1", 7 * kSecond)}, 8 * kSecond, kWall);
  REQUIRE(other.size() == 1);
  CHECK(other[0].finding.id != active[0].id);
}

TEST_CASE("a restored finding that nobody supports clears as any other", "[tracker]") {
  FindingTracker before({});
  before.step({verdict("link:s1>l2", kStart)}, kStart, kWall);
  FindingTracker after({});
  after.restore(before.active(), 0);
  CHECK(after.step({}, 14 * kSecond, kWall).empty());
  CHECK(after.step({}, 15 * kSecond, kWall).size() == 1);
}

TEST_CASE("numbers that merely move are told now and then, a change of victims within a second", "[tracker]") {
  FindingTracker tracker({});
  Finding bad = verdict("link:s1>l2", kStart);
  tracker.step({bad}, kStart, kWall);
  int updates = 0;
  for (int s = 1; s <= 10; ++s) {
    bad.evidence = {{"lost", double(s), "probes", 10}};
    updates += static_cast<int>(tracker.step({bad}, kStart + s * kSecond, kWall).size());
  }
  CHECK(updates == 2);
  CHECK(tracker.active()[0].evidence[0].value == 10);
  bad.victims = {"pair:h1>h3"};
  CHECK(tracker.step({bad}, kStart + 11 * kSecond, kWall).size() == 1);
  bad.confidence = 0.5;
  CHECK(tracker.step({bad}, kStart + 11 * kSecond + kSecond / 2, kWall).empty());
}

TEST_CASE("an acknowledgement outlives updates", "[tracker]") {
  FindingTracker tracker({});
  Finding bad = verdict("link:s1>l2", kStart);
  const std::string id = tracker.step({bad}, kStart, kWall).at(0).finding.id;
  CHECK_FALSE(tracker.acknowledge("nobody"));
  CHECK(tracker.acknowledge(id));
  bad.victims = {"pair:h1>h3"};
  const auto changes = tracker.step({bad}, kStart + 2 * kSecond, kWall);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].finding.acknowledged);
}

TEST_CASE("findings beyond the bound are refused and counted", "[tracker]") {
  TrackerConfig config;
  config.max_active = 2;
  FindingTracker tracker(config);
  const auto changes =
      tracker.step({verdict("link:a>b", 0), verdict("link:b>c", 0), verdict("link:c>d", 0)}, kStart, kWall);
  CHECK(changes.size() == 2);
  CHECK(tracker.refused() == 1);
}

TEST_CASE("the operator's word clears all at once", "[tracker]") {
  FindingTracker tracker({});
  tracker.step({verdict("link:a>b", 0), verdict("link:b>c", 0)}, kStart, kWall);
  const auto changes = tracker.clear_all(kWall + kSecond);
  REQUIRE(changes.size() == 2);
  CHECK(changes[0].finding.until_ns == kWall + kSecond);
  CHECK(tracker.active().empty());
}

TEST_CASE("a wall clock that steps back a day neither clears nor doubles a finding", "[tracker]") {
  FindingTracker tracker({});
  const Finding bad = verdict("link:a>b", kStart);
  tracker.step({bad}, kStart, kWall);
  for (int s = 1; s < 40; ++s) {
    for (const auto& change : tracker.step({bad}, kStart + s * kSecond, kWall - 86'400 * kSecond)) {
      CHECK(change.what == FindingChange::What::Updated);
    }
  }
  CHECK(tracker.active().size() == 1);
}
