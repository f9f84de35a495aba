// A call that does not come back until the test lets it: what a sick driver or name service does.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace weft::test {

class Gate {
 public:
  // Blocks until open().
  void pass() {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.wait(lock, [&] { return open_; });
    --inside_;
    changed_.notify_all();
  }
  // Lets all through and waits for them.
  void open() {
    std::unique_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return inside_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int inside_ = 0;
};

// Shared with the threads that it holds; opened when the test ends, however it ends.
struct Blocked {
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  Blocked() = default;
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
  ~Blocked() { gate->open(); }
};

}  // namespace weft::test
