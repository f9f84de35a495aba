#include "lib/base/budget.h"

#include "tests/unit/catch.h"

using weft::Budget;
using weft::kMillisecond;
using weft::kSecond;

TEST_CASE("budget: refuses past its burst and counts each refusal", "[base]") {
  Budget budget(10, 2);
  CHECK(budget.take(kSecond));
  CHECK(budget.take(kSecond));
  CHECK_FALSE(budget.take(kSecond));
  CHECK_FALSE(budget.take(kSecond));
  CHECK(budget.refused() == 2);
}

TEST_CASE("budget: refills at its rate and never past its burst", "[base]") {
  Budget budget(10, 2);
  CHECK(budget.take(kSecond, 2));
  CHECK(budget.wait_ns(kSecond) > 99 * kMillisecond);
  CHECK(budget.take(kSecond + 101 * kMillisecond));
  CHECK(budget.take(100 * kSecond, 2));
  CHECK_FALSE(budget.take(100 * kSecond));
}

TEST_CASE("budget: a clock that goes back gives nothing and takes nothing", "[base]") {
  Budget budget(1, 1);
  CHECK(budget.take(10 * kSecond));
  CHECK_FALSE(budget.take(5 * kSecond));
  CHECK(budget.take(11 * kSecond));
}

TEST_CASE("budget: a rate of zero never has more", "[base]") {
  Budget budget(0, 1);
  CHECK(budget.take(kSecond));
  CHECK_FALSE(budget.take(1000 * kSecond));
  CHECK(budget.wait_ns(1000 * kSecond) == INT64_MAX);
}
