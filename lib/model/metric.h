// The metric catalogue: every series weft exports, with its type, unit, labels and bound; docs/metrics.md comes from
// it. Values travel as MetricSample to lib/metrics, which refuses a name that is not in the catalogue.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::model {

enum class MetricType : std::uint8_t { Counter, Gauge, Histogram };

struct MetricInfo {
  std::string_view name;  // "weft_probe_sent_total"
  MetricType type;
  std::string_view unit;     // "probes", "seconds", "ratio", "info"
  std::string_view labels;   // "device,peer" or ""
  std::string_view program;  // "weftd", "weft-aggregator", "both"
  std::uint32_t max_series;  // bound; further label sets are counted in weft_metrics_overflow_total
  std::string_view help;
  // The label with values from outside, which reads "overflow" for the sum of what exceeds the bound. Empty: no label
  // is open, or a sum would say nothing, and what exceeds is left out.
  std::string_view folds = {};
};

std::span<const MetricInfo> metric_catalogue();
const MetricInfo* find_metric(std::string_view name);

struct MetricSample {
  std::string_view name;  // of the catalogue
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
  // Histograms only: upper bounds (seconds) and cumulative counts, then sum and count.
  std::vector<std::pair<double, std::uint64_t>> buckets;
  double sum = 0;
  std::uint64_t count = 0;
};

}  // namespace weft::model
