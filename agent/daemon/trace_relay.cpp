#include "agent/daemon/trace_relay.h"

#include <chrono>
#include <iterator>

#include "lib/base/thread_name.h"

namespace weft::agent {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);

}  // namespace

TraceRelay::TraceRelay(std::unique_ptr<TraceSource> slow) : slow_(std::move(slow)), thread_([this] { run(); }) {}

TraceRelay::~TraceRelay() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TraceRelay::set_requests(const std::vector<probes::TraceRequest>& requests) {
  std::lock_guard lock(mutex_);
  requests_ = requests;
}

std::vector<model::PathTrace> TraceRelay::take_traces() {
  std::unique_lock lock(mutex_);
  // A round that was waited for before is waited for no more.
  if (!std::exchange(asked_, true)) {
    changed_.notify_all();
    changed_.wait_for(lock, kPatience, [this] { return !asked_; });
  }
  return std::exchange(traces_, {});
}

std::string TraceRelay::problem() {
  std::lock_guard lock(mutex_);
  return problem_;
}

probes::TraceStats TraceRelay::stats() {
  std::lock_guard lock(mutex_);
  return stats_;
}

void TraceRelay::run() {
  name_this_thread("weft-relay");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || asked_; });
    if (stop_) return;
    const auto requests = std::exchange(requests_, std::nullopt);
    lock.unlock();
    if (requests) slow_->set_requests(*requests);
    std::vector<model::PathTrace> traces = slow_->take_traces();
    std::string problem = slow_->problem();
    const probes::TraceStats stats = slow_->stats();
    lock.lock();
    std::move(traces.begin(), traces.end(), std::back_inserter(traces_));
    problem_ = std::move(problem);
    stats_ = stats;
    asked_ = false;
    changed_.notify_all();
  }
}

}  // namespace weft::agent
