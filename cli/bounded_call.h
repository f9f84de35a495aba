// A call into a driver, sysfs or the name service, which nothing can interrupt: it runs on a thread of its own, and
// whoever waits gives up after a time or at Ctrl-C. The thread is left behind then and ends, with what it made, when
// the call does: what the call uses must be its own. wait() is for one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "cli/format.h"
#include "cli/stop.h"
#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace weft::cli {

template <typename T>
class BoundedCall {
 public:
  explicit BoundedCall(std::function<T()> call) : state_(std::make_shared<State>()) {
    std::thread([state = state_, call = std::move(call)] {
      T result = call();
      std::lock_guard lock(state->mutex);
      state->result.emplace(std::move(result));
      state->ready.notify_one();
    }).detach();
  }

  // The result, once; empty when the time is over or Ctrl-C came first. What is there already is given in no time.
  std::optional<T> wait(Nanos within_ns) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::max<Nanos>(within_ns, 0));
    std::unique_lock lock(state_->mutex);
    while (!state_->result) {
      const auto now = std::chrono::steady_clock::now();
      if (now >= until || stop_asked()) return std::nullopt;
      state_->ready.wait_until(lock, std::min(until, now + std::chrono::milliseconds(50)));
    }
    return std::move(state_->result);
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ready;
    std::optional<T> result;
  };
  std::shared_ptr<State> state_;
};

// What an empty wait() means, in words. doing: "opening RDMA device rxe0 port 1".
inline Error gave_up(const std::string& doing, Nanos within_ns) {
  if (stop_asked()) return make_error(Error::Kind::Transient, doing + ": interrupted");
  return make_error(Error::Kind::Timeout, doing + ": not done within " + format_ns(std::max<Nanos>(within_ns, 0)) +
                                              ", the driver or kernel does not answer");
}

}  // namespace weft::cli
