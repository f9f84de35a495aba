// A queue that never grows past its bound: when full the oldest element goes, and each drop is counted.
// Thread safe: many producers, many consumers. pop waits at most until its deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace weft {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t bound) : bound_(bound == 0 ? 1 : bound) {}

  // Returns false when an older element had to go to make room.
  bool push(T value) {
    bool kept = true;
    {
      std::lock_guard lock(mutex_);
      if (items_.size() >= bound_) {
        items_.pop_front();
        ++dropped_;
        kept = false;
      }
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return kept;
  }

  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return take();
  }

  std::optional<T> pop_for(std::chrono::nanoseconds wait) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, wait, [&] { return !items_.empty() || closed_; });
    return take();
  }

  // Wakes every waiter; elements already queued can still be taken.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }
  std::uint64_t dropped() const {
    std::lock_guard lock(mutex_);
    return dropped_;
  }

 private:
  std::optional<T> take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    return value;
  }

  const std::size_t bound_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  std::uint64_t dropped_ = 0;
  bool closed_ = false;
};

}  // namespace weft
