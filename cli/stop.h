// Ctrl-C, SIGTERM and deadlines: a command asks often and ends by itself. A second Ctrl-C kills as usual.
#pragma once

#include "lib/base/clock.h"

namespace weft::cli {

// From now on SIGINT and SIGTERM only set a flag, and a closed pipe is an error of the write. Process-wide.
void catch_stop_signals();
bool stop_asked();
// Sleeps until the time (monotonic) or a stop signal; returns false when stopped.
bool sleep_until(const Clock& clock, Nanos until);

}  // namespace weft::cli
