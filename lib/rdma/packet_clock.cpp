#include "lib/rdma/packet_clock.h"

#include <limits>

namespace weft::rdma {
namespace {

constexpr std::uint64_t kNanosPerMilli = 1'000'000;

// Without overflow: whole milliseconds (a kHz is a tick a millisecond) and the rest apart.
Nanos ticks_to_ns(std::uint64_t ticks, std::uint64_t khz) {
  if (khz == 0) return 0;
  const std::uint64_t millis = ticks / khz;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<Nanos>::max());
  if (millis >= kMax / kNanosPerMilli) return std::numeric_limits<Nanos>::max();
  return static_cast<Nanos>(millis * kNanosPerMilli + ticks % khz * kNanosPerMilli / khz);
}

}  // namespace

Nanos PacketClock::elapsed_ns(std::uint64_t from, std::uint64_t to) const {
  const std::uint64_t forward = (to - from) & mask;
  if (forward <= mask / 2) return ticks_to_ns(forward, khz);
  return -ticks_to_ns((from - to) & mask, khz);
}

bool plausible_rate(std::uint64_t ticks, std::uint64_t khz, Nanos elapsed_ns) {
  if (khz == 0 || elapsed_ns <= 0) return false;
  const Nanos by_ticks = ticks_to_ns(ticks, khz);
  return by_ticks >= elapsed_ns / 5 * 4 && by_ticks <= elapsed_ns / 5 * 6;
}

}  // namespace weft::rdma
