#include "lib/client/change_watch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace weft::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSilence{25'000};  // a comment comes every 10 s
constexpr milliseconds kAgain{5'000};     // after a stream that ended or never was
constexpr milliseconds kLook{50};
constexpr std::size_t kMaxLine = 64;  // only the beginnings of lines matter

}  // namespace

// Shared with the thread, which may outlive its owner by what a resolver takes.
struct ChangeWatch::State {
  void take(std::string_view bytes);
  void run(const std::shared_ptr<State>& self);

  Endpoint to;
  std::mutex mutex;
  std::condition_variable told;
  bool hears = false, news = false;
  std::atomic<bool> ending = false;
  std::string line;
};

void ChangeWatch::State::take(std::string_view bytes) {
  const std::lock_guard lock(mutex);
  for (const char c : bytes) {
    if (c != '\n') {
      if (line.size() < kMaxLine) line += c;
      continue;
    }
    // A stream begins with the status; whatever else answers says nothing of the kind.
    const bool first = !hears && line == "event: status";
    if (first) hears = true;
    if (first || line == "event: gap" || line.rfind("event: finding_", 0) == 0) {
      news = true;
      told.notify_all();
    }
    line.clear();
  }
}

void ChangeWatch::State::run(const std::shared_ptr<State>& self) {
  HttpRequest request;
  request.to = to;
  request.path = "/api/v1/events";
  request.deadline = std::chrono::hours(24 * 365);
  request.silence = kSilence;
  request.stopped = [this] { return ending.load(); };
  request.part = [self](std::string_view bytes) { self->take(bytes); };
  while (!ending) {
    http_ask(request);
    std::unique_lock lock(mutex);
    news = news || hears;  // what came since is not known: ask
    hears = false;
    line.clear();
    told.notify_all();
    told.wait_for(lock, kAgain, [this] { return ending.load(); });
  }
}

ChangeWatch::ChangeWatch(Endpoint to) : state_(std::make_shared<State>()) {
  state_->to = std::move(to);
  std::thread([self = state_] { self->run(self); }).detach();
}

ChangeWatch::~ChangeWatch() {
  state_->ending = true;
  const std::lock_guard lock(state_->mutex);
  state_->told.notify_all();
}

bool ChangeWatch::hears() const {
  const std::lock_guard lock(state_->mutex);
  return state_->hears;
}

void ChangeWatch::wait(milliseconds most, const StopAsked& stopped) {
  const auto until = steady_clock::now() + most;
  std::unique_lock lock(state_->mutex);
  while (!state_->told.wait_until(lock, std::min(until, steady_clock::now() + kLook), [&] { return state_->news; })) {
    if (steady_clock::now() >= until || (stopped && stopped())) break;
  }
  state_->news = false;
}

}  // namespace weft::client
