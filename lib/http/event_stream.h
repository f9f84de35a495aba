// Server-sent events (WHATWG HTML, "Server-sent events") to many watchers from one thread of its own, so that they hold
// none of those that answer requests. publish() never waits for a watcher. Bounded: watchers, events kept to resume
// from, and time that one may take nothing; a watcher holds no memory of its own but its socket's buffer, and one that
// falls behind what is kept is cut off and counted. Thread safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lib/base/fd.h"

namespace weft::http {

struct EventLimits {
  unsigned watchers = 256;
  std::size_t kept = 1024;
  std::size_t kept_bytes = 4 * 1024 * 1024;
  std::chrono::milliseconds heartbeat{10'000};  // a comment after so long without a word
  std::chrono::milliseconds stall{10'000};      // cut when nothing is taken for so long
  std::chrono::milliseconds retry{2'000};       // what a watcher is told to wait before it comes back
};

class EventStream {
 public:
  // Ids rise by one from first_id. Let it lie above every id that a former process gave, so that a watcher of that one
  // is told of the gap.
  EventStream(EventLimits limits, std::uint64_t first_id);
  ~EventStream();
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  // A place among the watchers, given back when it is destroyed.
  class Seat {
   public:
    explicit Seat(std::atomic<unsigned>& taken) : taken_(&taken) {}
    ~Seat() { --*taken_; }
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

   private:
    std::atomic<unsigned>* taken_;
  };
  // Null when all are taken; counted.
  std::shared_ptr<Seat> take_seat();
  // The connection becomes a watcher: it is sent the answer's head, then what came after last_id; "gap" when that is no
  // longer known; without last_id the state alone, and all that comes.
  void add(Fd connection, std::shared_ptr<Seat> seat, std::optional<std::uint64_t> last_id);

  // One that watchers may resume after. data is JSON.
  void publish(std::string_view type, std::string_view data);
  // What is, not what happened: only the latest is sent, without an id, to whoever has not seen it.
  void set_state(std::string_view type, std::string_view data);

  // Ends every watcher; later ones are closed at once.
  void stop();

  unsigned watchers() const { return taken_; }
  std::uint64_t refused() const { return refused_; }
  std::uint64_t cut() const { return cut_; }
  std::uint64_t published() const { return published_; }

 private:
  using Text = std::shared_ptr<const std::string>;
  struct Watcher {
    Fd socket;
    std::shared_ptr<Seat> seat;
    std::uint64_t next_id = 0;
    std::uint64_t state_seen = 0;
    Text saying;
    std::size_t said = 0;
    std::chrono::steady_clock::time_point moved;                   // when it last took something
    std::optional<std::chrono::steady_clock::time_point> blocked;  // since when it takes nothing
  };

  void run();
  void wake();
  // Sets what it is to be told next, null when it knows all. False when it is too far behind.
  bool next(Watcher& watcher, std::chrono::steady_clock::time_point now) const;
  // False when it is gone or cut.
  bool serve(Watcher& watcher, short events);
  std::string greeting(Watcher& watcher, std::optional<std::uint64_t> last_id) const;

  const EventLimits limits_;
  std::atomic<unsigned> taken_ = 0;
  std::atomic<std::uint64_t> refused_ = 0, cut_ = 0, published_ = 0;
  Fd wake_;

  mutable std::mutex mutex_;
  std::deque<Text> kept_;
  std::size_t kept_bytes_ = 0;
  std::uint64_t next_id_;  // of the next event; the newest kept is one less
  std::string state_type_, state_data_;
  Text state_;
  std::uint64_t state_version_ = 0;
  std::vector<Watcher> coming_;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace weft::http
