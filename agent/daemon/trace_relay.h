// A TraceSource in front of one that may be slow: the tracer's thread holds its lock while it sends, and on a host that
// is starved of CPU it is descheduled there, time after time. Here a thread waits in the caller's place, and the caller
// gets what has come so far after a tenth of a second at most.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/daemon/pipeline.h"

namespace weft::agent {

// Methods on one thread.
class TraceRelay final : public TraceSource {
 public:
  explicit TraceRelay(std::unique_ptr<TraceSource> slow);
  ~TraceRelay() override;  // waits for the round in progress

  // Followed in the round that the next take_traces() begins.
  void set_requests(const std::vector<probes::TraceRequest>& requests) override;
  std::vector<model::PathTrace> take_traces() override;
  // As of the last finished round.
  std::string problem() override;
  probes::TraceStats stats() override;

 private:
  void run();

  const std::unique_ptr<TraceSource> slow_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool asked_ = false;  // a round is wanted or under way
  std::optional<std::vector<probes::TraceRequest>> requests_;
  std::vector<model::PathTrace> traces_;
  std::string problem_;
  probes::TraceStats stats_;
  std::thread thread_;
};

}  // namespace weft::agent
