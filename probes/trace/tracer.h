// Keeps traces fresh in the background (class Tracer, one thread of its own; methods are thread safe), or runs them
// once in the caller's thread (trace_once).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/fd.h"
#include "lib/base/result.h"
#include "probes/trace/raw_socket.h"
#include "probes/trace/trace_schedule.h"

namespace weft::probes {

class Tracer {
 public:
  // Takes the socket (open_trace_socket); the clock must outlive the tracer. Stops in the destructor.
  static Result<std::unique_ptr<Tracer>> start(TraceLimits limits, std::unique_ptr<TraceSocket> socket,
                                               const Clock& clock);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Replaces the whole list; see TraceSchedule::set_requests.
  Result<void> set_requests(const std::vector<TraceRequest>& requests);
  // One more or one less; add of an existing one changes its hop count and rate.
  Result<void> add(const TraceRequest& request);
  Result<void> remove(const TraceRequest& request);
  // Traces that changed or were confirmed since the last call.
  std::vector<model::PathTrace> take_traces();
  std::vector<TraceView> views() const;
  TraceStats stats() const;
  // Last send error in words; empty when none since the last call.
  std::string take_send_error();

 private:
  Tracer(TraceLimits limits, std::unique_ptr<TraceSocket> socket, const Clock& clock, Fd wake);
  void run();
  void wake();
  Result<void> apply();

  mutable std::mutex mutex_;
  std::vector<TraceRequest> requests_;
  TraceSchedule schedule_;
  std::string send_error_;
  const std::unique_ptr<TraceSocket> socket_;
  const Clock& clock_;
  const Fd wake_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Runs until every trace is finished, the deadline (monotonic) passes or stop says so; on_change is called after
// answers came in. Returns what is known then. Only failures to receive are errors; that packets cannot be sent, or
// find nobody at the next hop, is said in send_error.
struct TraceOnce {
  std::vector<TraceView> views;
  TraceStats stats;
  bool finished = false;
  std::string send_error;
};
Result<TraceOnce> trace_once(const std::vector<TraceRequest>& requests, TraceLimits limits, TraceSocket& socket,
                             const Clock& clock, Nanos deadline_ns, const std::function<bool()>& stop,
                             const std::function<void(const std::vector<TraceView>&)>& on_change = {});

}  // namespace weft::probes
