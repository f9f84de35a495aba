// Snapshot to Prometheus text 0.0.4. One malformed label value or byte makes a real Prometheus drop the whole page and
// mark the target down, so every sample is checked against the catalogue here: unknown names, wrong labels, values that
// are not finite and duplicates are left out and counted; label values are made clean text.
// Thread safe: renders are serialised by a mutex; callers pass an immutable snapshot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/log.h"
#include "lib/model/metric.h"

namespace weft::metrics {

inline constexpr std::size_t kMaxLabelBytes = 256;
inline constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

class Exposition {
 public:
  // program: "weftd" or "weft-aggregator"; samples of families that are not its own are refused.
  explicit Exposition(std::string program) : program_(std::move(program)) {}

  // Families in order of name with HELP and TYPE; series beyond a family's bound are left out, those of the page before
  // first kept, so that a counter does not come and go. Ends with weft_metrics_overflow_total and
  // weft_metrics_refused_total.
  std::string render(const std::vector<model::MetricSample>& samples);

  std::uint64_t overflow() const;
  std::uint64_t refused() const;

 private:
  const std::string program_;
  mutable std::mutex mutex_;
  std::map<std::string, std::set<std::string>, std::less<>> shown_;  // family -> label sets of the last page
  std::uint64_t overflow_ = 0;
  std::uint64_t refused_ = 0;
  std::set<std::string, std::less<>> warned_;  // families whose refusal was logged
};

}  // namespace weft::metrics
