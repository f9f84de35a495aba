#include "lib/base/log.h"

#include "tests/unit/catch.h"

namespace wlog = weft::log;

TEST_CASE("log: a value with a newline cannot forge a line", "[base]") {
  weft::test::expect_log("peer");
  wlog::warning("probe", "peer refused", {{"name", "h1\nerror all is lost"}, {"count", 3}, {"empty", ""}});
  const auto lines = weft::test::logged();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "probe: peer refused name=\"h1\\x0aerror all is lost\" count=3 empty=\"\"");
}

TEST_CASE("log: a level that does not exist is refused", "[base]") {
  wlog::Level level = wlog::Level::Info;
  CHECK_FALSE(wlog::parse_level("loud", level));
  CHECK(wlog::parse_level("debug", level));
  CHECK(level == wlog::Level::Debug);
}

TEST_CASE("log limiter: speaks once per interval and says how often it was held back", "[base]") {
  wlog::Limiter limiter(10 * weft::kSecond);
  std::uint64_t held = 99;
  CHECK(limiter.allow(1 * weft::kSecond, held));
  CHECK(held == 0);
  CHECK_FALSE(limiter.allow(2 * weft::kSecond, held));
  CHECK_FALSE(limiter.allow(3 * weft::kSecond, held));
  CHECK(limiter.allow(12 * weft::kSecond, held));
  CHECK(held == 2);
}
