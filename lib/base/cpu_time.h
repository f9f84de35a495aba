// What this process has cost so far: CPU time of all its threads, in user space and in the kernel (getrusage). Both
// count: probes are mostly system calls. Thread safe, stateless.
#pragma once

#include "lib/base/clock.h"

namespace weft {

struct CpuTime {
  Nanos user_ns = 0;
  Nanos system_ns = 0;
};

CpuTime process_cpu_time();

}  // namespace weft
