#include "lib/metrics/exposition.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "lib/base/utf8.h"

namespace weft::metrics {
namespace {

using model::MetricInfo;
using model::MetricSample;
using model::MetricType;

struct Candidate {
  std::string key;  // label values, unambiguous
  prometheus::ClientMetric metric;
};

std::vector<std::string_view> split_labels(std::string_view labels) {
  std::vector<std::string_view> out;
  while (!labels.empty()) {
    const std::size_t comma = labels.find(',');
    out.push_back(labels.substr(0, comma));
    labels = comma == std::string_view::npos ? std::string_view{} : labels.substr(comma + 1);
  }
  return out;
}

// Values in the catalogue's order; false when the label names are not exactly the catalogue's.
bool fill_labels(const MetricInfo& info, const MetricSample& sample, Candidate& out) {
  const std::vector<std::string_view> names = split_labels(info.labels);
  if (names.size() != sample.labels.size()) return false;
  for (const std::string_view name : names) {
    const auto it = std::find_if(sample.labels.begin(), sample.labels.end(),
                                 [&](const auto& label) { return label.first == name; });
    if (it == sample.labels.end()) return false;
    std::string value = clean_text(it->second, kMaxLabelBytes);
    out.key += value;
    out.key += '\0';
    out.metric.label.push_back({std::string(name), std::move(value)});
  }
  return true;
}

bool fill_value(const MetricInfo& info, const MetricSample& sample, prometheus::ClientMetric& out) {
  switch (info.type) {
    case MetricType::Counter:
      out.counter.value = sample.value;
      return std::isfinite(sample.value) && sample.value >= 0;
    case MetricType::Gauge:
      out.gauge.value = sample.value;
      return std::isfinite(sample.value);
    case MetricType::Histogram: {
      out.histogram.sample_count = sample.count;
      out.histogram.sample_sum = sample.sum;
      if (!std::isfinite(sample.sum)) return false;
      std::uint64_t below = 0;
      double bound = -INFINITY;
      for (const auto& [upper, count] : sample.buckets) {
        if (!std::isfinite(upper) || upper <= bound || count < below || count > sample.count) return false;
        bound = upper;
        below = count;
        out.histogram.bucket.push_back({count, upper});
      }
      out.histogram.bucket.push_back({sample.count, INFINITY});
      return true;
    }
  }
  return false;
}

prometheus::MetricType family_type(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return prometheus::MetricType::Counter;
    case MetricType::Gauge:
      return prometheus::MetricType::Gauge;
    case MetricType::Histogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::MetricFamily make_family(const MetricInfo& info) {
  prometheus::MetricFamily family;
  family.name = std::string(info.name);
  family.help = std::string(info.help);
  family.type = family_type(info.type);
  return family;
}

void append_own_counter(std::vector<prometheus::MetricFamily>& families, std::string_view name, std::uint64_t value) {
  prometheus::MetricFamily family = make_family(*model::find_metric(name));
  family.metric.emplace_back().counter.value = static_cast<double>(value);
  families.push_back(std::move(family));
}

constexpr std::string_view kOverflow = "weft_metrics_overflow_total";
constexpr std::string_view kRefused = "weft_metrics_refused_total";

}  // namespace

std::string Exposition::render(const std::vector<MetricSample>& samples) {
  std::lock_guard lock(mutex_);
  const auto refuse = [&](std::string_view name, std::string_view why) {
    ++refused_;
    // Once a family: a page is rendered every few seconds for ever.
    if (warned_.size() < 256 && warned_.emplace(name).second) {
      log::warning("metrics", "a sample was left out", {{"metric", name}, {"why", why}});
    }
  };

  std::map<std::string_view, std::pair<const MetricInfo*, std::vector<Candidate>>> by_family;
  for (const MetricSample& sample : samples) {
    const MetricInfo* info = model::find_metric(sample.name);
    if (info == nullptr || info->name == kOverflow || info->name == kRefused) {
      refuse(sample.name, "not in the catalogue");
      continue;
    }
    if (info->program != "both" && info->program != program_) {
      refuse(info->name, "the catalogue gives it to another program");
      continue;
    }
    Candidate candidate;
    if (!fill_labels(*info, sample, candidate)) {
      refuse(info->name, "labels differ from the catalogue");
      continue;
    }
    if (!fill_value(*info, sample, candidate.metric)) {
      refuse(info->name, "value not finite, negative or out of order");
      continue;
    }
    auto& family = by_family[info->name];
    family.first = info;
    family.second.push_back(std::move(candidate));
  }

  std::vector<prometheus::MetricFamily> families;
  for (auto& [name, entry] : by_family) {
    auto& [info, candidates] = entry;
    std::set<std::string>& before = shown_[std::string(name)];
    std::stable_partition(candidates.begin(), candidates.end(),
                          [&](const Candidate& candidate) { return before.count(candidate.key) != 0; });
    std::set<std::string> now;
    std::vector<Candidate*> kept;
    for (Candidate& candidate : candidates) {
      if (now.count(candidate.key) != 0) {
        refuse(name, "the same labels twice");
      } else if (now.size() >= info->max_series) {
        ++overflow_;
      } else {
        now.insert(candidate.key);
        kept.push_back(&candidate);
      }
    }
    before = std::move(now);
    std::sort(kept.begin(), kept.end(), [](const Candidate* a, const Candidate* b) { return a->key < b->key; });
    prometheus::MetricFamily family = make_family(*info);
    for (Candidate* candidate : kept) family.metric.push_back(std::move(candidate->metric));
    families.push_back(std::move(family));
  }
  append_own_counter(families, kOverflow, overflow_);
  append_own_counter(families, kRefused, refused_);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

std::uint64_t Exposition::overflow() const {
  std::lock_guard lock(mutex_);
  return overflow_;
}

std::uint64_t Exposition::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace weft::metrics
