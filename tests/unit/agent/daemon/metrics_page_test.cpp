#include "agent/daemon/metrics_page.h"

#include <algorithm>
#include <map>

#include "lib/metrics/exposition.h"
#include "tests/unit/golden.h"

using namespace weft;
using namespace weft::agent;

namespace {

EngineReport report(std::uint64_t sent) {
  EngineReport out;
  out.spec.device = "rxe0";
  out.stats.sent = sent;
  return out;
}

probes::PeerStatus peer(const std::string& to) { return {to, probes::PeerState::Ready, "", 1, "rdma", "", {}}; }

// Of 20 probes 2 were lost on the way out, 1 on the way back and 4 nobody knows where.
model::PathWindow window(const std::string& to, Nanos round_trip_ns) {
  model::PathWindow out;
  out.key.to = to;
  out.sent = 20;
  out.lost_unknown = 4;
  out.forward.lost = 2;
  out.forward.ecn_capable = 18;
  out.forward.ce = 3;
  out.back.lost = 1;
  out.back.ecn_capable = 17;
  out.back.ce = 5;
  out.rtt_median_ns = round_trip_ns;
  return out;
}

model::Inventory devices() {
  model::Inventory out;
  out.host = "h1";
  model::RdmaPort port;
  port.state = model::PortState::Active;
  port.link_layer = model::LinkLayer::Ethernet;
  port.rate_bits_per_s = 2'500'000'000;
  port.netdev = "eth1";
  for (const char* gid : {"fe80::1", "10.0.1.1"}) {
    port.gids.push_back(
        {static_cast<unsigned>(port.gids.size()), *model::Gid::parse(gid), model::GidType::RoceV2, "eth1"});
  }
  out.devices = {{"rxe0", "rxe", "", "1.2.3", {port}}};
  out.endpoints.resize(2);
  out.endpoints[0].device = "rxe0";
  out.endpoints[0].transport = "rdma";
  out.endpoints[0].address = "10.0.1.1";
  out.endpoints[1].device = "eth0";
  out.endpoints[1].transport = "udp";
  out.endpoints[1].address = "10.0.9.1";
  return out;
}

const model::MetricSample* find(const std::vector<model::MetricSample>& samples, std::string_view name,
                                const std::string& label = "") {
  const auto it = std::find_if(samples.begin(), samples.end(), [&](const model::MetricSample& sample) {
    const bool labelled = label.empty() || std::any_of(sample.labels.begin(), sample.labels.end(),
                                                       [&](const auto& pair) { return pair.second == label; });
    return sample.name == name && labelled;
  });
  return it == samples.end() ? nullptr : &*it;
}

}  // namespace

// Something of everything that a page can say, in an agent with two devices.
std::vector<model::MetricSample> full_page() {
  MetricsPage page;
  EngineReport full = report(500);
  full.stats.acked = 480;
  full.stats.answered = 470;
  full.stats.throttled = 3;
  full.stats.lost_forward = 9;
  full.stats.lost_back = 8;
  full.stats.lost_unknown = 2;
  full.stats.ce_forward = 7;
  full.stats.rejected = {{"bad MAC", 2}};
  full.stats.responder_low_water = 10;
  full.stats.own_delay_max_ns = 120 * kMicrosecond;
  full.stats.registered_peers = 1;
  full.peers = {peer("h3/rxe0")};
  full.windows = {window("h3/rxe0", kMillisecond), window("h3/rxe0", 2 * kMillisecond)};
  EngineReport udp = report(4);
  udp.spec.device = "eth0";
  page.add({full, udp});
  probes::TraceStats traces;
  traces.sent = 12;
  traces.answered = 11;
  page.add_traces(traces);
  PageInput input;
  input.host = "h1";
  input.version = "0.1.0";
  input.kernel = "6.1.0-\"odd\"";
  input.stream = StreamState::Connected;
  input.stream_stats.records_sent = 1234;
  input.health = model::HostHealth{};
  input.health->cpu_pressure_some = 0.5;
  input.health->max_gap_ns = 3 * kMillisecond;
  input.inventory.uevents = input.inventory.links = InventoryCounts::Messages{1, 2, 3};
  input.cpu = {3 * kSecond, 40 * kSecond};
  input.devices = devices();
  auto samples = page.samples(input);
  samples.emplace_back().name = "weft_http_connections_cut_total";  // the server's
  return samples;
}

