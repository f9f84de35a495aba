// Time as a seam: everything that waits or stamps takes a Clock, so tests never sleep.
// monotonic_ns is CLOCK_MONOTONIC: for every interval. wall_ns is CLOCK_REALTIME: on the wire and for people only.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace weft {

using Nanos = std::int64_t;  // nanoseconds
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos monotonic_ns() const = 0;
  virtual Nanos wall_ns() const = 0;
};

// Thread safe, stateless.
class SystemClock final : public Clock {
 public:
  Nanos monotonic_ns() const override;
  Nanos wall_ns() const override;
};

// For tests: time moves when told. Thread safe.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(Nanos monotonic = 1'000 * kSecond, Nanos wall = 1'700'000'000 * kSecond)
      : monotonic_(monotonic), wall_(wall) {}
  Nanos monotonic_ns() const override { return monotonic_.load(); }
  Nanos wall_ns() const override { return wall_.load(); }
  void advance(Nanos by) {
    monotonic_ += by;
    wall_ += by;
  }
  void step_wall(Nanos by) { wall_ += by; }

 private:
  std::atomic<Nanos> monotonic_;
  std::atomic<Nanos> wall_;
};

// "2026-12-01T18:30:59.123Z". Out of range clamps to the years 1970..9999.
std::string format_rfc3339(Nanos wall_ns);
// Inverse; accepts a fraction of 0..9 digits and 'Z' or +hh:mm. Returns false on anything else.
bool parse_rfc3339(const std::string& text, Nanos& wall_ns);

}  // namespace weft
