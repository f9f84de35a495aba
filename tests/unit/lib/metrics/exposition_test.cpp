#include "lib/metrics/exposition.h"

#include <cmath>
#include <sstream>

#include "tests/unit/catch.h"

namespace model = weft::model;
using weft::metrics::choose_format;
using weft::metrics::Exposition;
using weft::metrics::PageFormat;
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
  CHECK(text.find("\"" + std::string(weft::metrics::kMaxLabelBytes, 'y') + "\"} 2\n") != std::string::npos);
}

TEST_CASE(
    "metrics: a family at its bound shows the rest as one sum, those shown before stay, and the counter names the "
    "family (beyla PR 1907)",
    "[metrics]") {
  Exposition page("weftd");
  const auto series = [](int from, int to, double value) {
    std::vector<model::MetricSample> out;
    for (int i = from; i < to; ++i)
      out.push_back(sample("weft_probe_sent_total", value, {{"device", "d" + std::to_string(i)}}));
    return out;
  };
  std::string text = page.render(series(10, 74, 1));
  CHECK(count(text, "weft_probe_sent_total{") == 64);
  CHECK(text.find("overflow\"}") == std::string::npos);
  CHECK(text.find("weft_metrics_overflow_total{family=\"weft_probe_sent_total\"} 0\n") != std::string::npos);
  text = page.render(series(0, 74, 2));
  CHECK(count(text, "weft_probe_sent_total{") == 65);
  CHECK(text.find("\"d0\"") == std::string::npos);
  CHECK(text.find("\"d73\"") != std::string::npos);
  CHECK(text.find("weft_probe_sent_total{device=\"overflow\"} 20\n") != std::string::npos);
  CHECK(text.find("weft_metrics_overflow_total{family=\"weft_probe_sent_total\"} 10\n") != std::string::npos);
  CHECK(text.find("weft_metrics_overflow_total{family=\"weft_probe_answered_total\"} 0\n") != std::string::npos);
  // What they grow by is added; what finds room of its own leaves what it has added, so that the sum never falls.
  CHECK(page.render(series(0, 74, 5)).find("{device=\"overflow\"} 50\n") != std::string::npos);
  text = page.render(series(0, 20, 6));
  CHECK(text.find("\"d0\"} 6\n") != std::string::npos);
  CHECK(text.find("{device=\"overflow\"} 50\n") != std::string::npos);
}

TEST_CASE("metrics: an older snapshot rendered after a newer one adds nothing to a sum twice", "[metrics]") {
  Exposition page("weftd");
  const auto series = [](double value) {
    std::vector<model::MetricSample> out;
    for (int i = 0; i < 65; ++i)
      out.push_back(sample("weft_probe_sent_total", value, {{"device", "d" + std::to_string(i)}}));
    return out;
  };
  page.render(series(10));
  page.render(series(7));
  CHECK(page.render(series(11)).find("{device=\"overflow\"} 11\n") != std::string::npos);
}

TEST_CASE("metrics: of a gauge the sum is that of this page, and other labels stay apart", "[metrics]") {
  Exposition page("weft-aggregator");
  const auto findings = [](int many) {
    std::vector<model::MetricSample> out;
    for (int i = 0; i < many; ++i) {
      out.push_back(sample("weft_finding_active", 1,
                           {{"kind", i % 2 == 0 ? "link_loss" : "link_ecn"},
                            {"subject", "link:l" + std::to_string(i) + ">s1"},
                            {"severity", "critical"}}));
    }
    return out;
  };
  const std::string text = page.render(findings(1007));
  CHECK(text.find("{kind=\"link_loss\",subject=\"overflow\",severity=\"critical\"} 4\n") != std::string::npos);
  CHECK(text.find("{kind=\"link_ecn\",subject=\"overflow\",severity=\"critical\"} 3\n") != std::string::npos);
  CHECK(page.render(findings(1000)).find("overflow\",severity") == std::string::npos);
}

TEST_CASE("metrics: where a sum says nothing the rest is left out and counted", "[metrics]") {
  Exposition page("weftd");
  std::vector<model::MetricSample> out;
  for (int i = 0; i < 70; ++i)
    out.push_back(sample("weft_probe_own_delay_seconds", 1, {{"device", "d" + std::to_string(i)}}));
  const std::string text = page.render(out);
  CHECK(count(text, "weft_probe_own_delay_seconds{") == 64);
  CHECK(text.find("weft_metrics_overflow_total{family=\"weft_probe_own_delay_seconds\"} 6\n") != std::string::npos);
}

TEST_CASE("metrics: sums are bounded, too, and a device that is called overflow goes with the sum", "[metrics]") {
  Exposition page("weftd");
  std::vector<model::MetricSample> out;
  out.push_back(sample("weft_probe_rejected_total", 3, {{"device", "overflow"}, {"reason", "r1024"}}));
  for (int i = 0; i < 2000; ++i) {
    out.push_back(sample("weft_probe_rejected_total", 1, {{"device", "d"}, {"reason", "r" + std::to_string(i)}}));
  }
  const std::string text = page.render(out);
  CHECK(count(text, "weft_probe_rejected_total{") == 1024 + 65);
  CHECK(text.find("{device=\"overflow\",reason=\"r1024\"} 4\n") != std::string::npos);
  CHECK(text.find("{device=\"overflow\",reason=\"overflow\"} 912\n") != std::string::npos);
  CHECK(page.overflow() == 976);
}

