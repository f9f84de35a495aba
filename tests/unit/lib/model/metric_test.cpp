#include "lib/model/metric.h"

#include <algorithm>

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
    CHECK(model::find_metric(info.name) == &info);
  }
  CHECK(model::find_metric("weft_nonsense") == nullptr);
}
