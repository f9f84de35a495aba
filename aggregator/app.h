// weft-aggregator put together: store, judging, ingest, API, each with its own threads, only messages between them.
// run() is the judging thread and returns when asked to stop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "aggregator/config.h"
#include "aggregator/messages.h"
#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace weft::aggregator {

class App {
 public:
  // Opens the store, restores, and listens; an error says what to do.
  static Result<std::unique_ptr<App>> start(AggregatorConfig config, const std::string& version, const Clock& clock);
  ~App();

  int grpc_port() const;
  int http_port() const;
  // Judges until stop is true; reload is called when its flag is set (and resets it), and gives what to change to, or
  // an error to keep on as before. alive is called after every judgement.
  void run(const std::atomic<bool>& stop, std::atomic<bool>& reload,
           const std::function<Result<AggregatorConfig>()>& load, const std::function<void()>& alive);
  // Ends streams, commits, closes. False when a slow HTTP client still holds a thread: leave by _Exit then.
  bool shut_down();

 private:
  struct Impl;
  explicit App(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::aggregator