TEST_CASE("metrics: a wrong, a doubled and a bad sample cost nothing but themselves (prometheus 2894, 14126)",
          "[metrics]") {
  expect_log("the same labels twice");
  expect_log("not finite");
  Exposition page("weftd");
  std::string text;
  // Again and again: nothing is retried or kept for later.
  for (int i = 0; i < 3; ++i) {
    text = page.render({sample("weft_probe_sent_total", 1, {{"device", "a"}}),
                        sample("weft_probe_sent_total", 2, {{"device", "a"}}),
                        sample("weft_probe_answered_total", NAN, {{"device", "a"}}),
                        sample("weft_probe_answered_total", 4, {{"device", "b"}})});
  }
  CHECK(text.find("weft_probe_sent_total{device=\"a\"} 1\n") != std::string::npos);
  CHECK(text.find("weft_probe_answered_total{device=\"b\"} 4\n") != std::string::npos);
  CHECK(text.find("weft_metrics_refused_total 6\n") != std::string::npos);
}

TEST_CASE(
    "metrics: no sample has a time of its own, so that no clock of this host can spoil a scrape (prometheus 13573)",
    "[metrics]") {
  for (const PageFormat format : {PageFormat::Text, PageFormat::OpenMetrics}) {
    Exposition page("weftd");
    std::istringstream lines(page.render({sample("weft_probe_sent_total", 1, {{"device", "a b"}})}, format, 0));
    for (std::string line; std::getline(lines, line);) {
      if (line.front() == '#') continue;
      CAPTURE(line);
      const std::size_t end = line.find('}');
      CHECK(count(end == std::string::npos ? line : line.substr(end), " ") == 1);
    }
  }
}

TEST_CASE("metrics: a page says how old it is, where that is known", "[metrics]") {
  Exposition page("weftd");
  CHECK(page.render({}, PageFormat::Text, 1500 * weft::kMillisecond).find("weft_page_age_seconds 1.5\n") !=
        std::string::npos);
  CHECK(page.render({}).find("weft_page_age_seconds") == std::string::npos);
}

TEST_CASE("metrics: OpenMetrics names the family of counters and info without their suffix, and ends with EOF",
          "[metrics]") {
  Exposition page("weft-aggregator");
  model::MetricSample histogram;
  histogram.name = "weft_finding_detection_seconds";
  histogram.buckets = {{1, 2}, {2.5, 3}};
  histogram.count = 4;
  histogram.sum = 12.5;
  const std::string text = page.render(
      {histogram, sample("weft_build_info", 1, {{"version", "0.1.0"}}), sample("weft_store_size_bytes", 1e15),
       sample("weft_process_cpu_seconds_total", 0.1, {{"mode", "user"}})},
      PageFormat::OpenMetrics);
  for (const char* part :
       {"# TYPE weft_build info\nweft_build_info{version=\"0.1.0\"} 1\n",
        "# TYPE weft_finding_detection_seconds histogram\n# UNIT weft_finding_detection_seconds seconds\n",
        "weft_finding_detection_seconds_bucket{le=\"1.0\"} 2\n", "_bucket{le=\"2.5\"} 3\n", "_bucket{le=\"+Inf\"} 4\n",
        "# TYPE weft_process_cpu_seconds counter\n# UNIT weft_process_cpu_seconds seconds\n"
        "weft_process_cpu_seconds_total{mode=\"user\"} 0.1\n",
        "# TYPE weft_store_size_bytes gauge\n# UNIT weft_store_size_bytes bytes\n"
        "weft_store_size_bytes 1000000000000000\n"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.ends_with("\n# EOF\n"));
  CHECK(count(text, "# EOF") == 1);
}

TEST_CASE("metrics: hostile text cannot end an OpenMetrics page early", "[metrics]") {
  Exposition page("weftd");
  const std::string text =
      page.render({sample("weft_probe_sent_total", 1, {{"device", "x\"} 9\r\n# EOF\nevil 1 # {trace_id=\"a\"} 1"}})},
                  PageFormat::OpenMetrics);
  CHECK(text.find("\n# EOF\n") == text.size() - 7);
  CHECK(text.find("\nevil") == std::string::npos);
  CHECK(text.find('\r') == std::string::npos);
}

TEST_CASE("metrics: a scraper gets the format it wants most, and text when it cannot be told", "[metrics]") {
  const std::pair<const char*, PageFormat> rows[] = {
      {"", PageFormat::Text},
      {"*/*", PageFormat::Text},
      {"text/plain", PageFormat::Text},
      {"application/json", PageFormat::Text},
      {"application/openmetrics-text", PageFormat::OpenMetrics},
      {"Application/OpenMetrics-Text ; Version=1.0.0", PageFormat::OpenMetrics},
      {"application/openmetrics-text;version=2.0.0", PageFormat::Text},
      {"application/openmetrics-text;version=0.0.1", PageFormat::Text},
      {"application/openmetrics-text;q=0", PageFormat::Text},
      {"application/openmetrics-text;q=0.3,text/plain;version=0.0.4;q=0.5", PageFormat::Text},
      {"application/openmetrics-text;q=0.3,text/plain;version=1.0.0;q=0.5", PageFormat::OpenMetrics},
      {"application/openmetrics-text;q=nan", PageFormat::Text},
      {"application/openmetrics-text;q=2", PageFormat::Text},
      {"application/openmetrics-text;q=", PageFormat::Text},
      {",;,;;=,q=1;;\"", PageFormat::Text},
      // Prometheus 2.42, then 3.
      {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
       "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
       PageFormat::OpenMetrics},
      {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
       "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
       "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
       PageFormat::OpenMetrics},
      {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
       "text/plain;version=0.0.4;q=0.5",
       PageFormat::Text}};
  for (const auto& [accept, format] : rows) {
    CAPTURE(accept);
    CHECK(choose_format(accept) == format);
  }
  CHECK(choose_format(std::string(100'000, ',') + "application/openmetrics-text") == PageFormat::OpenMetrics);
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
  CHECK(text.find("weft_finding_detection_seconds_bucket{le=\"5.0\"} 3\n") != std::string::npos);
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
