// What judging asks of the store. Implemented by Writer; tests use a fake.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "aggregator/store/rows.h"
#include "lib/base/result.h"

namespace weft::aggregator {

struct StoreStatus {
  bool acknowledging = true;
  std::string problem;  // empty when acknowledging
  bool started_empty_after_damage = false;
  std::uint64_t commits = 0, errors_full = 0, errors_corrupt = 0, errors_other = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t pending_batches = 0;
  // Rises when a damaged file was replaced while running: what is active must be saved again.
  std::uint64_t generation = 0;
};

class Store {
 public:
  virtual ~Store() = default;
  // False when there is no room: all that waits of this agent was let go, for a hole must never be acknowledged over,
  // and the agent has to send from its last acknowledged batch again.
  virtual bool add(BatchRow batch) = 0;
  // True when the findings are on disk before the wait ended; otherwise they stay queued, newest version of each.
  virtual bool save(const std::vector<model::Finding>& findings, std::chrono::milliseconds wait) = 0;
  // What a fresh process would load; for reloading the topology.
  virtual Result<Recovered> load(std::chrono::milliseconds wait) = 0;
  virtual StoreStatus status() const = 0;
};

}  // namespace weft::aggregator
