#include "aggregator/export/metrics_page.h"

#include "lib/metrics/exposition.h"
#include "tests/unit/golden.h"

using namespace weft::aggregator;
using weft::metrics::Exposition;
using weft::metrics::PageFormat;

namespace {

// Something of everything that a page can say.
Snapshot full_snapshot() {
  Snapshot snapshot;
  snapshot.hosts.resize(2);
  snapshot.hosts[0].host = "h1";
  snapshot.hosts[0].state = "reporting";
  snapshot.hosts[0].rail = "r0";
  snapshot.hosts[0].pod = "p0";
  snapshot.hosts[0].inventory = weft::model::Inventory{};
  snapshot.hosts[0].inventory->version = "0.1.0";
  snapshot.hosts[0].inventory->kernel = "6.1.0";
  snapshot.hosts[1].host = "h2";
  snapshot.hosts[1].state = "silent";
  weft::model::Finding finding;
  finding.kind = weft::model::FindingKind::LinkLoss;
  finding.subject = "link:s1>l2";
  snapshot.active = {finding};
  weft::localise::MeshCell cell;
  cell.from = "h1/rxe0";
  cell.from_leaf = "l1";
  cell.to = "h3/rxe0";
  cell.sent = 100;
  cell.lost = 7;
  cell.rtt_median_ns = 2 * weft::kMillisecond;
  auto views = std::make_shared<Snapshot::Views>();
  views->mesh = {cell};
  snapshot.views = views;
  snapshot.coverage.links = 16;
  snapshot.coverage.covered = 15;
  snapshot.judge_seconds = 0.004;
  snapshot.config_rejected = true;
  snapshot.counters.detection.add(2.5);
  snapshot.counters.streams_refused["fabric"] = 3;
  return snapshot;
}

std::string render(Exposition& exposition, PageFormat format) {
  return exposition.render(
      metric_samples(full_snapshot(), "0.1.0", {weft::kSecond, 2 * weft::kSecond}, {{0, 0, 7, 0, 1, 0}, 3}), format,
      weft::kSecond / 2);
}

}  // namespace

TEST_CASE("metrics page: every sample is in the catalogue and belongs to the aggregator", "[aggregator]") {
  Exposition exposition("weft-aggregator");
  const std::string page = render(exposition, PageFormat::Text);
  CHECK(exposition.refused() == 0);
  CHECK(exposition.overflow() == 0);
  for (const char* line :
       {"weft_finding_active{kind=\"link_loss\",subject=\"link:s1>l2\",severity=\"info\"} 1\n",
        "weft_finding_detection_seconds_bucket{le=\"2.0\"} 0\n",
        "weft_finding_detection_seconds_bucket{le=\"3.0\"} 1\n", "weft_stream_refused_total{reason=\"fabric\"} 3\n",
        "weft_findings_total{kind=\"host_silent\"} 0\n", "weft_mesh_probes{from_leaf=\"l1\",to_leaf=\"unknown\"} 100\n",
        "weft_mesh_probes_lost{from_leaf=\"l1\",to_leaf=\"unknown\"} 7\n",
        "weft_mesh_round_trip_seconds{from_leaf=\"l1\",to_leaf=\"unknown\"} 0.002\n",
        "weft_endpoint_leaf_info{endpoint=\"h1/rxe0\",leaf=\"l1\"} 1\n", "weft_aggregator_agents{state=\"silent\"} 1\n",
        "weft_store_acknowledging 1\n", "weft_http_requests_total{code=\"2xx\"} 7\n",
        "weft_http_connections_cut_total 3\n", "weft_process_cpu_seconds_total{mode=\"system\"} 2\n",
        "weft_page_age_seconds 0.5\n", "weft_config_rejected 1\n",
        "weft_host_info{host=\"h1\",rail=\"r0\",pod=\"p0\",version=\"0.1.0\",kernel=\"6.1.0\"} 1\n"}) {
    CAPTURE(line);
    CHECK(page.find(line) != std::string::npos);
  }
  for (const auto& info : weft::model::metric_catalogue()) {
    if (info.program == "weftd") continue;
    CAPTURE(info.name);
    CHECK(page.find("# TYPE " + std::string(info.name) + " ") != std::string::npos);
  }
}

TEST_CASE("metrics page: the whole page of the aggregator, in both formats", "[aggregator]") {
  for (const auto& [format, file] : {std::pair{PageFormat::Text, "metrics/weft-aggregator.prom"},
                                     std::pair{PageFormat::OpenMetrics, "metrics/weft-aggregator.openmetrics"}}) {
    Exposition exposition("weft-aggregator");
    weft::test::check_golden(file, render(exposition, format));
  }
}
