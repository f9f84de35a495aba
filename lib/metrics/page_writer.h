// Writes a page of metrics, family by family, in either format. It escapes what it is given and checks nothing else:
// lib/metrics/exposition.h decides what may be on a page. Not thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/metrics/page_format.h"
#include "lib/model/metric.h"

namespace weft::metrics {

// Names are those of the catalogue, which lives for ever.
using Labels = std::vector<std::pair<std::string_view, std::string>>;

class PageWriter {
 public:
  explicit PageWriter(PageFormat format) : format_(format) {}

  // HELP and TYPE (and UNIT); the series that follow are of this family. Each family once.
  void family(const model::MetricInfo& info);
  void series(const Labels& labels, double value);
  // Cumulative counts by upper bound in rising order, without that of +Inf.
  void histogram(const Labels& labels, const std::vector<std::pair<double, std::uint64_t>>& buckets, double sum,
                 std::uint64_t count);
  // The page; the writer is spent.
  std::string finish();

 private:
  void line(std::string_view suffix, const Labels& labels, std::string_view le, double value);

  const PageFormat format_;
  std::string_view name_;
  std::string page_;
};

}  // namespace weft::metrics
