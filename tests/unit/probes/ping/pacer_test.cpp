#include "probes/ping/pacer.h"

#include <set>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

namespace {

// Every turn of all paths until end, in order: (time, id).
std::vector<std::pair<Nanos, Pacer::Id>> turns(Pacer& pacer, Nanos end) {
  std::vector<std::pair<Nanos, Pacer::Id>> list;
  while (const auto next = pacer.next_due()) {
    if (*next > end) break;
    const auto due = pacer.pop(*next);
    REQUIRE(due);
    CHECK(due->late_ns == 0);
    list.emplace_back(*next, due->id);
  }
  return list;
}

}  // namespace

TEST_CASE("pacer: nothing is due before its time, nor without a rate", "[ping]") {
  Pacer pacer(1);
  CHECK_FALSE(pacer.next_due());
  CHECK_FALSE(pacer.pop(kSecond));
  pacer.set(1, 0, kSecond);
  pacer.set(2, -1, kSecond);
  CHECK_FALSE(pacer.next_due());
  pacer.set(3, 1, kSecond);
  CHECK(pacer.pop(kSecond));
  CHECK_FALSE(pacer.pop(kSecond));
  pacer.remove(3);
  CHECK_FALSE(pacer.next_due());
}

TEST_CASE("pacer: what was slept through is skipped, and the lateness is told", "[ping]") {
  Pacer pacer(1);
  pacer.set(1, 10, kSecond);
  REQUIRE(pacer.pop(kSecond));
  const auto late = pacer.pop(11 * kSecond);
  REQUIRE(late);
  CHECK(late->late_ns > 9 * kSecond);
  CHECK_FALSE(pacer.pop(11 * kSecond));
  CHECK(*pacer.next_due() > 11 * kSecond);
  CHECK(*pacer.next_due() <= 11 * kSecond + 110 * kMillisecond);
}

TEST_CASE("pacer: keeps its rate over time, with a little jitter", "[ping]") {
  Pacer pacer(7);
  pacer.set(1, 20, 0);
  const auto list = turns(pacer, 100 * kSecond);
  CHECK(list.size() >= 1999);
  CHECK(list.size() <= 2001);
  std::set<Nanos> gaps;
  for (std::size_t i = 1; i < list.size(); ++i) {
    const Nanos gap = list[i].first - list[i - 1].first;
    CHECK(gap >= 44 * kMillisecond);
    CHECK(gap <= 56 * kMillisecond);
    gaps.insert(gap);
  }
  CHECK(gaps.size() > 100);
}

TEST_CASE("pacer: many paths of one rate are spread over their interval", "[ping]") {
  Pacer pacer(7);
  for (Pacer::Id id = 0; id < 100; ++id) pacer.set(id, 1, 0);
  const auto list = turns(pacer, kSecond);
  CHECK(list.size() >= 95);
  std::vector<unsigned> bins(11);
  for (const auto& [at, id] : list) ++bins[static_cast<std::size_t>(at / (100 * kMillisecond))];
  for (std::size_t bin = 0; bin < 10; ++bin) CHECK(bins[bin] <= 20);
}

TEST_CASE("pacer: setting the same rate again changes nothing", "[ping]") {
  Pacer pacer(7);
  pacer.set(1, 1, 0);
  REQUIRE(pacer.pop(0));
  const auto next = pacer.next_due();
  pacer.set(1, 1, 500 * kMillisecond);
  CHECK(pacer.next_due() == next);
  pacer.set(1, 100, 500 * kMillisecond);
  CHECK(*pacer.next_due() < *next);
}
