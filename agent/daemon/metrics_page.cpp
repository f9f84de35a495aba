#include "agent/daemon/metrics_page.h"

#include <algorithm>

namespace weft::agent {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

void grow(std::uint64_t& sum, std::uint64_t& last, std::uint64_t now) {
  sum += now >= last ? now - last : now;
  last = now;
}

void put(std::vector<model::MetricSample>& out, std::string_view name, Labels labels, double value) {
  model::MetricSample sample;
  sample.name = name;
  sample.labels = std::move(labels);
  sample.value = value;
  out.push_back(std::move(sample));
}

double seconds(Nanos ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

void MetricsPage::add(const std::vector<EngineReport>& reports) {
  for (auto& [device, totals] : devices_) totals.open = false;
  for (const EngineReport& report : reports) {
    Totals& totals = devices_[report.spec.device];
    totals.open = true;
    const probes::EngineStats& now = report.stats;
    grow(totals.sum.sent, totals.last.sent, now.sent);
    grow(totals.sum.acked, totals.last.acked, now.acked);
    grow(totals.sum.throttled, totals.last.throttled, now.throttled);
    grow(totals.sum.local_errors, totals.last.local_errors, now.local_errors);
    grow(totals.sum.answered, totals.last.answered, now.answered);
    grow(totals.sum.lost_forward, totals.last.lost_forward, now.lost_forward);
    grow(totals.sum.lost_back, totals.last.lost_back, now.lost_back);
    grow(totals.sum.lost_unknown, totals.last.lost_unknown, now.lost_unknown);
    grow(totals.sum.ce_forward, totals.last.ce_forward, now.ce_forward);
    grow(totals.sum.ce_back, totals.last.ce_back, now.ce_back);
    for (const auto& [reason, count] : now.rejected) {
      grow(totals.rejected_sum[reason], totals.rejected_last[reason], count);
    }
    totals.sum.responder_low_water = now.responder_low_water;
    totals.sum.own_delay_max_ns = now.own_delay_max_ns;
    totals.sum.registered_peers = now.registered_peers;

    // A peer's round trip: the median path of the window, so that one bad path of many does not hide in a mean.
    std::map<std::string, std::vector<double>> by_peer;
    for (const model::PathWindow& window : report.windows) {
      if (window.rtt_median_ns) by_peer[window.key.to].push_back(seconds(*window.rtt_median_ns));
    }
    for (auto& [peer, values] : by_peer) {
      const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
      std::nth_element(values.begin(), middle, values.end());
      totals.round_trip_s[peer] = *middle;
    }
    // Peers no longer probed leave the page.
    for (auto it = totals.round_trip_s.begin(); it != totals.round_trip_s.end();) {
      const bool kept = std::any_of(report.peers.begin(), report.peers.end(),
                                    [&](const probes::PeerStatus& peer) { return peer.to == it->first; });
      it = kept ? std::next(it) : totals.round_trip_s.erase(it);
    }
  }
}

void MetricsPage::add_traces(const probes::TraceStats& now) {
  grow(traces_.sent, traces_last_.sent, now.sent);
  grow(traces_.answered, traces_last_.answered, now.answered);
  grow(traces_.send_errors, traces_last_.send_errors, now.send_errors);
  for (std::size_t i = 0; i < probes::kIcmpRejects; ++i) {
    grow(traces_.rejected[i], traces_last_.rejected[i], now.rejected[i]);
  }
}

std::vector<model::MetricSample> MetricsPage::samples(const PageInput& input) const {
  std::vector<model::MetricSample> out;
  put(out, "weft_build_info", {{"version", input.version}}, 1);
  put(out, "weft_agent_info", {{"host", input.host}, {"version", input.version}, {"kernel", input.kernel}}, 1);
  put(out, "weft_agent_limitations", {}, static_cast<double>(input.limitations));
  put(out, "weft_process_cpu_seconds_total", {{"mode", "user"}}, seconds(input.cpu.user_ns));
  put(out, "weft_process_cpu_seconds_total", {{"mode", "system"}}, seconds(input.cpu.system_ns));
  put(out, "weft_plan_revision", {}, static_cast<double>(input.plan_revision));
  const auto messages = [&](const char* source, const std::optional<InventoryCounts::Messages>& counts) {
    if (!counts) return;
    const std::pair<const char*, std::uint64_t> rows[] = {
        {"received", counts->received}, {"malformed", counts->malformed}, {"overrun", counts->overruns}};
    for (const auto& [result, count] : rows) {
      put(out, "weft_inventory_messages_total", {{"source", source}, {"result", result}}, static_cast<double>(count));
    }
  };
  messages("uevent", input.inventory.uevents);
  messages("link", input.inventory.links);
  put(out, "weft_inventory_values_missing_total", {{"reason", "absent"}},
      static_cast<double>(input.inventory.values.absent));
  put(out, "weft_inventory_values_missing_total", {{"reason", "failed"}},
      static_cast<double>(input.inventory.values.failed));
  for (const StreamState state : {StreamState::Inactive, StreamState::Connecting, StreamState::Handshake,
                                  StreamState::Connected, StreamState::Backoff}) {
    put(out, "weft_stream_state", {{"state", std::string(to_string(state))}}, state == input.stream ? 1 : 0);
  }
  put(out, "weft_stream_connected", {}, input.stream == StreamState::Connected ? 1 : 0);
  put(out, "weft_stream_records_total", {}, static_cast<double>(input.stream_stats.records_sent));
  put(out, "weft_stream_resent_total", {}, static_cast<double>(input.stream_stats.records_resent));
  put(out, "weft_stream_failures_total", {}, static_cast<double>(input.stream_stats.failures));
  put(out, "weft_stream_unacknowledged", {}, static_cast<double>(input.unacknowledged));
  put(out, "weft_stream_waiting", {}, static_cast<double>(input.waiting));
  put(out, "weft_stream_dropped_total", {{"class", "samples"}}, static_cast<double>(input.dropped_samples));
  put(out, "weft_stream_dropped_total", {{"class", "oversized"}}, static_cast<double>(input.refused_records));
  put(out, "weft_stream_dropped_total", {{"class", "rejected"}},
      static_cast<double>(input.stream_stats.records_rejected));
  put(out, "weft_trace_sent_total", {}, static_cast<double>(traces_.sent));
  put(out, "weft_trace_answered_total", {}, static_cast<double>(traces_.answered));
  put(out, "weft_trace_send_errors_total", {}, static_cast<double>(traces_.send_errors));
  for (std::size_t i = 0; i < probes::kIcmpRejects; ++i) {
    put(out, "weft_trace_rejected_total",
        {{"reason", std::string(probes::to_string(static_cast<probes::IcmpReject>(i)))}},
        static_cast<double>(traces_.rejected[i]));
  }
  if (input.health) {
    put(out, "weft_host_scheduling_gap_seconds", {}, seconds(input.health->max_gap_ns));
    if (input.health->cpu_pressure_some) {
      put(out, "weft_host_cpu_pressure_ratio", {}, *input.health->cpu_pressure_some);
    }
  }
  for (const auto& [device, totals] : devices_) {
    const probes::EngineStats& sum = totals.sum;
    const Labels labels{{"device", device}};
    const auto with = [&labels](const char* key, const std::string& value) {
      return Labels{labels.front(), {key, value}};
    };
    put(out, "weft_probe_endpoint_open", labels, totals.open ? 1 : 0);
    put(out, "weft_probe_sent_total", labels, static_cast<double>(sum.sent));
    put(out, "weft_probe_acknowledged_total", labels, static_cast<double>(sum.acked));
    put(out, "weft_probe_answered_total", labels, static_cast<double>(sum.answered));
    put(out, "weft_probe_throttled_total", labels, static_cast<double>(sum.throttled));
    put(out, "weft_probe_local_errors_total", labels, static_cast<double>(sum.local_errors));
    put(out, "weft_probe_lost_total", with("direction", "forward"), static_cast<double>(sum.lost_forward));
    put(out, "weft_probe_lost_total", with("direction", "back"), static_cast<double>(sum.lost_back));
    put(out, "weft_probe_lost_total", with("direction", "unknown"), static_cast<double>(sum.lost_unknown));
    put(out, "weft_probe_ce_total", with("direction", "forward"), static_cast<double>(sum.ce_forward));
    put(out, "weft_probe_ce_total", with("direction", "back"), static_cast<double>(sum.ce_back));
    for (const auto& [reason, count] : totals.rejected_sum) {
      put(out, "weft_probe_rejected_total", with("reason", reason), static_cast<double>(count));
    }
    if (!totals.open) continue;  // gauges of a closed device would be old news
    put(out, "weft_probe_own_delay_seconds", labels, seconds(sum.own_delay_max_ns));
    put(out, "weft_probe_registered_peers", labels, sum.registered_peers);
    if (sum.responder_low_water) {
      put(out, "weft_probe_responder_free_buffers", labels, *sum.responder_low_water);
    }
    for (const auto& [peer, value] : totals.round_trip_s) {
      put(out, "weft_probe_round_trip_seconds", with("peer", peer), value);
    }
  }
  return out;
}

}  // namespace weft::agent
