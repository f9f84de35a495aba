#include "agent/daemon/chores.h"

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::agent;

namespace {

struct Count {
  unsigned inventories = 0, pages = 0;
};

Count of_seconds(Chores& chores, unsigned seconds, Nanos max_gap_ns) {
  Count count;
  for (unsigned i = 0; i < seconds; ++i) {
    const DueChores due = chores.next(max_gap_ns);
    count.inventories += due.inventory ? 1 : 0;
    count.pages += due.page ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("chores: a host that is starved puts off what nobody waits for, but not for ever", "[agent]") {
  Chores chores;
  const Count late = of_seconds(chores, 60, 800 * kMillisecond);
  CHECK(late.inventories == 5);
  CHECK(late.pages == 15);
}

TEST_CASE("chores: what was put off is done as soon as the host is on time again", "[agent]") {
  Chores chores;
  of_seconds(chores, 3, 800 * kMillisecond);
  const DueChores due = chores.next(2 * kMillisecond);
  CHECK(due.inventory);
  CHECK(due.page);
}

TEST_CASE("chores: a host that is only a little late reads its devices as often as ever", "[agent]") {
  Chores chores;
  of_seconds(chores, 12, 20 * kMillisecond);
  const Count late = of_seconds(chores, 60, 200 * kMillisecond);
  CHECK(late.inventories == 6);
  CHECK(late.pages == 60);
}

TEST_CASE("chores: devices are read every third second at first and after a change, else every tenth", "[agent]") {
  Chores chores;
  CHECK(of_seconds(chores, 12, 20 * kMillisecond).inventories == 4);
  const Count calm = of_seconds(chores, 60, 20 * kMillisecond);
  CHECK(calm.inventories == 6);
  CHECK(calm.pages == 60);
  chores.changed();
  CHECK(of_seconds(chores, 12, 20 * kMillisecond).inventories == 4);
  CHECK(of_seconds(chores, 60, 20 * kMillisecond).inventories == 6);
}