TEST_CASE("metrics: every sample is in the catalogue with its labels", "[agent]") {
  const auto samples = full_page();
  for (const model::MetricSample& sample : samples) {
    const model::MetricInfo* info = model::find_metric(sample.name);
    INFO(sample.name);
    REQUIRE(info != nullptr);
    std::string labels;
    for (const auto& [key, value] : sample.labels) labels += (labels.empty() ? "" : ",") + key;
    CHECK(labels == info->labels);
    CHECK((info->program == "weftd" || info->program == "both"));
  }
  CHECK(find(samples, "weft_probe_round_trip_seconds", "h3/rxe0")->value == 2e-3);
  CHECK(find(samples, "weft_probe_rejected_total", "bad MAC")->value == 2);
}

TEST_CASE("metrics: the whole page of weftd, in both formats", "[agent]") {
  for (const auto& [format, file] : {std::pair{metrics::PageFormat::Text, "metrics/weftd.prom"},
                                     std::pair{metrics::PageFormat::OpenMetrics, "metrics/weftd.openmetrics"}}) {
    metrics::Exposition exposition("weftd");
    const std::string page = exposition.render(full_page(), format, 250 * kMillisecond);
    CHECK(exposition.refused() == 0);
    test::check_golden(file, page);
    if (format == metrics::PageFormat::OpenMetrics) continue;
    for (const auto& info : model::metric_catalogue()) {
      if (info.program == "weft-aggregator") continue;
      CAPTURE(info.name);
      CHECK(page.find("# TYPE " + std::string(info.name) + " ") != std::string::npos);
    }
  }
}

TEST_CASE("metrics: what can change of a port stands in its info, so that its counters go on under their name",
          "[agent]") {
  PageInput input;
  input.devices = devices();
  const auto labels = [&](std::string_view name) {
    std::map<std::string, std::string> out;
    const auto samples = MetricsPage().samples(input);
    const model::MetricSample* sample = find(samples, name);
    REQUIRE(sample != nullptr);
    for (const auto& [key, value] : sample->labels) out[key] = value;
    return out;
  };
  CHECK(labels("weft_port_info") == std::map<std::string, std::string>{{"device", "rxe0"},
                                                                       {"port", "1"},
                                                                       {"link_layer", "Ethernet"},
                                                                       {"driver", "rxe"},
                                                                       {"firmware", "1.2.3"},
                                                                       {"netdev", "eth1"},
                                                                       {"gid", "10.0.1.1"},
                                                                       {"rate", "2.5 Gb/s"}});
  CHECK(labels("weft_endpoint_info")["endpoint"] == "h1/rxe0");
  const std::map<std::string, std::string> before = labels("weft_port_rate_bytes_per_second");
  model::RdmaPort& port = input.devices.devices[0].ports[0];
  port.rate_bits_per_s = 400'000'000'000;
  port.netdev = "eth9";
  input.devices.devices[0].firmware = "2";
  CHECK(labels("weft_port_info")["rate"] == "400 Gb/s");
  CHECK(labels("weft_port_rate_bytes_per_second") == before);
  const auto samples = MetricsPage().samples(input);
  CHECK(find(samples, "weft_port_rate_bytes_per_second")->value == 50e9);
  CHECK(find(samples, "weft_port_active")->value == 1);
}

TEST_CASE("metrics: a port that cannot be read has no state and no rate, and hides no other (node_exporter 3265)",
          "[agent]") {
  PageInput input;
  input.devices = devices();
  input.devices.devices.insert(input.devices.devices.begin(), model::RdmaDevice{"mlx5_0", "", "", "", {{}}});
  const auto samples = MetricsPage().samples(input);
  CHECK(find(samples, "weft_port_info", "mlx5_0") != nullptr);
  CHECK(find(samples, "weft_port_active", "mlx5_0") == nullptr);
  CHECK(find(samples, "weft_port_rate_bytes_per_second", "mlx5_0") == nullptr);
  CHECK(find(samples, "weft_port_active", "rxe0") != nullptr);
}

