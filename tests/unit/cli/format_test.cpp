#include "cli/format.h"

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::cli;

TEST_CASE("times have three digits and the unit that fits", "[cli]") {
  CHECK(format_ns(0) == "0 ns");
  CHECK(format_ns(812) == "812 ns");
  CHECK(format_ns(1'000) == "1.00 us");
  CHECK(format_ns(45'230) == "45.2 us");
  CHECK(format_ns(999'499) == "999 us");
  CHECK(format_ns(999'600) == "1.00 ms");
  CHECK(format_ns(1'234'567) == "1.23 ms");
  CHECK(format_ns(99'960'000) == "100 ms");
  CHECK(format_ns(2'500'000'000) == "2.50 s");
  CHECK(format_ns(-30'000) == "-30.0 us");
  CHECK(format_ns(std::optional<Nanos>()) == "-");
}

TEST_CASE("shares never round to a clean 0 % or 100 % that is not one", "[cli]") {
  CHECK(format_share(0, 0) == "-");
  CHECK(format_share(0, 500) == "0 %");
  CHECK(format_share(1, 1'000'000) == "<0.01 %");
  CHECK(format_share(1, 500) == "0.20 %");
  CHECK(format_share(12, 500) == "2.4 %");
  CHECK(format_share(100, 500) == "20 %");
  CHECK(format_share(9'999, 10'000) == ">99.9 %");
  CHECK(format_share(500, 500) == "100 %");
  CHECK(format_share(501, 500) == "100 %");  // iperf3 1489: lost percent 179
}

TEST_CASE("ages use two units at most", "[cli]") {
  CHECK(format_age(-5) == "0 s");
  CHECK(format_age(8 * kSecond) == "8 s");
  CHECK(format_age(120 * kSecond) == "2 min");
  CHECK(format_age(125 * kSecond) == "2 min 5 s");
  CHECK(format_age(15000 * kSecond) == "4 h 10 min");
  CHECK(format_age(183600 * kSecond) == "2 d 3 h");
}

TEST_CASE("rates and counts read as people say them", "[cli]") {
  CHECK(format_bits(400'000'000'000) == "400 Gb/s");
  CHECK(format_bits(2'500'000'000) == "2.5 Gb/s");
  CHECK(format_bits(100'000'000) == "100 Mb/s");
  CHECK(count_of(1, "probe") == "1 probe");
  CHECK(count_of(0, "probe") == "0 probes");
}

TEST_CASE("a duration is seconds without a unit, and never zero, negative, endless or a word", "[cli]") {
  CHECK(parse_seconds("0.5").value() == 500 * kMillisecond);
  CHECK(parse_seconds("2").value() == 2 * kSecond);
  CHECK(parse_seconds("10ms").value() == 10 * kMillisecond);
  CHECK(parse_seconds("5m").value() == 300 * kSecond);
  for (const char* bad : {"", "0", "-1", "0s", "nan", "inf", "1e300", "fast", "1 s x"}) {
    INFO(bad);
    const auto parsed = parse_seconds(bad);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().kind == Error::Kind::Invalid);
  }
}
