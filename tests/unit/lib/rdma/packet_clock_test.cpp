#include "lib/rdma/packet_clock.h"

#include <limits>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::rdma;

TEST_CASE("a tick rate in the wrong unit is a thousandfold off and is found (libxlio PR 640)", "[rdma]") {
  // 156.25 MHz for 2 ms.
  CHECK(plausible_rate(312'500, 156'250, 2 * kMillisecond));
  CHECK_FALSE(plausible_rate(312'500, 156, 2 * kMillisecond));
  CHECK_FALSE(plausible_rate(312'500, 156'250'000, 2 * kMillisecond));
  CHECK_FALSE(plausible_rate(312'500, 0, 2 * kMillisecond));
  CHECK_FALSE(plausible_rate(0, 156'250, 0));
}

TEST_CASE("ticks become nanoseconds by a rate in kHz, across the wrap of their width", "[rdma]") {
  PacketClock clock{model::TimestampRung::NicTicks, (std::uint64_t{1} << 48) - 1, 156'250};
  CHECK(clock.elapsed_ns(1000, 1000 + 156'250) == kMillisecond);
  CHECK(clock.elapsed_ns(clock.mask - 99, 156'250 - 100) == kMillisecond);
  // Bits above the width are noise.
  CHECK(clock.elapsed_ns(1000 | (std::uint64_t{7} << 50), 1000 + 156'250) == kMillisecond);
}

TEST_CASE("an earlier second stamp gives a negative time, not half an age", "[rdma]") {
  const PacketClock ticks{model::TimestampRung::NicTicks, 0xFFFFFFFF, 1'000'000};
  CHECK(ticks.elapsed_ns(500, 200) == -300);
  const PacketClock software;
  CHECK(software.elapsed_ns(5'000, 2'000) == -3'000);
  CHECK(software.elapsed_ns(2'000, 5'000) == 3'000);
}

TEST_CASE("no tick count overflows, and a rate of 0 gives 0", "[rdma]") {
  const PacketClock slow{model::TimestampRung::NicTicks, ~std::uint64_t{0}, 1};
  CHECK(slow.elapsed_ns(0, std::numeric_limits<std::int64_t>::max()) == std::numeric_limits<Nanos>::max());
  const PacketClock unknown{model::TimestampRung::NicTicks, ~std::uint64_t{0}, 0};
  CHECK(unknown.elapsed_ns(0, 5'000) == 0);
}
