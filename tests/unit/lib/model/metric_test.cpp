#include "lib/model/metric.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "lib/base/utf8.h"
#include "tests/unit/catch.h"

namespace model = weft::model;

TEST_CASE("metric catalogue: names are sorted, unique and follow the naming rules", "[model]") {
  std::string_view last;
  for (const auto& info : model::metric_catalogue()) {
    CAPTURE(info.name);
    CHECK(last < info.name);
    last = info.name;
    CHECK(info.name.substr(0, 5) == "weft_");
    CHECK((info.type == model::MetricType::Counter) ==
          (info.name.size() > 6 && info.name.substr(info.name.size() - 6) == "_total"));
    CHECK((info.unit != "seconds" || info.name.find("_seconds") != std::string_view::npos));
    CHECK(info.max_series > 0);
    CHECK_FALSE(info.help.empty());
    CHECK(info.help.find_first_of("\\\"|\n") == std::string_view::npos);
    CHECK(weft::is_clean_text(info.help));
    CHECK(model::find_metric(info.name) == &info);
  }
  CHECK(model::find_metric("weft_nonsense") == nullptr);
}

TEST_CASE("metric catalogue: base units stand in the names, and a name that ends with a unit has it", "[model]") {
  const auto ends = [](std::string_view name, std::string_view word) {
    if (name.ends_with("_total")) name.remove_suffix(6);
    return name.ends_with(std::string("_") + std::string(word));
  };
  for (const auto& info : model::metric_catalogue()) {
    CAPTURE(info.name);
    for (const char* unit : {"seconds", "bytes", "bytes_per_second", "ratio", "info"}) {
      CHECK((info.unit == unit) == ends(info.name, unit));
    }
    for (const char* other : {"ms", "us", "ns", "milliseconds", "minutes", "bits", "percent", "kilobytes", "count"}) {
      CHECK_FALSE(ends(info.name, other));
    }
    CHECK(info.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos);
  }
}

TEST_CASE(
    "metric catalogue: labels are plain names, none reserved, and the one that folds is one of a family that adds up",
    "[model]") {
  for (const auto& info : model::metric_catalogue()) {
    CAPTURE(info.name);
    std::set<std::string> labels;
    std::istringstream words{std::string(info.labels)};
    for (std::string label; std::getline(words, label, ',');) {
      CAPTURE(label);
      CHECK(labels.insert(label).second);
      CHECK(label.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos);
      for (const char* reserved : {"le", "quantile", "job", "instance"}) CHECK(label != reserved);
      CHECK_FALSE(label.starts_with("__"));
    }
    if (info.folds.empty()) continue;
    CHECK(labels.count(std::string(info.folds)) == 1);
    CHECK(info.type != model::MetricType::Histogram);
    CHECK((info.unit != "seconds" && info.unit != "ratio" && info.unit != "info"));
  }
}
