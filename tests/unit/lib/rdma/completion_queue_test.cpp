#include "lib/rdma/completion_queue.h"

#include <cerrno>

#include "tests/unit/catch.h"
#include "tests/unit/lib/rdma/fake_verbs.h"
#include "tests/unit/log_capture.h"

using namespace weft;
using namespace weft::rdma;
using weft::test::FakeCompletion;
using weft::test::FakeVerbs;
using Rung = model::TimestampRung;

namespace {

constexpr std::uint64_t kTicks = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
constexpr std::uint64_t kWall = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

struct Fixture {
  FakeVerbs verbs;
  FakeClock clock;
  std::unique_ptr<Device> device;
  std::unique_ptr<CompletionQueue> queue;

  void open() {
    auto opened = Device::open(verbs.name);
    REQUIRE(opened);
    device = std::move(*opened);
    auto made = CompletionQueue::create(*device, 64, clock);
    if (!made) FAIL(made.error().message());
    queue = std::move(*made);
  }
  std::vector<Completion> poll(unsigned limit = 64) {
    std::vector<Completion> out;
    REQUIRE(queue->poll(out, limit));
    return out;
  }
};

FakeCompletion completion(std::uint64_t work_id) {
  FakeCompletion it;
  it.work_id = work_id;
  it.byte_len = 100;
  it.queue_pair = 17;
  it.source_queue_pair = 33;
  it.flags = IBV_WC_GRH;
  return it;
}

}  // namespace

TEST_CASE("completion queue: no queue at all is an error with device and size, and nothing stays", "[rdma]") {
  Fixture f;
  f.verbs.extended_queues = false;
  f.verbs.fails["create_cq"] = ENOMEM;
  auto device = Device::open("mlx5_0");
  REQUIRE(device);
  const auto queue = CompletionQueue::create(**device, 64, f.clock);
  REQUIRE_FALSE(queue);
  CHECK_THAT(queue.error().message(), ContainsSubstring("mlx5_0: cannot create a completion queue of 64"));
  device->reset();
  CHECK(f.verbs.alive() == 0);
}

TEST_CASE("completion queue: a driver without create_cq_ex gets a classic queue, and says so (perftest PR 286, 272)",
          "[rdma]") {
  Fixture f;
  f.verbs.extended_queues = false;
  f.open();
  CHECK(f.verbs.classic_queues == 1);
  CHECK(f.queue->clock().rung == Rung::Software);
  f.verbs.complete(f.queue->handle(), completion(5));
  const auto got = f.poll();
  REQUIRE(got.size() == 1);
  CHECK(got[0].stamp == static_cast<std::uint64_t>(f.clock.monotonic_ns()));
}

TEST_CASE("completion queue: one that grants no timestamps is extended without time, and says so (perftest PR 286)",
          "[rdma]") {
  Fixture f;
  f.open();
  CHECK(f.verbs.extended_queues_made == 1);
  CHECK(f.queue->clock().rung == Rung::Software);
  f.verbs.complete(f.queue->handle(), completion(5));
  CHECK(f.poll().at(0).stamp == static_cast<std::uint64_t>(f.clock.monotonic_ns()));
}

