// Snapshot to a page of metrics. One malformed label value or byte makes a real Prometheus drop the whole page and mark
// the target down, so every sample is checked against the catalogue here: unknown names, wrong labels, values that are
// not finite and duplicates are left out and counted; label values are made clean text. No sample has a time: the
// scraper's clock decides, whatever this host's shows.
// Thread safe: renders are serialised by a mutex; callers pass an immutable snapshot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/metrics/page_format.h"
#include "lib/metrics/page_writer.h"
#include "lib/model/metric.h"

namespace weft::metrics {

inline constexpr std::size_t kMaxLabelBytes = 256;
// What the open label of a family reads for all that exceeds its bound (model::MetricInfo::folds).
inline constexpr std::string_view kOverflowValue = "overflow";

class Exposition {
 public:
  // program: "weftd" or "weft-aggregator"; samples of families that are not its own are refused.
  explicit Exposition(std::string program) : program_(std::move(program)) {}

  // Families in order of name. Series beyond a family's bound are added up under kOverflowValue, or left out where sums
  // say nothing; those of the page before are kept first, so that a counter does not come and go. Ends with what is
  // counted here: weft_metrics_overflow_total by family, weft_metrics_refused_total, and weft_page_age_seconds when the
  // age of the samples is given.
  std::string render(const std::vector<model::MetricSample>& samples, PageFormat format = PageFormat::Text,
                     std::optional<Nanos> age_ns = std::nullopt);

  std::uint64_t overflow() const;
  std::uint64_t refused() const;

 private:
  struct Series {
    std::string key;  // label values, unambiguous
    Labels labels;
    double value = 0;
    const model::MetricSample* sample = nullptr;  // of a histogram
  };
  struct Family {
    std::set<std::string> shown;  // label sets of the last page
    // Of what exceeds the bound: the value of each label set on the last page, and the sums by label set.
    std::map<std::string, double> folded;
    std::map<std::string, Series> sums;
    std::uint64_t overflow = 0;
  };

  void refuse(std::string_view name, std::string_view why);
  std::optional<Series> check(const model::MetricInfo& info, const model::MetricSample& sample);
  std::vector<Series> bounded(const model::MetricInfo& info, std::vector<Series> candidates);
  Series& sum_row(const model::MetricInfo& info, Family& family, const Series& candidate);
  void write_own(PageWriter& page, std::optional<Nanos> age_ns) const;

  const std::string program_;
  mutable std::mutex mutex_;
  std::map<std::string_view, Family> families_;
  std::uint64_t refused_ = 0;
  std::set<std::string, std::less<>> warned_;  // families whose refusal was logged
};

}  // namespace weft::metrics
