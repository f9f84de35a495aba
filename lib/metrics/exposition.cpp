#include "lib/metrics/exposition.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/utf8.h"

namespace weft::metrics {
namespace {

using model::MetricInfo;
using model::MetricSample;
using model::MetricType;

constexpr std::string_view kOverflow = "weft_metrics_overflow_total";
constexpr std::string_view kRefused = "weft_metrics_refused_total";
constexpr std::string_view kAge = "weft_page_age_seconds";
// Of a family; sums of more kinds have kOverflowValue in every label.
constexpr std::size_t kMaxSums = 64;

bool is_own(std::string_view name) { return name == kOverflow || name == kRefused || name == kAge; }

std::vector<std::string_view> split_labels(std::string_view labels) {
  std::vector<std::string_view> out;
  while (!labels.empty()) {
    const std::size_t comma = labels.find(',');
    out.push_back(labels.substr(0, comma));
    labels = comma == std::string_view::npos ? std::string_view{} : labels.substr(comma + 1);
  }
  return out;
}

std::string key_of(const Labels& labels) {
  std::string key;
  for (const auto& [name, value] : labels) {
    key += value;
    key += '\0';
  }
  return key;
}

// Values in the catalogue's order; false when the label names are not exactly the catalogue's.
bool fill_labels(const MetricInfo& info, const MetricSample& sample, Labels& out) {
  const std::vector<std::string_view> names = split_labels(info.labels);
  if (names.size() != sample.labels.size()) return false;
  for (const std::string_view name : names) {
    const auto it = std::find_if(sample.labels.begin(), sample.labels.end(),
                                 [&](const auto& label) { return label.first == name; });
    if (it == sample.labels.end()) return false;
    out.emplace_back(name, clean_text(it->second, kMaxLabelBytes));
  }
  return true;
}

bool good_value(const MetricInfo& info, const MetricSample& sample) {
  switch (info.type) {
    case MetricType::Counter:
      return std::isfinite(sample.value) && sample.value >= 0;
    case MetricType::Gauge:
      return std::isfinite(sample.value);
    case MetricType::Histogram: {
      if (!std::isfinite(sample.sum)) return false;
      std::uint64_t below = 0;
      double bound = -INFINITY;
      for (const auto& [upper, count] : sample.buckets) {
        if (!std::isfinite(upper) || upper <= bound || count < below || count > sample.count) return false;
        bound = upper;
        below = count;
      }
      return true;
    }
  }
  return false;
}

// Named so by whoever named it: it goes with the sum, as a label set stands once on a page.
bool reads_overflow(const MetricInfo& info, const Labels& labels) {
  return std::any_of(labels.begin(), labels.end(),
                     [&](const auto& label) { return label.first == info.folds && label.second == kOverflowValue; });
}

}  // namespace

void Exposition::refuse(std::string_view name, std::string_view why) {
  ++refused_;
  // Once a family: a page is rendered every few seconds for ever.
  if (warned_.size() < 256 && warned_.emplace(name).second) {
    log::warning("metrics", "a sample was left out", {{"metric", name}, {"why", why}});
  }
}

std::optional<Exposition::Series> Exposition::check(const MetricInfo& info, const MetricSample& sample) {
  Series out;
  if (info.program != "both" && info.program != program_) {
    refuse(info.name, "the catalogue gives it to another program");
  } else if (!fill_labels(info, sample, out.labels)) {
    refuse(info.name, "labels differ from the catalogue");
  } else if (!good_value(info, sample)) {
    refuse(info.name, "value not finite, negative or out of order");
  } else {
    out.key = key_of(out.labels);
    out.value = sample.value;
    out.sample = &sample;
    return out;
  }
  return std::nullopt;
}

Exposition::Series& Exposition::sum_row(const MetricInfo& info, Family& family, const Series& candidate) {
  Series row;
  row.labels = candidate.labels;
  for (auto& [name, value] : row.labels) {
    if (name == info.folds) value = kOverflowValue;
  }
  row.key = key_of(row.labels);
  if (family.sums.size() >= kMaxSums && family.sums.count(row.key) == 0) {
    for (auto& [name, value] : row.labels) value = kOverflowValue;
    row.key = key_of(row.labels);
  }
  return family.sums.try_emplace(row.key, row).first->second;
}

std::vector<Exposition::Series> Exposition::bounded(const MetricInfo& info, std::vector<Series> candidates) {
  Family& family = families_[info.name];
  std::stable_partition(candidates.begin(), candidates.end(),
                        [&](const Series& candidate) { return family.shown.count(candidate.key) != 0; });
  std::set<std::string> shown;
  std::map<std::string, double> folded;
  std::set<std::string> left_out;
  std::vector<Series> out;
  if (info.type == MetricType::Gauge) family.sums.clear();
  for (Series& candidate : candidates) {
    const bool named_overflow = reads_overflow(info, candidate.labels);
    if (shown.count(candidate.key) != 0 || folded.count(candidate.key) != 0 || left_out.count(candidate.key) != 0) {
      refuse(info.name, "the same labels twice");
    } else if (shown.size() < info.max_series && !named_overflow) {
      shown.insert(candidate.key);
      out.push_back(std::move(candidate));
    } else {
      if (!named_overflow) ++family.overflow;
      if (info.folds.empty()) {
        left_out.insert(candidate.key);
        continue;
      }
      // The sum of a counter must not fall when a label set goes or finds room of its own: it takes what each grew by.
      // Two pages at once may be of two snapshots, the older one second.
      const auto last = family.folded.find(candidate.key);
      const bool grows = info.type == MetricType::Counter && last != family.folded.end();
      const double before = grows ? last->second : 0;
      sum_row(info, family, candidate).value += grows ? std::max(candidate.value - before, 0.0) : candidate.value;
      folded[candidate.key] = std::max(candidate.value, before);
    }
  }
  family.shown = std::move(shown);
  family.folded = std::move(folded);
  for (const auto& [key, row] : family.sums) out.push_back(row);
  std::sort(out.begin(), out.end(), [](const Series& a, const Series& b) { return a.key < b.key; });
  return out;
}

std::string Exposition::render(const std::vector<MetricSample>& samples, PageFormat format,
                               std::optional<Nanos> age_ns) {
  std::lock_guard lock(mutex_);
  std::map<std::string_view, std::pair<const MetricInfo*, std::vector<Series>>> by_family;
  for (const MetricSample& sample : samples) {
    const MetricInfo* info = model::find_metric(sample.name);
    if (info == nullptr || is_own(info->name)) {
      refuse(sample.name, "not in the catalogue");
      continue;
    }
    std::optional<Series> series = check(*info, sample);
    if (!series) continue;
    auto& family = by_family[info->name];
    family.first = info;
    family.second.push_back(std::move(*series));
  }
  PageWriter page(format);
  for (auto& [name, entry] : by_family) {
    const MetricInfo& info = *entry.first;
    page.family(info);
    for (const Series& series : bounded(info, std::move(entry.second))) {
      if (info.type == MetricType::Histogram) {
        page.histogram(series.labels, series.sample->buckets, series.sample->sum, series.sample->count);
      } else {
        page.series(series.labels, series.value);
      }
    }
  }
  write_own(page, age_ns);
  return page.finish();
}

void Exposition::write_own(PageWriter& page, std::optional<Nanos> age_ns) const {
  // Zero from the start: a counter that appears with its first event hides that event from rate().
  page.family(*model::find_metric(kOverflow));
  for (const MetricInfo& info : model::metric_catalogue()) {
    if (info.labels.empty() || is_own(info.name) || (info.program != "both" && info.program != program_)) continue;
    const auto it = families_.find(info.name);
    page.series({{"family", std::string(info.name)}},
                it == families_.end() ? 0 : static_cast<double>(it->second.overflow));
  }
  page.family(*model::find_metric(kRefused));
  page.series({}, static_cast<double>(refused_));
  if (!age_ns) return;
  page.family(*model::find_metric(kAge));
  page.series({}, static_cast<double>(*age_ns) * 1e-9);
}

std::uint64_t Exposition::overflow() const {
  std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [name, family] : families_) sum += family.overflow;
  return sum;
}

std::uint64_t Exposition::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace weft::metrics
