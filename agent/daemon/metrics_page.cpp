#include "agent/daemon/metrics_page.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

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

// As sysfs and ibstat write it: "100 Gb/s".
std::string rate_text(std::uint64_t bits_per_s) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.begin(), text.end(), static_cast<double>(bits_per_s) / 1e9);
  return error == std::errc{} ? std::string(text.begin(), end) + " Gb/s" : "";
}

// Which of the port's GIDs an endpoint is on; empty when none is.
std::string probed_gid(const model::RdmaPort& port, const std::vector<model::ProbeEndpoint>& endpoints) {
  for (const model::GidEntry& entry : port.gids) {
    const std::string gid = entry.gid.to_string();
    const bool probed = std::any_of(endpoints.begin(), endpoints.end(), [&](const model::ProbeEndpoint& endpoint) {
      return endpoint.transport == "rdma" && endpoint.address == gid;
    });
    if (probed) return gid;
  }
  return "";
}

// What can change while counters go on stands in info metrics; counters keep to device and port.
void put_devices(std::vector<model::MetricSample>& out, const model::Inventory& inventory) {
  for (const model::ProbeEndpoint& endpoint : inventory.endpoints) {
    put(out, "weft_endpoint_info",
        {{"device", endpoint.device},
         {"endpoint", inventory.host + "/" + endpoint.device},
         {"transport", endpoint.transport},
         {"address", endpoint.address}},
        1);
  }
  for (const model::RdmaDevice& device : inventory.devices) {
    for (const model::RdmaPort& port : device.ports) {
      const Labels labels{{"device", device.name}, {"port", std::to_string(port.number)}};
      Labels info = labels;
      info.insert(info.end(), {{"link_layer", std::string(model::to_string(port.link_layer))},
                               {"driver", device.driver},
                               {"firmware", device.firmware},
                               {"netdev", port.netdev},
                               {"gid", probed_gid(port, inventory.endpoints)},
                               {"rate", port.rate_bits_per_s ? rate_text(*port.rate_bits_per_s) : ""}});
      put(out, "weft_port_info", std::move(info), 1);
      if (port.state != model::PortState::Unknown) {
        put(out, "weft_port_active", labels, port.state == model::PortState::Active ? 1 : 0);
      }
      if (port.rate_bits_per_s) {
        put(out, "weft_port_rate_bytes_per_second", labels, static_cast<double>(*port.rate_bits_per_s) / 8);
      }
    }
  }
}

}  // namespace

void MetricsPage::put_peer(std::vector<model::MetricSample>& out, const std::string& device, const std::string& name,
                           const PeerTotals& peer) {
  const Labels labels{{"device", device}, {"peer", name}};
  const auto put_count = [&](std::string_view family, const char* direction, std::uint64_t count) {
    Labels all = labels;
    all.emplace_back("direction", direction);
    put(out, family, std::move(all), static_cast<double>(count));
  };
  put(out, "weft_peer_sent_total", labels, static_cast<double>(peer.sent));
  put_count("weft_peer_lost_total", "forward", peer.lost_forward);
  put_count("weft_peer_lost_total", "back", peer.lost_back);
  put_count("weft_peer_lost_total", "unknown", peer.lost_unknown);
  put_count("weft_peer_ce_total", "forward", peer.ce_forward);
  put_count("weft_peer_ce_total", "back", peer.ce_back);
  put_count("weft_peer_ecn_capable_total", "forward", peer.ecn_forward);
  put_count("weft_peer_ecn_capable_total", "back", peer.ecn_back);
  if (peer.round_trip_s) put(out, "weft_probe_round_trip_seconds", labels, *peer.round_trip_s);
}

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

    add_windows(report, totals.peers);
  }
}

void MetricsPage::add_windows(const EngineReport& report, std::map<std::string, PeerTotals>& peers) {
  std::map<std::string, std::vector<double>> round_trips;
  for (const model::PathWindow& window : report.windows) {
    PeerTotals& peer = peers[window.key.to];
    peer.sent += window.sent;
    peer.lost_forward += window.forward.lost;
    peer.lost_back += window.back.lost;
    peer.lost_unknown += window.lost_unknown;
    peer.ce_forward += window.forward.ce;
    peer.ce_back += window.back.ce;
    peer.ecn_forward += window.forward.ecn_capable;
    peer.ecn_back += window.back.ecn_capable;
    if (window.rtt_median_ns) round_trips[window.key.to].push_back(seconds(*window.rtt_median_ns));
  }
  // A peer's round trip: the median path of the window, so that one bad path of many does not hide in a mean.
  for (auto& [name, values] : round_trips) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    peers[name].round_trip_s = *middle;
  }
  // Peers no longer probed leave the page.
  std::set<std::string_view> probed;
  for (const probes::PeerStatus& peer : report.peers) probed.insert(peer.to);
  std::erase_if(peers, [&](const auto& entry) { return probed.count(entry.first) == 0; });
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
  put(out, "weft_config_rejected", {}, input.config_rejected ? 1 : 0);
  put(out, "weft_plan_revision", {}, static_cast<double>(input.plan_revision));
  const auto messages = [&](const char* source, const std::optional<InventoryCounts::Messages>& counts) {
    if (!counts) return;
    put(out, "weft_inventory_messages_total", {{"source", source}}, static_cast<double>(counts->received));
    put(out, "weft_inventory_malformed_total", {{"source", source}}, static_cast<double>(counts->malformed));
    put(out, "weft_inventory_overruns_total", {{"source", source}}, static_cast<double>(counts->overruns));
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
    for (const auto& [name, peer] : totals.peers) put_peer(out, device, name, peer);
  }
  put_devices(out, input.devices);
  return out;
}

}  // namespace weft::agent
