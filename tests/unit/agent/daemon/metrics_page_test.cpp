#include "agent/daemon/metrics_page.h"

#include <algorithm>
#include <map>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::agent;

namespace {

EngineReport report(std::uint64_t sent) {
  EngineReport out;
  out.spec.device = "rxe0";
  out.stats.sent = sent;
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

TEST_CASE("metrics: every sample is in the catalogue with its labels", "[agent]") {
  MetricsPage page;
  EngineReport full = report(5);
  full.stats.rejected = {{"bad MAC", 2}};
  full.stats.responder_low_water = 10;
  full.peers = {{"h3/rxe0", probes::PeerState::Ready, "", 1, "rdma", "", {}}};
  model::PathWindow window;
  window.key.to = "h3/rxe0";
  window.rtt_median_ns = kMillisecond;
  full.windows = {window};
  page.add({full});
  PageInput input;
  input.health = model::HostHealth{};
  input.health->cpu_pressure_some = 0.5;
  input.inventory.uevents = input.inventory.links = InventoryCounts::Messages{1, 2, 3};
  const auto samples = page.samples(input);
  for (const model::MetricSample& sample : samples) {
    const model::MetricInfo* info = model::find_metric(sample.name);
    INFO(sample.name);
    REQUIRE(info != nullptr);
    std::string labels;
    for (const auto& [key, value] : sample.labels) labels += (labels.empty() ? "" : ",") + key;
    CHECK(labels == info->labels);
    CHECK((info->program == "weftd" || info->program == "both"));
  }
  CHECK(find(samples, "weft_probe_round_trip_seconds", "h3/rxe0")->value == 1e-3);
  CHECK(find(samples, "weft_probe_rejected_total", "bad MAC")->value == 2);
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
    if (sample.name.rfind("weft_inventory_", 0) != 0) continue;
    std::string key = std::string(sample.name);
    for (const auto& [label, value] : sample.labels) key += " " + value;
    told[key] = sample.value;
  }
  CHECK(told == std::map<std::string, double>{{"weft_inventory_messages_total uevent received", 50},
                                              {"weft_inventory_messages_total uevent malformed", 4},
                                              {"weft_inventory_messages_total uevent overrun", 2},
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
  first.peers = {{"h3/rxe0", probes::PeerState::Ready, "", 1, "rdma", "", {}}};
  model::PathWindow window;
  window.key.to = "h3/rxe0";
  window.rtt_median_ns = kMillisecond;
  first.windows = {window};
  page.add({first});
  CHECK(find(page.samples({}), "weft_probe_round_trip_seconds") != nullptr);
  page.add({report(2)});
  CHECK(find(page.samples({}), "weft_probe_round_trip_seconds") == nullptr);
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
