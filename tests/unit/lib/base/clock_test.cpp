#include "lib/base/clock.h"

#include <ctime>

#include "tests/unit/catch.h"

using weft::format_rfc3339;
using weft::Nanos;
using weft::parse_rfc3339;

TEST_CASE("system clock: intervals are the kernel's, whatever the CPU's frequency does (perftest 372, nccl-tests 374)",
          "[base]") {
  const weft::SystemClock clock;
  const auto kernel = [](clockid_t id) {
    timespec now{};
    clock_gettime(id, &now);
    return static_cast<Nanos>(now.tv_sec) * weft::kSecond + now.tv_nsec;
  };
  for (int i = 0; i < 1000; ++i) {
    const Nanos before = kernel(CLOCK_MONOTONIC);
    const Nanos read = clock.monotonic_ns();
    CHECK((before <= read && read <= kernel(CLOCK_MONOTONIC)));
  }
}

TEST_CASE("rfc3339: text that is no time is refused", "[base]") {
  const char* text = GENERATE("", "yesterday", "2026-12-01", "2026-12-01T18:30:59", "2026-13-01T18:30:59Z",
                              "2026-12-01T18:30:59.Z", "2026-12-01T18:30:59+1:00", "2026-12-01T18:30:59.1234567890Z",
                              "2026-12-01T18:30:59Zx", "9999-12-01T18:30:59Z");
  Nanos out = 42;
  CHECK_FALSE(parse_rfc3339(text, out));
  CHECK(out == 42);
}

TEST_CASE("rfc3339: what is written is read back to the millisecond", "[base]") {
  const Nanos when = GENERATE(as<Nanos>{}, 0, 1'764'613'859'123'000'000, 951'782'400'000'000'000);
  Nanos back = -1;
  REQUIRE(parse_rfc3339(format_rfc3339(when), back));
  CHECK(back == when);
}

TEST_CASE("rfc3339: an offset is honoured and a negative time clamps to 1970", "[base]") {
  Nanos a = 0;
  Nanos b = 0;
  REQUIRE(parse_rfc3339("2026-12-01T19:30:59+01:00", a));
  REQUIRE(parse_rfc3339("2026-12-01T18:30:59Z", b));
  CHECK(a == b);
  CHECK(format_rfc3339(-5) == "1970-01-01T00:00:00.000Z");
}

TEST_CASE("fake clock: moves only when told, and a wall step leaves the monotonic clock alone", "[base]") {
  weft::FakeClock clock(10, 20);
  clock.advance(5);
  clock.step_wall(86'400 * weft::kSecond);
  CHECK(clock.monotonic_ns() == 15);
  CHECK(clock.wall_ns() == 25 + 86'400 * weft::kSecond);
}
