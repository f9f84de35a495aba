// The HTTP side: JSON API, events, console, /healthz and /metrics, served from the last snapshot, so that no client
// however slow touches judging. Commands go to judging as messages with a deadline. Bounded: threads, waiting
// connections, request size, time for request and answer, watchers (lib/http). Thread safe but for published().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "aggregator/messages.h"
#include "aggregator/state/snapshot.h"
#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/http/bounded_server.h"
#include "lib/http/event_stream.h"

namespace weft::aggregator {

struct HttpLimits {
  http::ConnectionLimits connections;
  http::EventLimits events;
  std::size_t body_bytes = 64 * 1024;
  std::chrono::milliseconds command_wait{2000};
  // Without a judgement for this long /healthz answers 503.
  Nanos stale_after_ns = 10 * kSecond;
};

class HttpServer {
 public:
  using GetSnapshot = std::function<std::shared_ptr<const Snapshot>()>;

  // address: HOST:PORT, port 0 for any free one.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, HttpLimits limits, GetSnapshot snapshot,
                                                   MessageQueue& queue, const Clock& clock, std::string version);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  // Looks whether there is a new snapshot, and tells watchers what changed. By one thread at a time.
  void published();
  // False when a slow client still holds a thread after the wait: the object must then outlive the process.
  bool stop(std::chrono::milliseconds wait);

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::aggregator
