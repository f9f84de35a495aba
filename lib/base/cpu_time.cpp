#include "lib/base/cpu_time.h"

#include <sys/resource.h>

namespace weft {
namespace {

Nanos nanos(const timeval& time) {
  return static_cast<Nanos>(time.tv_sec) * kSecond + static_cast<Nanos>(time.tv_usec) * kMicrosecond;
}

}  // namespace

CpuTime process_cpu_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);  // fails for a bad address or a bad name only
  return {nanos(used.ru_utime), nanos(used.ru_stime)};
}

}  // namespace weft
