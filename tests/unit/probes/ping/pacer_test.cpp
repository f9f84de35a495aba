#include "probes/ping/pacer.h"

#include <map>
#include <set>
#include <vector>

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

// As the engine asks: it wakes for the next turn and takes all that go then, until end.
struct Wakes {
  unsigned count = 0;
  std::map<Pacer::Id, std::vector<Nanos>> turns;
};
Wakes wakes(Pacer& pacer, Nanos end) {
  Wakes seen;
  while (const auto next = pacer.next_due()) {
    if (*next > end) break;
    ++seen.count;
    while (const auto due = pacer.pop(*next)) {
      CHECK(due->late_ns == 0);
      seen.turns[due->id].push_back(*next);
    }
  }
  return seen;
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

TEST_CASE("pacer: a path that is nearly due goes along with one that is, and both keep their pace", "[ping]") {
  Pacer pacer(7);
  for (Pacer::Id id = 0; id < 4; ++id) pacer.set(id, 25, 0);
  const Wakes seen = wakes(pacer, 100 * kSecond);
  CHECK(seen.count <= 7'000);  // for 10,000 turns
  for (Pacer::Id id = 0; id < 4; ++id) {
    const std::vector<Nanos>& turns = seen.turns.at(id);
    CHECK(turns.size() >= 2'499);
    CHECK(turns.size() <= 2'501);
    for (std::size_t i = 1; i < turns.size(); ++i) {
      CHECK(turns[i] - turns[i - 1] >= 26 * kMillisecond);
      CHECK(turns[i] - turns[i - 1] <= 54 * kMillisecond);
    }
  }
}

TEST_CASE("pacer: no path goes along by more than a quarter of its interval, however many others are due", "[ping]") {
  Pacer pacer(7);
  for (Pacer::Id id = 0; id < 50; ++id) pacer.set(id, 250, 0);
  for (const auto& [id, turns] : wakes(pacer, 10 * kSecond).turns) {
    CHECK(turns.size() >= 2'499);
    CHECK(turns.size() <= 2'501);
    for (std::size_t i = 1; i < turns.size(); ++i) CHECK(turns[i] - turns[i - 1] >= 2'600 * kMicrosecond);
  }
}

TEST_CASE("pacer: with nothing due there is nothing to go along with", "[ping]") {
  Pacer pacer(7);
  pacer.set(1, 1, 0);
  REQUIRE(pacer.pop(0));
  const Nanos next = *pacer.next_due();
  CHECK_FALSE(pacer.pop(next - 1));
  CHECK_FALSE(pacer.pop(next - 1));
  CHECK(pacer.pop(next));
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