TEST_CASE(
    "completion queue: a NIC without real-time stamps falls to its ticks, and never is one read as the other "
    "(daqiri 283, 265)",
    "[rdma]") {
  Fixture f;
  f.verbs.timestamp_mask = (std::uint64_t{1} << 48) - 1;
  f.verbs.core_clock_khz = 156'250;
  FakeCompletion both = completion(5);
  both.ticks = 156'250;
  both.wall_ns = 1'700'000'000'000'000'000;
  SECTION("ticks only") {
    f.verbs.stamp_flags = kTicks;
    f.open();
    CHECK(f.queue->clock().rung == Rung::NicTicks);
    f.verbs.complete(f.queue->handle(), both);
    CHECK(f.poll().at(0).stamp == 156'250);
    CHECK(f.queue->clock().elapsed_ns(0, 156'250) == kMillisecond);
  }
  SECTION("both: real time alone is asked for, or mlx5 would convert ticks by the kernel's page") {
    f.verbs.stamp_flags = kTicks | kWall;
    f.open();
    CHECK(f.queue->clock().rung == Rung::NicWallClock);
    CHECK((f.verbs.queue_flags_asked.at(0) & (kTicks | kWall)) == kWall);
    f.verbs.complete(f.queue->handle(), both);
    CHECK(f.poll().at(0).stamp == 1'700'000'000'000'000'000);
    // Across a second: nanoseconds, no packed seconds and fractions.
    CHECK(f.queue->clock().elapsed_ns(1'699'999'999'999'999'000, 1'700'000'000'000'000'000) == kMicrosecond);
  }
}

TEST_CASE("completion queue: a tick rate that disagrees with the CPU's clock is not used (libxlio PR 640)", "[rdma]") {
  const SystemClock clock;
  FakeVerbs verbs;
  verbs.stamp_flags = kTicks;
  verbs.timestamp_mask = ~std::uint64_t{0};
  verbs.core_clock_khz = 156'250;
  const auto rung_of = [&] {
    auto device = Device::open("mlx5_0");
    REQUIRE(device);
    auto queue = CompletionQueue::create(**device, 64, clock);
    REQUIRE(queue);
    return (*queue)->clock().rung;
  };
  // A clock that stands still between two readings is a thousand times off and more.
  verbs.raw_clock_ticks_a_read = 1;
  test::expect_log("the NIC's clock rate disagrees with the CPU's");
  CHECK(rung_of() == Rung::Software);
}

TEST_CASE(
    "completion queue: a clock that cannot be read is trusted, and no CPU frequency is asked or warned about "
    "(perftest 372, nccl-tests 374)",
    "[rdma]") {
  Fixture f;
  f.verbs.stamp_flags = kTicks;
  f.verbs.timestamp_mask = ~std::uint64_t{0};
  f.verbs.core_clock_khz = 1'000'000;
  f.open();
  CHECK(f.queue->clock().rung == Rung::NicTicks);
  CHECK(test::logged().empty());
}

TEST_CASE("completion queue: rxe is polled the classic way whatever it offers (rdma-core PR 1512, 1617)", "[rdma]") {
  Fixture f;
  f.verbs.make_rxe();
  f.verbs.stamp_flags = kTicks | kWall;
  f.open();
  CHECK(f.verbs.classic_queues == 1);
  CHECK(f.verbs.queue_flags_asked.empty());
  for (std::uint64_t id = 1; id <= 40; ++id) f.verbs.complete(f.queue->handle(), completion(id));
  CHECK(f.poll(10).size() == 10);
  const auto rest = f.poll();
  REQUIRE(rest.size() == 30);
  CHECK(rest.front().work_id == 11);
  CHECK(f.verbs.polls_begun == 0);
}

TEST_CASE("completion queue: each extended poll that began ends once, however it goes (rdma-core PR 1617)", "[rdma]") {
  Fixture f;
  f.open();
  CHECK(f.poll().empty());
  CHECK(f.verbs.polls_ended == 0);  // an empty queue: nothing began
  for (std::uint64_t id = 1; id <= 3; ++id) f.verbs.complete(f.queue->handle(), completion(id));
  // The first is there as soon as the poll has begun.
  CHECK(f.poll(1).at(0).work_id == 1);
  CHECK(f.poll().size() == 2);
  f.verbs.complete(f.queue->handle(), completion(4));
  f.verbs.complete(f.queue->handle(), completion(5));
  f.verbs.next_poll_error = EIO;
  CHECK(f.poll().size() == 1);
  CHECK(f.verbs.polls_begun == 3);
  CHECK(f.verbs.polls_ended == 3);
}

TEST_CASE("completion queue: a poll that is busy is tried again, and one that stays so ends without an error",
          "[rdma]") {
  Fixture f;
  f.open();
  f.verbs.complete(f.queue->handle(), completion(1));
  f.verbs.busy_polls = 3;
  CHECK(f.poll().size() == 1);
  f.verbs.complete(f.queue->handle(), completion(2));
  f.verbs.busy_polls = 1'000'000;
  CHECK(f.poll().empty());
}

TEST_CASE("completion queue: of a failed request nothing but its id and status is read", "[rdma]") {
  Fixture f;
  f.open();
  FakeCompletion bad = completion(9);
  bad.status = IBV_WC_WR_FLUSH_ERR;
  f.verbs.complete(f.queue->handle(), bad);
  const auto got = f.poll();
  REQUIRE(got.size() == 1);
  CHECK(got[0].work_id == 9);
  CHECK(got[0].status == IBV_WC_WR_FLUSH_ERR);
  CHECK(got[0].byte_len == 0);
  CHECK_FALSE(got[0].has_grh);
}

TEST_CASE("completion queue: a status that verbs does not know is a failure, never a success or another's name",
          "[rdma]") {
  for (const bool rxe : {false, true}) {
    Fixture f;
    if (rxe) f.verbs.make_rxe();
    f.open();
    FakeCompletion odd = completion(9);
    odd.status = 200;
    f.verbs.complete(f.queue->handle(), odd);
    const auto got = f.poll();
    REQUIRE(got.size() == 1);
    CHECK(got[0].work_id == 9);
    CHECK(got[0].status == IBV_WC_GENERAL_ERR);
  }
}

TEST_CASE("completion queue: polling and arming that fail name the device", "[rdma]") {
  Fixture f;
  f.verbs.make_rxe();
  f.open();
  f.verbs.fails["poll_cq"] = EIO;
  f.verbs.fails["req_notify_cq"] = EINVAL;
  std::vector<Completion> out;
  CHECK_THAT(f.queue->poll(out, 4).error().message(), ContainsSubstring("rxe0: polling"));
  CHECK_THAT(f.queue->arm().error().message(), ContainsSubstring("rxe0: cannot ask for completion events"));
}
