#include "lib/localise/host_book.h"

#include "lib/localise/localiser.h"
#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::localise;

TEST_CASE("hosts: one whose software several peers wait for is overloaded, though its reports do not come",
          "[localise]") {
  const auto config = LocaliserConfig{};
  HostBook book(config.host_silent_after_ns, config.delay_floor_ns);
  Nanos now = 1'000 * kSecond;
  Host& host = *book.touch("h3", now);
  book.on_start(host, 1, now);
  book.on_health(host, {}, now);
  for (int second = 1; second <= 4; ++second) {
    now += kSecond;
    host.last_answer = now;
    for (const char* prober : {"h1", "h2"}) book.on_slow_answer(host, prober, 600 * kMillisecond, now);
    book.review(now);
    CHECK(book.state(host, now) == HostState::Reporting);
  }
  CHECK(host.overloaded);
}

TEST_CASE("hosts: one peer that waited may be late itself", "[localise]") {
  const auto config = LocaliserConfig{};
  HostBook book(config.host_silent_after_ns, config.delay_floor_ns);
  Nanos now = 1'000 * kSecond;
  Host& other = *book.touch("h4", now);
  book.on_start(other, 1, now);
  book.on_health(other, {}, now);
  for (int second = 1; second <= 4; ++second) {
    now += kSecond;
    other.last_answer = now;
    book.on_slow_answer(other, "h1", 600 * kMillisecond, now);
    book.review(now);
  }
  CHECK_FALSE(other.overloaded);
  CHECK(book.state(other, now) == HostState::Unreachable);
}

TEST_CASE("hosts: an answer from before the reports ended is no sign of life after it", "[localise]") {
  HostBook book(3 * kSecond, kMillisecond);
  const Nanos end = 1'000 * kSecond;
  Host& host = *book.touch("h3", end);
  book.on_start(host, 1, end);
  host.last_answer = end + 2 * kSecond;  // the last window that has one
  CHECK(book.state(host, end + 3 * kSecond) == HostState::Reporting);
  CHECK(book.state(host, end + 3 * kSecond + kMillisecond) == HostState::Reporting);
  CHECK(book.state(host, end + 3'600 * kMillisecond) == HostState::Silent);
  host.last_answer = end + 3'600 * kMillisecond;
  CHECK(book.state(host, end + 4 * kSecond) == HostState::Unreachable);
}

TEST_CASE("hosts: a report that covers seconds counts for as many of them", "[localise]") {
  HostBook book(3 * kSecond, kMillisecond);
  Nanos now = 1'000 * kSecond;
  Host& host = *book.touch("h3", now);
  book.on_start(host, 1, now);
  model::HostHealth late;
  late.window_ns = 2 * kSecond;
  late.max_gap_ns = 950 * kMillisecond;
  late.total_gap_ns = 1'900 * kMillisecond;
  for (int report = 0; report < 2; ++report) {
    now += 2 * kSecond;
    book.on_contact(host, now);
    book.on_health(host, late, now);
    book.review(now);
  }
  CHECK(host.overloaded);
}

TEST_CASE("hosts: one long stop is one bad moment, not an overload", "[localise]") {
  HostBook book(3 * kSecond, kMillisecond);
  Nanos now = 1'000 * kSecond;
  Host& host = *book.touch("h3", now);
  book.on_start(host, 1, now);
  model::HostHealth health;
  health.window_ns = 11 * kSecond;
  health.max_gap_ns = health.total_gap_ns = 10'200 * kMillisecond;
  for (int report = 0; report < 6; ++report) {
    now += kSecond;
    book.on_contact(host, now);
    book.on_health(host, health, now);
    book.review(now);
    CHECK_FALSE(host.overloaded);
    // One more that is late while everything that waited is worked off.
    health = {};
    health.window_ns = kSecond;
    health.max_gap_ns = health.total_gap_ns = report == 0 ? 200 * kMillisecond : 5 * kMillisecond;
  }
}

TEST_CASE("hosts: one that falls silent out of nothing gets no patience, one that ran late does", "[localise]") {
  HostBook book(3 * kSecond, kMillisecond);
  const Nanos start = 1'000 * kSecond;
  Host& host = *book.touch("h3", start);
  book.on_start(host, 1, start);
  model::HostHealth health;
  health.window_ns = kSecond;
  SECTION("out of nothing") {
    book.on_health(host, health, start);
    CHECK(book.state(host, start + 4 * kSecond) == HostState::Silent);
  }
  SECTION("it ran late, twice") {
    health.max_gap_ns = 800 * kMillisecond;
    Nanos last = start;
    for (int report = 0; report < 2; ++report) {
      last += kSecond;
      book.on_contact(host, last);
      book.on_health(host, health, last);
    }
    CHECK(book.state(host, last + 7 * kSecond) == HostState::Reporting);
    CHECK(book.state(host, last + 8 * kSecond) == HostState::Silent);
    // An answer says that it lives; then only its reports are held up.
    host.last_answer = last + 18 * kSecond;
    CHECK(book.state(host, last + 19 * kSecond) == HostState::Reporting);
    host.last_answer = last + 21 * kSecond;
    CHECK(book.state(host, last + 21 * kSecond) == HostState::Unreachable);
  }
}
