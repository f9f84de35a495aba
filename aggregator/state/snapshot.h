// What the API and metrics show: made whole by judging, then never changed; readers share it. Wall clock times are for
// people; monotonic ones are in the same clock as `monotonic_ns`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aggregator/store/store.h"
#include "lib/localise/localiser.h"
#include "lib/model/finding.h"

namespace weft::aggregator {

// Seconds from the first bad evidence to the finding.
struct DetectionHistogram {
  static constexpr std::array<double, 10> kBounds{1, 2, 3, 5, 7, 10, 15, 20, 30, 60};
  std::array<std::uint64_t, kBounds.size()> at_most{};
  std::uint64_t count = 0;
  double sum = 0;
  void add(double seconds) {
    for (std::size_t i = 0; i < kBounds.size(); ++i) at_most[i] += seconds <= kBounds[i] ? 1 : 0;
    ++count;
    sum += seconds;
  }
};

struct Counters {
  std::uint64_t batches_stored = 0, batches_duplicate = 0, batches_refused = 0;
  std::uint64_t records_stored = 0;
  std::uint64_t records_malformed = 0, records_foreign = 0, records_unknown = 0, findings_over_bound = 0;
  std::uint64_t agent_gaps = 0;                          // samples agents said they dropped
  std::map<std::string, std::uint64_t> streams_refused;  // by reason, of a fixed list
  std::map<std::string, std::uint64_t> findings_raised;  // by kind
  DetectionHistogram detection;
};

struct Snapshot {
  std::string fabric;
  Nanos started_wall_ns = 0;
  Nanos wall_ns = 0;
  Nanos monotonic_ns = 0;
  double judge_seconds = 0;
  bool config_rejected = false;  // the file was bad when last read again, so the old one stays
  localise::Coverage coverage;
  std::vector<localise::HostView> hosts;
  // Large ones are made less often than every judgement, hence shared.
  struct Views {
    std::vector<localise::MeshCell> mesh;
    std::vector<localise::PathView> paths;
    std::vector<localise::LinkView> links;
  };
  std::shared_ptr<const Views> views;
  std::vector<model::Finding> active;
  std::shared_ptr<const std::vector<model::Finding>> cleared;  // newest first, bounded
  std::size_t agents_connected = 0;
  std::uint64_t messages_dropped = 0;  // the queue to judging was full
  std::uint64_t localise_dropped = 0;
  StoreStatus store;
  Counters counters;
};

}  // namespace weft::aggregator