TEST_CASE("metrics: losses and marks to a peer are those of its windows, each way, and go on while it is probed",
          "[agent]") {
  MetricsPage page;
  EngineReport first = report(1);
  first.peers = {peer("h3/rxe0"), peer("h4/rxe0")};
  first.windows = {window("h3/rxe0", kMillisecond), window("h3/rxe0", kMillisecond), window("h4/rxe0", kMillisecond)};
  page.add({first});
  first.windows = {window("h3/rxe0", kMillisecond)};
  page.add({first});
  const auto samples = page.samples({});
  const auto value = [&](std::string_view name, const char* direction) {
    for (const model::MetricSample& sample : samples) {
      if (sample.name != name || sample.labels[1].second != "h3/rxe0") continue;
      if (*direction == 0 || sample.labels[2].second == direction) return sample.value;
    }
    return -1.0;
  };
  CHECK(value("weft_peer_sent_total", "") == 60);
  CHECK(value("weft_peer_lost_total", "forward") == 6);
  CHECK(value("weft_peer_lost_total", "back") == 3);
  CHECK(value("weft_peer_lost_total", "unknown") == 12);
  CHECK(value("weft_peer_ce_total", "forward") == 9);
  CHECK(value("weft_peer_ce_total", "back") == 15);
  CHECK(value("weft_peer_ecn_capable_total", "forward") == 54);
  CHECK(value("weft_peer_ecn_capable_total", "back") == 51);
}

TEST_CASE("metrics: own cost is user and system time, told apart (perftest 337)", "[agent]") {
  PageInput input;
  input.cpu = {3 * kSecond, 40 * kSecond};
  const auto samples = MetricsPage().samples(input);
  CHECK(find(samples, "weft_process_cpu_seconds_total", "user")->value == 3);
  CHECK(find(samples, "weft_process_cpu_seconds_total", "system")->value == 40);
}

TEST_CASE("metrics: what the kernel told and what devices did not give, each under its own labels; absent is absent",
          "[agent]") {
  PageInput input;
  input.inventory.uevents = InventoryCounts::Messages{50, 4, 2};
  input.inventory.values = {7, 3};
  const auto samples = MetricsPage().samples(input);
  std::map<std::string, double> told;
  for (const model::MetricSample& sample : samples) {
    if (sample.name.rfind("weft_inventory_", 0) == 0) {
      told[std::string(sample.name) + " " + sample.labels.front().second] = sample.value;
    }
  }
  CHECK(told == std::map<std::string, double>{{"weft_inventory_messages_total uevent", 50},
                                              {"weft_inventory_malformed_total uevent", 4},
                                              {"weft_inventory_overruns_total uevent", 2},
                                              {"weft_inventory_values_missing_total absent", 7},
                                              {"weft_inventory_values_missing_total failed", 3}});
}

TEST_CASE("metrics: own cost of probing is told with its values: throttled, own delay, fewest free buffers",
          "[agent]") {
  MetricsPage page;
  EngineReport first = report(40);
  first.stats.throttled = 7;
  first.stats.own_delay_max_ns = 250 * kMicrosecond;
  first.stats.responder_low_water = 12;
  EngineReport udp = report(3);
  udp.spec.device = "eth0";
  page.add({first, udp});
  auto samples = page.samples({});
  const auto value = [&](std::string_view name, const std::string& device) {
    const auto* sample = find(samples, name, device);
    REQUIRE(sample != nullptr);
    return sample->value;
  };
  CHECK(value("weft_probe_throttled_total", "rxe0") == 7);
  CHECK(value("weft_probe_own_delay_seconds", "rxe0") == 250e-6);
  CHECK(value("weft_probe_responder_free_buffers", "rxe0") == 12);
  // What a transport cannot know is left out, not zero.
  CHECK(value("weft_probe_throttled_total", "eth0") == 0);
  CHECK(find(samples, "weft_probe_responder_free_buffers", "eth0") == nullptr);

  // The count adds up; delay and buffers are those of the newest report, better or worse.
  first.stats.throttled = 9;
  first.stats.own_delay_max_ns = 40 * kMicrosecond;
  first.stats.responder_low_water = 3;
  page.add({first});
  samples = page.samples({});
  CHECK(value("weft_probe_throttled_total", "rxe0") == 9);
  CHECK(value("weft_probe_own_delay_seconds", "rxe0") == 40e-6);
  CHECK(value("weft_probe_responder_free_buffers", "rxe0") == 3);
  // Opened anew, the engine counts from zero again.
  first.stats.throttled = 2;
  page.add({first});
  samples = page.samples({});
  CHECK(value("weft_probe_throttled_total", "rxe0") == 11);
}

