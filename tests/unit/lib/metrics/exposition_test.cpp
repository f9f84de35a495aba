#include "lib/metrics/exposition.h"

#include <cmath>

#include "tests/unit/catch.h"

namespace model = weft::model;
using weft::metrics::Exposition;
using weft::test::expect_log;

namespace {

model::MetricSample sample(std::string_view name, double value,
                           std::vector<std::pair<std::string, std::string>> labels = {}) {
  model::MetricSample out;
  out.name = name;
  out.value = value;
  out.labels = std::move(labels);
  return out;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("metrics: a sample that is not in the catalogue is left out, counted, and said once", "[metrics]") {
  expect_log("not in the catalogue");
  Exposition page("weftd");
  for (int i = 0; i < 3; ++i) {
    const std::string text = page.render({sample("weft_nonsense", 1), sample("weft_stream_connected", 1)});
    CHECK(text.find("weft_nonsense") == std::string::npos);
    CHECK(text.find("weft_stream_connected 1\n") != std::string::npos);
  }
  CHECK(page.refused() == 3);
  CHECK(weft::test::logged().size() == 1);
}

TEST_CASE("metrics: labels other than the catalogue's are refused", "[metrics]") {
  expect_log("labels differ");
  Exposition page("weftd");
  page.render({sample("weft_probe_sent_total", 1), sample("weft_probe_sent_total", 1, {{"host", "a"}}),
               sample("weft_probe_sent_total", 1, {{"device", "a"}, {"device", "b"}})});
  CHECK(page.refused() == 3);
}

TEST_CASE("metrics: another program's family is refused", "[metrics]") {
  expect_log("another program");
  Exposition page("weft-aggregator");
  CHECK(page.render({sample("weft_stream_connected", 1)}).find("stream_connected") == std::string::npos);
}

TEST_CASE("metrics: a value that is not finite, or a negative counter, is absent", "[metrics]") {
  expect_log("not finite");
  Exposition page("weftd");
  const std::string text = page.render({sample("weft_probe_sent_total", NAN, {{"device", "a"}}),
                                        sample("weft_probe_sent_total", INFINITY, {{"device", "b"}}),
                                        sample("weft_probe_sent_total", -1, {{"device", "c"}}),
                                        sample("weft_probe_sent_total", 5, {{"device", "d"}})});
  CHECK(count(text, "weft_probe_sent_total{") == 1);
  CHECK(text.find("weft_probe_sent_total{device=\"d\"} 5\n") != std::string::npos);
  CHECK(text.find("weft_metrics_refused_total 3\n") != std::string::npos);
}

TEST_CASE("metrics: the same labels twice keep the first value", "[metrics]") {
  expect_log("the same labels twice");
  Exposition page("weftd");
  const std::string text = page.render({sample("weft_probe_sent_total", 1, {{"device", "a\n"}}),
                                        sample("weft_probe_sent_total", 2, {{"device", "a\r"}})});
  CHECK(text.find("weft_probe_sent_total{device=\"a?\"} 1\n") != std::string::npos);
  CHECK(count(text, "weft_probe_sent_total{") == 1);
}

TEST_CASE("metrics: hostile label values cannot end the line, the value or the page", "[metrics]") {
  Exposition page("weftd");
  const std::string hostile = std::string("x\"} 9\nevil 1 \\ \xff\xc0\xaf \x00 \r", 22);
  const std::string text = page.render({sample("weft_probe_sent_total", 1, {{"device", hostile}}),
                                        sample("weft_probe_sent_total", 2, {{"device", std::string(100'000, 'y')}})});
  CHECK(text.find("\nevil") == std::string::npos);
  CHECK(text.find('\r') == std::string::npos);
  CHECK(text.find('\0') == std::string::npos);
  CHECK(text.find('\xff') == std::string::npos);
  CHECK(text.find("device=\"x\\\"} 9?evil 1 \\\\ ??? ? ?\"} 1\n") != std::string::npos);
  CHECK(text.size() < 2000);
}

TEST_CASE("metrics: a family stays within its bound, and those shown before stay shown", "[metrics]") {
  Exposition page("weftd");
  const auto series = [](int from, int to) {
    std::vector<model::MetricSample> out;
    for (int i = from; i < to; ++i)
      out.push_back(sample("weft_probe_sent_total", 1, {{"device", "d" + std::to_string(i)}}));
    return out;
  };
  CHECK(count(page.render(series(10, 74)), "weft_probe_sent_total{") == 64);
  CHECK(page.overflow() == 0);
  const std::string text = page.render(series(0, 74));
  CHECK(count(text, "weft_probe_sent_total{") == 64);
  CHECK(text.find("\"d0\"") == std::string::npos);
  CHECK(text.find("\"d73\"") != std::string::npos);
  CHECK(text.find("weft_metrics_overflow_total 10\n") != std::string::npos);
  CHECK(page.render(series(0, 20)).find("\"d0\"") != std::string::npos);
}

TEST_CASE("metrics: HELP and TYPE stand once a family, histograms end with +Inf", "[metrics]") {
  Exposition page("weft-aggregator");
  model::MetricSample histogram;
  histogram.name = "weft_finding_detection_seconds";
  histogram.buckets = {{1, 2}, {5, 3}};
  histogram.count = 4;
  histogram.sum = 12.5;
  const std::string text = page.render({histogram, sample("weft_findings_total", 3, {{"kind", "link_loss"}}),
                                        sample("weft_findings_total", 1, {{"kind", "link_ecn"}})});
  CHECK(count(text, "# TYPE weft_findings_total counter\n") == 1);
  CHECK(count(text, "# HELP weft_findings_total ") == 1);
  CHECK(text.find("weft_finding_detection_seconds_bucket{le=\"5\"} 3\n") != std::string::npos);
  CHECK(text.find("weft_finding_detection_seconds_bucket{le=\"+Inf\"} 4\n") != std::string::npos);
  CHECK(text.find("weft_finding_detection_seconds_sum 12.5\n") != std::string::npos);
  CHECK(text.back() == '\n');
}

TEST_CASE("metrics: a histogram whose counts go down is refused", "[metrics]") {
  expect_log("out of order");
  Exposition page("weft-aggregator");
  model::MetricSample histogram;
  histogram.name = "weft_finding_detection_seconds";
  histogram.buckets = {{1, 3}, {5, 2}};
  histogram.count = 4;
  CHECK(page.render({histogram}).find("_bucket") == std::string::npos);
}
