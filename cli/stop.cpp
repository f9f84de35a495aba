#include "cli/stop.h"

#include <poll.h>

#include <algorithm>
#include <csignal>

namespace weft::cli {
namespace {

volatile std::sig_atomic_t g_stop = 0;

void on_signal(int) { g_stop = 1; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool stop_asked() { return g_stop != 0; }

bool sleep_until(const Clock& clock, Nanos until) {
  while (!stop_asked()) {
    const Nanos left = until - clock.monotonic_ns();
    if (left <= 0) return true;
    // A signal may land on another thread, so the wait is cut short rather than only interrupted.
    const Nanos wait_ms = std::min<Nanos>((left + kMillisecond - 1) / kMillisecond, 50);
    (void)::poll(nullptr, 0, static_cast<int>(wait_ms));
  }
  return false;
}

}  // namespace weft::cli
