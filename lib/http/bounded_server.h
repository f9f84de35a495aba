// httplib::Server whose connections are bounded as a whole. Its own timeouts are for each read or write, so that a
// client that sends or takes a byte now and then holds a thread for ever, and a few of them hold all. Here a request
// and an answer have a time of their own each, and while others wait for a thread, a slow one has only a moment. One
// request a connection. What is cut off is counted.
//
// Ranges are ignored and the answer is whole: many that overlap would multiply a small request into a large answer.
// Only a Range that httplib cannot read comes to the error handler, as 416.
//
// The port is the server's alone: a second one on it fails to bind. Set up on one thread, before it listens.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "lib/base/fd.h"

namespace weft::http {

// What clients may hold and for how long; see aggregator and weftd for values that fit a server of many and of few.
struct ConnectionLimits {
  unsigned threads = 16;
  unsigned waiting = 64;                     // accepted, no thread yet; past it the kernel's backlog holds them
  std::chrono::milliseconds request{5'000};  // from taking the connection to the request's last byte
  std::chrono::milliseconds answer{30'000};  // from the answer's first byte to its last
  // Instead of these, while others wait and no thread is free. A request is a packet or two that came while its
  // connection waited, so 500 that do not come are gone in 500 / 16 * 100 ms = 3 s. An answer may be long, and its
  // reader far away.
  std::chrono::milliseconds request_patience{100};
  std::chrono::milliseconds answer_patience{1'000};
};

class BoundedServer final : public httplib::Server {
 public:
  explicit BoundedServer(ConnectionLimits limits);

  // Connections ended because they took too long. Any thread.
  std::uint64_t cut() const { return cut_; }

  // From a handler, on its thread: what it answers is not sent; when it has returned, the connection goes to the taker,
  // which answers in its own time and is bounded on its own, and the thread serves the next.
  static void hand_over(std::function<void(Fd)> taker);

 private:
  bool process_and_close_socket(socket_t socket) override;

  const ConnectionLimits limits_;
  std::atomic<std::size_t> unserved_ = 0;  // waiting connections that no free thread is about to take
  std::atomic<std::uint64_t> cut_ = 0;
};

}  // namespace weft::http
