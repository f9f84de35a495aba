// The clock that stamps completions, and differences on it. Pure; no reading of any clock here.
#pragma once

#include <cstdint>

#include "lib/base/clock.h"
#include "lib/model/path.h"

namespace weft::rdma {

struct PacketClock {
  model::TimestampRung rung = model::TimestampRung::Software;
  std::uint64_t mask = ~std::uint64_t{0};  // width of raw ticks (completion_timestamp_mask)
  std::uint64_t khz = 1'000'000;           // rate of raw ticks (hca_core_clock is in kHz); 1 GHz: stamps are ns

  // From one stamp to another, modulo the width; negative when `to` is the earlier one (by less than half the range).
  Nanos elapsed_ns(std::uint64_t from, std::uint64_t to) const;
};

// Does a tick rate agree with the CPU's clock within a fifth? A rate taken in the wrong unit is off a thousandfold.
bool plausible_rate(std::uint64_t ticks, std::uint64_t khz, Nanos elapsed_ns);

}  // namespace weft::rdma
