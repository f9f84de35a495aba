#include "lib/model/metric.h"

#include <algorithm>
#include <iterator>

namespace weft::model {
namespace {

constexpr auto kCounter = MetricType::Counter;
constexpr auto kGauge = MetricType::Gauge;
constexpr auto kHistogram = MetricType::Histogram;

// Sorted by name.
constexpr MetricInfo kCatalogue[] = {
    {"weft_agent_info", kGauge, "info", "host,version,kernel", "weftd", 1, "One; its labels say what runs here."},
    {"weft_agent_limitations", kGauge, "limitations", "", "weftd", 1,
     "Things this host cannot measure now; weft status says why and how to get them."},
    {"weft_aggregator_agents", kGauge, "agents", "state", "weft-aggregator", 4,
     "Agents known to the aggregator by state: reporting, silent, stopped."},
    {"weft_build_info", kGauge, "info", "version", "both", 1, "One; the version of the running program."},
    {"weft_endpoint_leaf_info", kGauge, "info", "endpoint,leaf", "weft-aggregator", 16384,
     "One for every port that probes or is probed; leaf is the switch it hangs on, unknown where neither topology nor "
     "traces say it."},
    {"weft_finding_active", kGauge, "findings", "kind,subject,severity", "weft-aggregator", 1000,
     "One while the finding is active; absent otherwise."},
    {"weft_finding_detection_seconds", kHistogram, "seconds", "", "weft-aggregator", 1,
     "From the first bad evidence to the finding."},
    {"weft_findings_total", kCounter, "findings", "kind", "weft-aggregator", 64, "Findings raised since start."},
    {"weft_host_cpu_pressure_ratio", kGauge, "ratio", "", "weftd", 1,
     "Share of the last 10 s in which some task waited for a CPU (/proc/pressure/cpu)."},
    {"weft_host_scheduling_gap_seconds", kGauge, "seconds", "", "weftd", 1,
     "Longest time the heartbeat of weftd woke late in the last window."},
    {"weft_http_connections_cut_total", kCounter, "connections", "", "both", 1,
     "HTTP connections ended because the client was too slow to send its request or to take its answer."},
    {"weft_http_requests_total", kCounter, "requests", "code", "weft-aggregator", 16,
     "HTTP requests answered, by status class: 2xx, 4xx, 5xx."},
    {"weft_inventory_messages_total", kCounter, "messages", "source,result", "weftd", 8,
     "Datagrams of the kernel about devices (source uevent) and interfaces (source link), by result: received; of them "
     "malformed; and overrun, when the kernel dropped some."},
    {"weft_inventory_values_missing_total", kCounter, "values", "reason", "weftd", 2,
     "Values that devices did not give when read, by reason: absent (not for this device or port), failed."},
    {"weft_judge_seconds", kGauge, "seconds", "", "weft-aggregator", 1, "How long the last judgement took."},
    {"weft_link_covered", kGauge, "links", "", "weft-aggregator", 1, "Directed links with enough probes to judge."},
    {"weft_link_known", kGauge, "links", "", "weft-aggregator", 1, "Directed links known from topology or traces."},
    {"weft_localise_dropped_total", kCounter, "records", "", "weft-aggregator", 1,
     "Evidence not used because a bound was reached or a value made no sense."},
    {"weft_mesh_packets_ce", kGauge, "packets", "from_leaf,to_leaf", "weft-aggregator", 4225,
     "Packets of probes between two leaves that arrived marked Congestion Experienced, in the window that is judged."},
    {"weft_mesh_packets_ecn_capable", kGauge, "packets", "from_leaf,to_leaf", "weft-aggregator", 4225,
     "Packets of probes between two leaves that arrived with ECN intact, marked or not, in the window that is judged."},
    {"weft_mesh_probes", kGauge, "probes", "from_leaf,to_leaf", "weft-aggregator", 4225,
     "Probes from ports of one leaf to ports of another in the window that is judged. Leaves past the 64 with most "
     "ports are together leaf other."},
    {"weft_mesh_probes_lost", kGauge, "probes", "from_leaf,to_leaf", "weft-aggregator", 4225,
     "Of weft_mesh_probes those that were lost, either way."},
    {"weft_mesh_round_trip_seconds", kGauge, "seconds", "from_leaf,to_leaf", "weft-aggregator", 4225,
     "Median network round trip of the middle pair of ports between two leaves in the window that is judged."},
    {"weft_metrics_overflow_total", kCounter, "series", "", "both", 1,
     "Label sets left out because a family reached its bound."},
    {"weft_metrics_refused_total", kCounter, "samples", "", "both", 1,
     "Samples left out of the page: unknown name, wrong labels, duplicate or not finite."},
    {"weft_plan_revision", kGauge, "revision", "", "weftd", 1,
     "Revision of the probe plan that is followed; 0 before the first."},
    {"weft_probe_acknowledged_total", kCounter, "probes", "device", "weftd", 64, "Probes answered in time."},
    {"weft_probe_answered_total", kCounter, "probes", "device", "weftd", 64, "Probes of peers that were answered."},
    {"weft_probe_ce_total", kCounter, "packets", "device,direction", "weftd", 128,
     "Probe packets that arrived marked Congestion Experienced, by direction."},
    {"weft_probe_endpoint_open", kGauge, "endpoints", "device", "weftd", 64,
     "One while probes can leave from the device; zero while it is gone or fails."},
    {"weft_probe_local_errors_total", kCounter, "probes", "device", "weftd", 64,
     "Probes that could not be sent from here; they say nothing about the network."},
    {"weft_probe_lost_total", kCounter, "probes", "device,direction", "weftd", 192,
     "Probes lost by direction: forward, back, unknown."},
    {"weft_probe_own_delay_seconds", kGauge, "seconds", "device", "weftd", 64,
     "Longest delay of the prober itself in the last window; not network."},
    {"weft_probe_registered_peers", kGauge, "peers", "device", "weftd", 64,
     "Peers that hold a lease and are answered."},
    {"weft_probe_rejected_total", kCounter, "packets", "device,reason", "weftd", 1024,
     "Received packets ignored, by reason: bad MAC, version, unregistered peer, rate, malformed."},
    {"weft_probe_responder_free_buffers", kGauge, "buffers", "device", "weftd", 64,
     "Fewest free receive buffers of the responder in the last window."},
    {"weft_probe_round_trip_seconds", kGauge, "seconds", "device,peer", "weftd", 4096,
     "Median network round trip to a peer in the last window."},
    {"weft_probe_sent_total", kCounter, "probes", "device", "weftd", 64, "Probes sent."},
    {"weft_probe_throttled_total", kCounter, "probes", "device", "weftd", 64,
     "Probes not sent: over the budget, or this host came to them too late."},
    {"weft_process_cpu_seconds_total", kCounter, "seconds", "mode", "both", 2,
     "CPU time this program has used, all its threads, by mode: user, system."},
    {"weft_store_acknowledging", kGauge, "stores", "", "weft-aggregator", 1,
     "One while batches are stored and acknowledged; zero while the disk is full or fails."},
    {"weft_store_commits_total", kCounter, "commits", "", "weft-aggregator", 1, "Group commits of the store."},
    {"weft_store_errors_total", kCounter, "errors", "reason", "weft-aggregator", 8,
     "Store failures by reason: full, corrupt, other."},
    {"weft_store_size_bytes", kGauge, "bytes", "", "weft-aggregator", 1, "Size of the database file."},
    {"weft_stream_batches_total", kCounter, "batches", "result", "weft-aggregator", 4,
     "Batches received, by result: stored, duplicate, refused."},
    {"weft_stream_connected", kGauge, "streams", "", "weftd", 1, "One while the stream to the aggregator is up."},
    {"weft_stream_dropped_total", kCounter, "records", "class", "both", 8,
     "Records dropped, by class: samples (queue full), oversized, rejected (the aggregator could not read them), "
     "requests."},
    {"weft_stream_failures_total", kCounter, "failures", "", "weftd", 1,
     "Connections to the aggregator that failed or ended."},
    {"weft_stream_records_total", kCounter, "records", "", "both", 1, "Records sent (weftd) or stored (aggregator)."},
    {"weft_stream_refused_total", kCounter, "streams", "reason", "weft-aggregator", 16,
     "Streams refused, by reason: fabric, schema, name, capacity, epoch, protocol."},
    {"weft_stream_rejected_total", kCounter, "records", "reason", "weft-aggregator", 8,
     "Records dropped alone, by reason: malformed, foreign (of another host), unknown, finding_bound."},
    {"weft_stream_resent_total", kCounter, "records", "", "weftd", 1,
     "Records sent again after a reconnect because no acknowledgement had come."},
    {"weft_stream_state", kGauge, "streams", "state", "weftd", 5,
     "One for the state the stream is in: inactive, connecting, handshake, connected, backoff."},
    {"weft_stream_unacknowledged", kGauge, "records", "", "weftd", 1, "Records waiting for an acknowledgement."},
    {"weft_stream_waiting", kGauge, "records", "", "weftd", 1, "Records not sent yet."},
    {"weft_trace_answered_total", kCounter, "packets", "", "weftd", 1, "Trace packets that a router or host answered."},
    {"weft_trace_rejected_total", kCounter, "packets", "reason", "weftd", 8,
     "ICMP messages ignored, by reason: not of a trace, truncated, bad checksum, malformed."},
    {"weft_trace_send_errors_total", kCounter, "packets", "", "weftd", 1, "Trace packets that could not be sent."},
    {"weft_trace_sent_total", kCounter, "packets", "", "weftd", 1,
     "Trace packets sent: UDP with rising TTL, besides the probes."},
};

}  // namespace

std::span<const MetricInfo> metric_catalogue() { return kCatalogue; }

const MetricInfo* find_metric(std::string_view name) {
  const auto it = std::lower_bound(std::begin(kCatalogue), std::end(kCatalogue), name,
                                   [](const MetricInfo& info, std::string_view n) { return info.name < n; });
  return it != std::end(kCatalogue) && it->name == name ? &*it : nullptr;
}

}  // namespace weft::model
