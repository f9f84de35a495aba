// A token bucket: at most rate_per_s takes a second over time, at most burst at once.
// Pure over the time passed in (monotonic ns); not thread safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/base/clock.h"

namespace weft {

class Budget {
 public:
  Budget(double rate_per_s, double burst) : rate_per_s_(rate_per_s), burst_(burst), tokens_(burst) {}

  // Takes cost tokens if they are there; counts a refusal otherwise.
  bool take(Nanos now, double cost = 1.0) {
    refill(now);
    if (tokens_ + 1e-9 < cost) {
      ++refused_;
      return false;
    }
    tokens_ -= cost;
    return true;
  }

  // Nanoseconds from now until cost tokens will be there; 0 when they are.
  Nanos wait_ns(Nanos now, double cost = 1.0) {
    refill(now);
    if (tokens_ >= cost) return 0;
    if (rate_per_s_ <= 0) return INT64_MAX;
    return static_cast<Nanos>((cost - tokens_) / rate_per_s_ * 1e9) + 1;
  }

  void set_rate(double rate_per_s, double burst) {
    rate_per_s_ = rate_per_s;
    burst_ = burst;
    tokens_ = std::min(tokens_, burst);
  }
  double rate_per_s() const { return rate_per_s_; }
  std::uint64_t refused() const { return refused_; }

 private:
  void refill(Nanos now) {
    if (last_ == 0) last_ = now;
    if (now > last_) {
      tokens_ = std::min(burst_, tokens_ + static_cast<double>(now - last_) * 1e-9 * rate_per_s_);
      last_ = now;
    }
  }

  double rate_per_s_;
  double burst_;
  double tokens_;
  Nanos last_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace weft
