#include "lib/model/finding.h"

#include <set>

#include "tests/unit/catch.h"

namespace model = weft::model;

TEST_CASE("finding catalogue: every kind stands at its own place with text for a person", "[model]") {
  std::set<std::string_view> names;
  std::size_t index = 0;
  for (const auto& info : model::finding_catalogue()) {
    CHECK(static_cast<std::size_t>(info.kind) == index++);
    CHECK(names.insert(info.name).second);
    CHECK(model::parse_finding_kind(info.name) == info.kind);
    CHECK(&model::finding_info(info.kind) == &info);
    CHECK_FALSE(info.meaning.empty());
    CHECK_FALSE(info.check_first.empty());
  }
  CHECK_FALSE(model::parse_finding_kind("link_lost").has_value());
}

TEST_CASE("severity: words go both ways, others are refused", "[model]") {
  CHECK(model::parse_severity("critical") == model::Severity::Critical);
  CHECK_FALSE(model::parse_severity("fatal").has_value());
}
