#include "lib/base/cpu_time.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "lib/base/fd.h"
#include "tests/unit/catch.h"

using namespace weft;

TEST_CASE("cpu time: work of every thread counts, in user space and in the kernel (perftest 337)", "[base]") {
  const CpuTime before = process_cpu_time();
  bool counted = false;
  std::thread([&] {
    const Fd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    std::array<char, 65536> buffer;
    volatile unsigned spins = 0;
    // Until both have grown by more than a tick; the bound is on work, so a busy machine only takes longer.
    for (int round = 0; round < 1'000'000 && !counted; ++round) {
      for (int i = 0; i < 100'000; ++i) spins = spins + 1;
      for (int i = 0; i < 20; ++i) (void)!::read(zero.get(), buffer.data(), buffer.size());
      const CpuTime now = process_cpu_time();
      counted =
          now.user_ns - before.user_ns > 20 * kMillisecond && now.system_ns - before.system_ns > 20 * kMillisecond;
    }
  }).join();
  CHECK(counted);
}
