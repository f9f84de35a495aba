#include "aggregator/state/sessions.h"

#include "tests/unit/aggregator/fakes.h"
#include "tests/unit/catch.h"

using weft::kSecond;
using namespace weft::aggregator;
using weft::test::FakeLink;

TEST_CASE("sessions: past the bound a new agent is refused, unless one is long gone", "[aggregator]") {
  Sessions sessions(2);
  auto a = std::make_shared<FakeLink>();
  auto b = std::make_shared<FakeLink>();
  auto c = std::make_shared<FakeLink>();
  REQUIRE(sessions.open("a", 1, a, 100 * kSecond).session != nullptr);
  REQUIRE(sessions.open("b", 1, b, 100 * kSecond).session != nullptr);
  CHECK(sessions.open("c", 1, c, 101 * kSecond).admission == Sessions::Admission::NoRoom);
  sessions.closed(*sessions.find("a"));
  CHECK(sessions.open("c", 1, c, 101 * kSecond).admission == Sessions::Admission::NoRoom);
  CHECK(sessions.open("c", 1, c, 4000 * kSecond).admission == Sessions::Admission::Accepted);
  CHECK(sessions.find("a") == nullptr);
}

TEST_CASE("sessions: an older epoch is refused while a newer one is connected, and let in once it is gone",
          "[aggregator]") {
  Sessions sessions(8);
  auto newer = std::make_shared<FakeLink>();
  auto older = std::make_shared<FakeLink>();
  sessions.open("h1", 5, newer, kSecond);
  CHECK(sessions.open("h1", 4, older, kSecond).admission == Sessions::Admission::OlderEpoch);
  CHECK(sessions.of(older) == nullptr);
  sessions.closed(*sessions.of(newer));
  CHECK(sessions.open("h1", 4, older, kSecond).admission == Sessions::Admission::Accepted);
}

TEST_CASE("sessions: a newer epoch or the same one connecting again takes over", "[aggregator]") {
  Sessions sessions(8);
  auto first = std::make_shared<FakeLink>();
  auto again = std::make_shared<FakeLink>();
  auto newer = std::make_shared<FakeLink>();
  auto* session = sessions.open("h1", 5, first, kSecond).session;
  Sessions::arrived(*session, 3);
  CHECK(sessions.open("h1", 5, again, kSecond).replaced == first);
  CHECK(sessions.of(first) == nullptr);
  CHECK_FALSE(Sessions::arrived(*sessions.of(again), 3).judge);
  CHECK(sessions.open("h1", 6, newer, kSecond).replaced == again);
  CHECK(Sessions::arrived(*sessions.of(newer), 1).judge);
}

TEST_CASE("sessions: a resent batch is neither judged nor stored again; gaps are allowed", "[aggregator]") {
  Sessions sessions(8);
  auto link = std::make_shared<FakeLink>();
  auto& session = *sessions.open("h1", 1, link, kSecond).session;
  auto novelty = Sessions::arrived(session, 1);
  CHECK(novelty.judge);
  CHECK(novelty.store);
  novelty = Sessions::arrived(session, 1);
  CHECK_FALSE(novelty.judge);
  CHECK_FALSE(novelty.store);
  novelty = Sessions::arrived(session, 9);
  CHECK(novelty.judge);
  CHECK(novelty.store);
}

TEST_CASE("sessions: after a batch that could not be kept nothing later is stored until it was sent again",
          "[aggregator]") {
  Sessions sessions(8);
  auto link = std::make_shared<FakeLink>();
  auto& session = *sessions.open("h1", 1, link, kSecond).session;
  Sessions::arrived(session, 1);
  REQUIRE(sessions.stored({{"h1", 1, 1, 0}}).size() == 1);
  Sessions::arrived(session, 2);
  Sessions::not_kept(session);
  auto novelty = Sessions::arrived(session, 3);
  CHECK(novelty.judge);
  CHECK_FALSE(novelty.store);
  auto again = std::make_shared<FakeLink>();
  auto& resumed = *sessions.open("h1", 1, again, kSecond).session;
  CHECK(resumed.stored == 1);
  novelty = Sessions::arrived(resumed, 2);
  CHECK_FALSE(novelty.judge);
  CHECK(novelty.store);
  novelty = Sessions::arrived(resumed, 3);
  CHECK_FALSE(novelty.judge);
  CHECK(novelty.store);
}

TEST_CASE("sessions: what was stored of an epoch that was replaced acknowledges nothing", "[aggregator]") {
  Sessions sessions(8);
  auto link = std::make_shared<FakeLink>();
  sessions.open("h1", 2, link, kSecond);
  CHECK(sessions.stored({{"h1", 1, 50, 0}, {"nobody", 1, 1, 0}}).empty());
  CHECK(sessions.find("h1")->stored == 0);
}

TEST_CASE("sessions: a restored agent goes on where it stopped", "[aggregator]") {
  Sessions sessions(8);
  sessions.restore({"h1", 7, 42, 0});
  auto link = std::make_shared<FakeLink>();
  auto& session = *sessions.open("h1", 7, link, kSecond).session;
  CHECK(session.stored == 42);
  CHECK_FALSE(Sessions::arrived(session, 42).judge);
  CHECK(Sessions::arrived(session, 43).judge);
}
