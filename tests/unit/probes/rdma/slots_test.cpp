#include "probes/rdma/slots.h"

#include <set>

#include "tests/unit/catch.h"

using namespace weft::probes;

TEST_CASE("a completion that was never asked for, or comes twice, is not ours (rdma-core PR 1512)", "[rdma]") {
  Slots slots(false, 3, 4);
  CHECK_FALSE(slots.finish(WorkId{false, 3, 0, 0}));
  const auto taken = slots.take(77);
  REQUIRE(taken);
  const WorkId id = WorkId::unpack(taken->work_id);
  CHECK_FALSE(slots.finish(WorkId{true, id.lane, id.slot, id.nonce}));
  CHECK_FALSE(slots.finish(WorkId{false, 4, id.slot, id.nonce}));
  CHECK_FALSE(slots.finish(WorkId{false, id.lane, 4, id.nonce}));
  CHECK_FALSE(slots.finish(WorkId{false, id.lane, id.slot, id.nonce + 1}));
  CHECK(slots.finish(id) == 77);
  CHECK_FALSE(slots.finish(id));
}

TEST_CASE("a completion from before a restart does not end the slot's new request (rpingmesh PR 29)", "[rdma]") {
  Slots slots(false, 0, 1);
  const auto old = slots.take(1);
  REQUIRE(old);
  CHECK(slots.finish_all() == std::vector<std::uint64_t>{1});
  const auto fresh = slots.take(2);
  REQUIRE(fresh);
  CHECK(fresh->slot == old->slot);
  CHECK_FALSE(slots.finish(WorkId::unpack(old->work_id)));
  CHECK(slots.finish(WorkId::unpack(fresh->work_id)) == 2);
}

TEST_CASE("no slot leaks: each finished one can be taken again (rpingmesh PR 30)", "[rdma]") {
  Slots slots(true, 1, 8);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::uint64_t> ids;
    while (const auto taken = slots.take()) ids.push_back(taken->work_id);
    REQUIRE(ids.size() == 8);
    CHECK(slots.in_flight() == 8);
    for (const auto id : ids) REQUIRE(slots.finish(WorkId::unpack(id)));
  }
  CHECK(slots.in_flight() == 0);
}

TEST_CASE("a work id survives packing at its bounds", "[rdma]") {
  for (const bool receive : {false, true}) {
    const WorkId id{receive, 0x7FFF, 0xFFFF, 0xFFFFFFFF};
    const WorkId back = WorkId::unpack(id.pack());
    CHECK(back.receive == receive);
    CHECK(back.lane == 0x7FFF);
    CHECK(back.slot == 0xFFFF);
    CHECK(back.nonce == 0xFFFFFFFF);
  }
}
