// Waits for descriptors, for a time or until woken. wake() may be called by any thread; the rest by one.
#pragma once

#include <array>
#include <span>

#include "lib/base/clock.h"
#include "lib/base/fd.h"
#include "lib/base/result.h"

namespace weft::probes {

class WaitSet {
 public:
  Result<void> open();
  // Level-triggered, for reading. A descriptor that is watched already stays so; a closed one leaves by itself.
  void watch(int fd);
  void wake() const;
  // Up to kMost descriptors that are ready, maybe none; valid until the next call. At or below 0 it only looks. To the
  // nanosecond where the kernel can (Linux 5.11), else up to a millisecond longer.
  std::span<const int> wait(Nanos at_most);

  static constexpr std::size_t kMost = 16;

 private:
  std::array<int, kMost> ready_{};
  bool fine_ = true;
  Fd wake_;
  Fd epoll_;
};

}  // namespace weft::probes
