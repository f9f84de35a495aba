#include "probes/ping/window.h"

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

namespace {

const model::PathKey kPath{"h1/rxe0", "h3/rxe0", 50001, 51001};
const model::PathKey kOther{"h1/rxe0", "h3/rxe0", 50002, 51001};
constexpr Nanos kGrace = 700 * kMillisecond;

AckFacts took(Nanos rtt) {
  AckFacts facts;
  facts.rtt_ns = rtt;
  return facts;
}

}  // namespace

TEST_CASE("window: a loss can change its kind only while its window is open", "[ping]") {
  WindowFolder folder(kGrace, kGrace);
  const Nanos start = 1000 * kSecond;
  const auto window = folder.lost(kPath, 5, start, Loss::Unknown);
  CHECK(folder.move(kPath, window, Loss::Unknown, Loss::Forward));
  CHECK_FALSE(folder.move(kOther, window, Loss::Unknown, Loss::Forward));
  folder.close_due(start + kSecond + kGrace - 1);
  CHECK(folder.take().empty());
  CHECK(folder.move(kPath, window, Loss::Forward, Loss::Back));
  folder.close_due(start + kSecond + kGrace);
  CHECK_FALSE(folder.move(kPath, window, Loss::Back, Loss::Forward));
  const auto closed = folder.take();
  REQUIRE(closed.size() == 1);
  CHECK(closed[0].back.lost == 1);
  CHECK(closed[0].forward.lost == 0);
  CHECK(closed[0].sent == 1);
  CHECK(folder.take().empty());
}

TEST_CASE("window: what becomes stale is taken out of what was sent", "[ping]") {
  WindowFolder folder(kGrace, kGrace);
  const auto window = folder.lost(kPath, 5, kSecond, Loss::Back);
  REQUIRE(folder.move(kPath, window, Loss::Back, Loss::Stale));
  folder.close_due(INT64_MAX);
  const auto closed = folder.take();
  REQUIRE(closed.size() == 1);
  CHECK(closed[0].sent == 0);
  CHECK(closed[0].stale == 1);
  CHECK(closed[0].back.lost == 0);
}

TEST_CASE("window: nothing happened, no window", "[ping]") {
  WindowFolder folder(kGrace, kGrace);
  folder.close_due(5 * kSecond);
  CHECK(folder.take().empty());
  CHECK_FALSE(folder.next_close());
}

TEST_CASE("window: one a second and path, with ranks of round trips", "[ping]") {
  WindowFolder folder(kGrace, kGrace);
  folder.set_rung(model::TimestampRung::NicTicks);
  for (int i = 1; i <= 10; ++i) folder.acked(kPath, 5, 2 * kSecond + i, took(i * kMillisecond));
  folder.acked(kOther, 5, 2 * kSecond, took(kMillisecond));
  folder.acked(kPath, 6, 3 * kSecond, {});
  CHECK(folder.next_close() == 3 * kSecond + kGrace);
  folder.close_due(INT64_MAX);
  const auto closed = folder.take();
  REQUIRE(closed.size() == 3);
  CHECK(closed[0].key == kPath);
  CHECK(closed[0].responder_epoch == 5);
  CHECK(closed[0].rung == model::TimestampRung::NicTicks);
  CHECK(closed[0].acked == 10);
  CHECK(closed[0].rtt_min_ns == kMillisecond);
  CHECK(closed[0].rtt_median_ns == 5 * kMillisecond);
  CHECK(closed[0].rtt_p90_ns == 9 * kMillisecond);
  CHECK(closed[0].rtt_max_ns == 10 * kMillisecond);
  CHECK(closed[1].key == kOther);
  CHECK(closed[1].rtt_median_ns == kMillisecond);
  CHECK(closed[2].responder_epoch == 6);
  CHECK_FALSE(closed[2].rtt_median_ns);
}

TEST_CASE("window: events that accuse nobody are counted apart from what was sent", "[ping]") {
  WindowFolder folder(kGrace, kGrace);
  for (const Aside what : {Aside::Late, Aside::Duplicate, Aside::LocalError, Aside::Overslept, Aside::Throttled}) {
    folder.aside(kPath, 5, kSecond, what);
  }
  folder.close_due(INT64_MAX);
  const auto closed = folder.take();
  REQUIRE(closed.size() == 1);
  CHECK(closed[0].sent == 0);
  CHECK(closed[0].late == 1);
  CHECK(closed[0].duplicate == 1);
  CHECK(closed[0].local_error == 1);
  CHECK(closed[0].overslept == 1);
  CHECK(closed[0].throttled == 1);
}

TEST_CASE("window: an answered probe that turns out to be overslept counts no more, and keeps its round trip",
          "[ping]") {
  WindowFolder folder(kGrace, kGrace);
  AckFacts untimed;
  untimed.without_times = true;
  const auto window = folder.acked(kPath, 5, kSecond, took(kMillisecond));
  CHECK(folder.acked(kPath, 5, kSecond, untimed) == window);
  folder.lost(kPath, 5, kSecond, Loss::Forward);
  folder.uncount_acked(kPath, window, false);
  folder.uncount_acked(kPath, window, true);
  folder.close_due(INT64_MAX);
  folder.uncount_acked(kPath, window, false);  // too late
  const auto closed = folder.take();
  REQUIRE(closed.size() == 1);
  CHECK(closed[0].sent == 1);
  CHECK(closed[0].acked == 0);
  CHECK(closed[0].acked_without_times == 0);
  CHECK(closed[0].overslept == 2);
  CHECK(closed[0].rtt_max_ns == kMillisecond);
}

TEST_CASE("window: past its bound the oldest closed windows go, and are counted", "[ping]") {
  WindowFolder folder(kGrace, kGrace, 3);
  for (Nanos second = 1; second <= 5; ++second) folder.lost(kPath, 5, second * kSecond, Loss::Forward);
  folder.close_due(INT64_MAX);
  CHECK(folder.take().size() == 3);
  CHECK(folder.dropped() == 2);
  CHECK(folder.totals().lost_forward == 5);
}

TEST_CASE("window: a loss of unknown kind keeps its window open for the grace, others go out as they settle",
          "[ping]") {
  constexpr Nanos kSettle = 300 * kMillisecond;
  WindowFolder folder(kSettle, kGrace);
  const Nanos start = 1000 * kSecond;
  const auto window = folder.lost(kPath, 5, start, Loss::Unknown);
  folder.acked(kOther, 5, start, took(kMillisecond));
  CHECK(folder.next_close() == start + kSecond + kSettle);
  folder.close_due(start + kSecond + kSettle);
  auto closed = folder.take();
  REQUIRE(closed.size() == 1);
  CHECK(closed[0].key == kOther);
  CHECK(folder.next_close() == start + kSecond + kGrace);
  SECTION("nothing tells") { folder.close_due(start + kSecond + kGrace); }
  SECTION("excused by a new responder epoch") {
    CHECK(folder.move(kPath, window, Loss::Unknown, Loss::Stale));
    folder.close_due(start + kSecond + kSettle + kMillisecond);
  }
  closed = folder.take();
  REQUIRE(closed.size() == 1);
  CHECK(closed[0].lost_unknown + closed[0].stale == 1);
  CHECK_FALSE(folder.next_close());
}
