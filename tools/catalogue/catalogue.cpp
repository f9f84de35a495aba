// Prints docs/metrics.md or docs/findings.md from the catalogues in code: catalogue metrics | catalogue findings
#include <cstdio>
#include <string>
#include <string_view>

#include "lib/model/finding.h"
#include "lib/model/metric.h"

namespace {

namespace model = weft::model;

const char* type_name(model::MetricType type) {
  switch (type) {
    case model::MetricType::Counter:
      return "counter";
    case model::MetricType::Gauge:
      return "gauge";
    case model::MetricType::Histogram:
      return "histogram";
  }
  return "";
}

std::string text(std::string_view view) { return std::string(view); }

void print_metrics() {
  std::puts("# Metrics\n");
  std::puts("Generated from lib/model/metric.cpp by tools/docs. \"Bound\" is the most series the family may have;");
  std::puts(
      "what exceeds it is counted in `weft_metrics_overflow_total` by family. Where a label stands beside the bound,");
  std::puts("what exceeds is added up in series in which that label reads `overflow`; else it is left out.\n");
  std::puts("| name | type | unit | labels | program | bound | meaning |");
  std::puts("|---|---|---|---|---|---|---|");
  for (const auto& info : model::metric_catalogue()) {
    std::printf("| `%s` | %s | %s | %s | %s | %u%s | %s |\n", text(info.name).c_str(), type_name(info.type),
                text(info.unit).c_str(), info.labels.empty() ? "" : ("`" + text(info.labels) + "`").c_str(),
                text(info.program).c_str(), info.max_series,
                info.folds.empty() ? "" : (" `" + text(info.folds) + "`").c_str(), text(info.help).c_str());
  }
}

void print_findings() {
  std::puts("# Findings\n");
  std::puts("Generated from lib/model/finding.cpp by tools/docs. A finding names a kind, a subject, since when, how");
  std::puts("sure weft is, the evidence, who is hit and what was not checked.\n");
  std::puts("| kind | subject | severity | meaning |");
  std::puts("|---|---|---|---|");
  for (const auto& info : model::finding_catalogue()) {
    std::printf("| [%s](#%s) | %s | %s | %s |\n", text(info.name).c_str(), text(info.name).c_str(),
                text(info.subject_type).c_str(), text(to_string(info.severity)).c_str(), text(info.meaning).c_str());
  }
  for (const auto& info : model::finding_catalogue()) {
    std::printf("\n## %s\n\n%s\n\nCheck first: %s\n", text(info.name).c_str(), text(info.meaning).c_str(),
                text(info.check_first).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what == "metrics") {
    print_metrics();
  } else if (what == "findings") {
    print_findings();
  } else {
    std::fputs("usage: catalogue metrics|findings\n", stderr);
    return 2;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