TEST_CASE("metrics: the page of each agent says whose it is, so that two never fall into one series (rpingmesh PR 44)",
          "[agent]") {
  PageInput first, second;
  first.host = "h1";
  second.host = "h2";
  const MetricsPage page;
  CHECK(find(page.samples(first), "weft_agent_info", "h1"));
  CHECK_FALSE(find(page.samples(second), "weft_agent_info", "h1"));
}

TEST_CASE("metrics: nothing sent is counters at zero and no ratio, so that no loss is invented (rpingmesh PR 44)",
          "[agent]") {
  MetricsPage page;
  page.add({report(0)});
  const auto samples = page.samples({});
  CHECK(find(samples, "weft_probe_lost_total")->value == 0);
  CHECK_FALSE(find(samples, "weft_probe_round_trip_seconds"));
  for (const model::MetricSample& sample : samples) {
    CHECK(sample.name.find("loss") == std::string_view::npos);
    CHECK((sample.name.find("ratio") == std::string_view::npos || sample.name == "weft_host_cpu_pressure_ratio"));
  }
}

TEST_CASE("metrics: counters go on when an engine is opened anew", "[agent]") {
  MetricsPage page;
  page.add({report(100)});
  page.add({});
  CHECK(find(page.samples({}), "weft_probe_endpoint_open")->value == 0);
  CHECK(find(page.samples({}), "weft_probe_own_delay_seconds") == nullptr);
  page.add({report(7)});
  CHECK(find(page.samples({}), "weft_probe_sent_total")->value == 107);
  CHECK(find(page.samples({}), "weft_probe_endpoint_open")->value == 1);
}

TEST_CASE("metrics: a peer that is no longer probed leaves the page", "[agent]") {
  MetricsPage page;
  EngineReport first = report(1);
  first.peers = {peer("h3/rxe0")};
  first.windows = {window("h3/rxe0", kMillisecond)};
  page.add({first});
  CHECK(find(page.samples({}), "weft_probe_round_trip_seconds") != nullptr);
  CHECK(find(page.samples({}), "weft_peer_sent_total") != nullptr);
  page.add({report(2)});
  CHECK(find(page.samples({}), "weft_probe_round_trip_seconds") == nullptr);
  CHECK(find(page.samples({}), "weft_peer_sent_total") == nullptr);
}

TEST_CASE("metrics: trace packets are counted on when the tracer is made anew", "[agent]") {
  MetricsPage page;
  probes::TraceStats stats;
  stats.sent = 10;
  stats.answered = 7;
  stats.rejected[static_cast<std::size_t>(probes::IcmpReject::Truncated)] = 2;
  page.add_traces(stats);
  stats.sent = 4;
  stats.answered = 4;
  page.add_traces(stats);
  const auto samples = page.samples(PageInput{});
  CHECK(find(samples, "weft_trace_sent_total")->value == 14);
  CHECK(find(samples, "weft_trace_answered_total")->value == 11);
  const std::string truncated(probes::to_string(probes::IcmpReject::Truncated));
  REQUIRE(find(samples, "weft_trace_rejected_total", truncated));
  CHECK(find(samples, "weft_trace_rejected_total", truncated)->value == 2);
}
