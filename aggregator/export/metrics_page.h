// A snapshot as samples of the metric catalogue. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "aggregator/state/snapshot.h"
#include "lib/base/cpu_time.h"
#include "lib/model/metric.h"

namespace weft::aggregator {

struct HttpCounts {
  std::array<std::uint64_t, 6> answers{};  // so far by status class, index 2 for 2xx and so on
  std::uint64_t cut = 0;                   // connections that took too long
  unsigned watchers = 0;
  std::uint64_t watchers_refused = 0, watchers_cut = 0, events = 0;
};

std::vector<model::MetricSample> metric_samples(const Snapshot& snapshot, const std::string& version,
                                                const CpuTime& cpu, const HttpCounts& http);

}  // namespace weft::aggregator
