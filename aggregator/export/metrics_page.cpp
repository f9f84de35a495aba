#include "aggregator/export/metrics_page.h"

#include <utility>

#include "aggregator/export/leaf_mesh.h"

namespace weft::aggregator {
namespace {

class Samples {
 public:
  void add(std::string_view name, double value, std::vector<std::pair<std::string, std::string>> labels = {}) {
    model::MetricSample sample;
    sample.name = name;
    sample.value = value;
    sample.labels = std::move(labels);
    out.push_back(std::move(sample));
  }
  void count(std::string_view name, std::uint64_t value, std::vector<std::pair<std::string, std::string>> labels = {}) {
    add(name, static_cast<double>(value), std::move(labels));
  }
  std::vector<model::MetricSample> out;
};

// Where hosts stand, so that series of agents can be joined to rails and pods.
void add_places(const Snapshot& snapshot, Samples& samples) {
  for (const localise::HostView& host : snapshot.hosts) {
    samples.add("weft_host_info", 1,
                {{"host", host.host},
                 {"rail", host.rail},
                 {"pod", host.pod},
                 {"version", host.inventory ? host.inventory->version : ""},
                 {"kernel", host.inventory ? host.inventory->kernel : ""}});
  }
}

void add_findings(const Snapshot& snapshot, Samples& samples) {
  for (const model::Finding& finding : snapshot.active) {
    samples.add("weft_finding_active", 1,
                {{"kind", std::string(model::finding_info(finding.kind).name)},
                 {"subject", finding.subject},
                 {"severity", std::string(model::to_string(finding.severity))}});
  }
  // Zero from the start: a counter that appears with its first event hides that event from rate().
  for (const model::FindingKindInfo& info : model::finding_catalogue()) {
    const auto it = snapshot.counters.findings_raised.find(std::string(info.name));
    samples.count("weft_findings_total", it == snapshot.counters.findings_raised.end() ? 0 : it->second,
                  {{"kind", std::string(info.name)}});
  }
  const DetectionHistogram& detection = snapshot.counters.detection;
  model::MetricSample histogram;
  histogram.name = "weft_finding_detection_seconds";
  for (std::size_t i = 0; i < DetectionHistogram::kBounds.size(); ++i) {
    histogram.buckets.emplace_back(DetectionHistogram::kBounds[i], detection.at_most[i]);
  }
  histogram.sum = detection.sum;
  histogram.count = detection.count;
  samples.out.push_back(std::move(histogram));
}

void add_mesh(const Snapshot& snapshot, Samples& samples) {
  if (!snapshot.views) return;
  const LeafMesh mesh = leaf_mesh(snapshot.views->mesh);
  for (const LeafCell& cell : mesh.cells) {
    const std::vector<std::pair<std::string, std::string>> pair{{"from_leaf", cell.from}, {"to_leaf", cell.to}};
    samples.count("weft_mesh_probes", cell.sent, pair);
    samples.count("weft_mesh_probes_lost", cell.lost, pair);
    samples.count("weft_mesh_packets_ecn_capable", cell.ecn_capable, pair);
    samples.count("weft_mesh_packets_ce", cell.ce, pair);
    if (cell.rtt_median_ns) {
      samples.add("weft_mesh_round_trip_seconds", static_cast<double>(*cell.rtt_median_ns) * 1e-9, pair);
    }
  }
  for (const auto& [endpoint, leaf] : mesh.leaf_of) {
    samples.add("weft_endpoint_leaf_info", 1, {{"endpoint", endpoint}, {"leaf", leaf}});
  }
}

void add_streams(const Snapshot& snapshot, Samples& samples) {
  const Counters& counters = snapshot.counters;
  samples.count("weft_stream_batches_total", counters.batches_stored, {{"result", "stored"}});
  samples.count("weft_stream_batches_total", counters.batches_duplicate, {{"result", "duplicate"}});
  samples.count("weft_stream_batches_total", counters.batches_refused, {{"result", "refused"}});
  samples.count("weft_stream_records_total", counters.records_stored);
  samples.count("weft_stream_rejected_total", counters.records_malformed, {{"reason", "malformed"}});
  samples.count("weft_stream_rejected_total", counters.records_foreign, {{"reason", "foreign"}});
  samples.count("weft_stream_rejected_total", counters.records_unknown, {{"reason", "unknown"}});
  samples.count("weft_stream_rejected_total", counters.findings_over_bound, {{"reason", "finding_bound"}});
  samples.count("weft_stream_dropped_total", counters.agent_gaps, {{"class", "samples"}});
  samples.count("weft_stream_dropped_total", snapshot.messages_dropped, {{"class", "requests"}});
  for (const char* reason : {"capacity", "epoch", "fabric", "protocol", "schema"}) {
    const auto it = counters.streams_refused.find(reason);
    samples.count("weft_stream_refused_total", it == counters.streams_refused.end() ? 0 : it->second,
                  {{"reason", reason}});
  }
}

void add_store(const StoreStatus& store, Samples& samples) {
  samples.add("weft_store_acknowledging", store.acknowledging ? 1 : 0);
  samples.count("weft_store_commits_total", store.commits);
  samples.count("weft_store_errors_total", store.errors_full, {{"reason", "full"}});
  samples.count("weft_store_errors_total", store.errors_corrupt, {{"reason", "corrupt"}});
  samples.count("weft_store_errors_total", store.errors_other, {{"reason", "other"}});
  samples.count("weft_store_size_bytes", store.size_bytes);
}

}  // namespace

std::vector<model::MetricSample> metric_samples(const Snapshot& snapshot, const std::string& version,
                                                const CpuTime& cpu, const HttpCounts& http) {
  Samples samples;
  samples.add("weft_build_info", 1, {{"version", version}});
  samples.add("weft_process_cpu_seconds_total", static_cast<double>(cpu.user_ns) * 1e-9, {{"mode", "user"}});
  samples.add("weft_process_cpu_seconds_total", static_cast<double>(cpu.system_ns) * 1e-9, {{"mode", "system"}});
  std::uint64_t reporting = 0, silent = 0, stopped = 0;
  for (const localise::HostView& host : snapshot.hosts) {
    if (host.state == "reporting") ++reporting;
    if (host.state == "silent") ++silent;
    if (host.state == "stopped" || host.state == "restarting") ++stopped;
  }
  samples.count("weft_aggregator_agents", reporting, {{"state", "reporting"}});
  samples.count("weft_aggregator_agents", silent, {{"state", "silent"}});
  samples.count("weft_aggregator_agents", stopped, {{"state", "stopped"}});
  samples.count("weft_link_known", snapshot.coverage.links);
  samples.count("weft_link_covered", snapshot.coverage.covered);
  samples.add("weft_judge_seconds", snapshot.judge_seconds);
  samples.count("weft_localise_dropped_total", snapshot.localise_dropped);
  samples.count("weft_http_requests_total", http.answers[2], {{"code", "2xx"}});
  samples.count("weft_http_requests_total", http.answers[4], {{"code", "4xx"}});
  samples.count("weft_http_requests_total", http.answers[5], {{"code", "5xx"}});
  samples.count("weft_http_connections_cut_total", http.cut);
  samples.add("weft_config_rejected", snapshot.config_rejected ? 1 : 0);
  add_places(snapshot, samples);
  samples.count("weft_http_watchers", http.watchers);
  samples.count("weft_http_watchers_refused_total", http.watchers_refused);
  samples.count("weft_http_watchers_cut_total", http.watchers_cut);
  samples.count("weft_http_events_total", http.events);
  add_findings(snapshot, samples);
  add_mesh(snapshot, samples);
  add_streams(snapshot, samples);
  add_store(snapshot.store, samples);
  return std::move(samples.out);
}

}  // namespace weft::aggregator
