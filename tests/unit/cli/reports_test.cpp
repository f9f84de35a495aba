#include <nlohmann/json.hpp>

#include "cli/findings_report.h"
#include "cli/local_agent.h"
#include "cli/mesh_direct.h"
#include "cli/mesh_report.h"
#include "cli/status_report.h"
#include "cli/trace_report.h"
#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::cli;

namespace {

constexpr Nanos kNow = 1'700'000'000 * kSecond;

model::Finding finding(model::FindingKind kind = model::FindingKind::LinkLoss, const char* subject = "link:s1>l2") {
  model::Finding f;
  f.id = "17";
  f.kind = kind;
  f.subject = subject;
  f.severity = model::finding_info(kind).severity;
  f.since_ns = kNow - 125 * kSecond;
  f.raised_ns = f.since_ns + 2 * kSecond;
  f.last_seen_ns = kNow - kSecond;
  f.confidence = 0.97;
  f.summary = "18 % of the probes that cross it from s1 to l2 are lost";
  f.evidence = {{"probes_lost", 72, "probes", 20}, {"loss", 0.18, "ratio", 20}, {"rtt", 0.0012, "seconds", 20}};
  f.victims = {"host:h3", "host:h4"};
  f.not_checked = {"switch counters"};
  return f;
}

localise::MeshCell cell(const char* from, const char* to, const char* state, std::uint64_t lost = 0) {
  localise::MeshCell c;
  c.from = from;
  c.to = to;
  c.sent = 100;
  c.lost = lost;
  c.ecn_capable = 90;
  c.rtt_median_ns = 20'000;
  c.rtt_p90_ns = 25'000;
  c.paths = 8;
  c.state = state;
  return c;
}

probes::TraceView view(std::uint16_t port, std::vector<std::string> hops, bool complete = true) {
  probes::TraceView v;
  v.trace.source_port = port;
  v.trace.complete = complete;
  v.finished = true;
  std::uint8_t ttl = 0;
  for (const auto& address : hops) {
    model::TraceHop hop;
    hop.ttl = ++ttl;
    hop.address = address;
    v.trace.hops.push_back(hop);
    probes::TraceHopView seen;
    seen.address = address;
    seen.asked = address.empty() ? 3 : 1;
    if (!address.empty()) seen.rtt_ns = 400'000;
    v.hops.push_back(seen);
  }
  return v;
}

RouteNames names() {
  auto topology = localise::Topology::parse(R"(
fabric = "t"
[[switch]]
name = "l1"
tier = "leaf"
[[switch]]
name = "s1"
tier = "spine"
[[host]]
name = "h1"
[[link]]
a = "h1/rxe0"
b = "l1"
a_addresses = ["10.0.1.2"]
b_addresses = ["10.0.1.1"]
[[link]]
a = "l1"
b = "s1"
a_addresses = ["10.1.11.1"]
b_addresses = ["10.1.11.2"]
)",
                                            "t.toml");
  REQUIRE(topology);
  return RouteNames(*topology);
}

// Time and what.
std::string start_of_change(const model::Finding& f, const char* what, Nanos now) {
  const std::string line = finding_change(f, what, now, Paint(false));
  return line.substr(0, line.find("  link_loss"));
}

}  // namespace

TEST_CASE("a finding at 2 a.m.: what, where, since, how sure, evidence, who is hit, not checked, golden", "[cli]") {
  const std::string text = finding_block(finding(), kNow, 100, Paint(false));
  CHECK_THAT(text, ContainsSubstring("CRITICAL  link_loss  link:s1>l2  [17]\n"));
  CHECK_THAT(text, ContainsSubstring("  what         18 % of the probes that cross it from s1 to l2 are lost\n"));
  CHECK_THAT(text, ContainsSubstring("  since        2 min 5 s ago (22:11:15 UTC)\n"));
  CHECK_THAT(text, ContainsSubstring("  confidence   97 %\n"));
  CHECK_THAT(text, ContainsSubstring("  evidence     probes lost 72 probes, loss 18 %, rtt 1.20 ms (over 20 s)\n"));
  CHECK_THAT(text, ContainsSubstring("  hit          host:h3, host:h4\n"));
  CHECK_THAT(text, ContainsSubstring("  not checked  switch counters\n"));
  CHECK_THAT(text, ContainsSubstring("  runbook      " + model::runbook_path(model::FindingKind::LinkLoss)));
}

TEST_CASE("findings: worst first, and only what matters unless asked", "[cli]") {
  auto info = finding(model::FindingKind::CannotMeasure, "host:h2");
  auto warning = finding(model::FindingKind::LinkEcn, "link:l1>s1");
  auto cleared = finding();
  cleared.until_ns = kNow - kSecond;
  auto taken = finding(model::FindingKind::LinkDown, "link:h3>l2");
  taken.acknowledged = true;
  const std::vector<model::Finding> all{info, warning, cleared, taken, finding()};
  const auto shown = select_findings(all, {});
  REQUIRE(shown.size() == 3);
  CHECK(shown[0].kind == model::FindingKind::LinkLoss);
  CHECK(shown[1].kind == model::FindingKind::LinkEcn);
  CHECK(shown[2].kind == model::FindingKind::CannotMeasure);
  FindingFilter filter;
  filter.all = true;
  CHECK(select_findings(all, filter).size() == 5);
  filter.kind = "link_ecn";
  CHECK(select_findings(all, filter).size() == 1);
  filter.kind.clear();
  filter.subject = "h3";
  CHECK(select_findings(all, filter).size() == 1);
  filter.subject.clear();
  filter.since_ns = kNow;
  CHECK(select_findings(all, filter).empty());
  CHECK(counts(finding()));
  CHECK_FALSE(counts(info));
  CHECK_FALSE(counts(cleared));
  CHECK_FALSE(counts(taken));
}

TEST_CASE("a finding that lost its numbers prints no nan", "[cli]") {
  auto f = finding();
  f.evidence = {{"loss", std::nan(""), "ratio", 20}, {"odd", INFINITY, "", 0}};
  f.confidence = std::nan("");
  const std::string text = finding_block(f, kNow, 100, Paint(false));
  CHECK(text.find("nan") == std::string::npos);
  CHECK(text.find("inf") == std::string::npos);
}

TEST_CASE("a change is one line, with the time of the change and not that of the look", "[cli]") {
  CHECK(finding_change(finding(), "raised", kNow, Paint(false)) ==
        "22:11:17  raised  link_loss  link:s1>l2  18 % of the probes that cross it from s1 to l2 are lost");
  auto f = finding();
  CHECK(start_of_change(f, "acknowledged", kNow) == "22:13:20  acknowledged");
  f.until_ns = kNow;
  CHECK(finding_change(f, "cleared", kNow + 60 * kSecond, Paint(false)) ==
        "22:13:20  cleared  link_loss  link:s1>l2  after 2 min 5 s");
  f.raised_ns = 0;  // not told
  CHECK(start_of_change(f, "raised", kNow) == "22:13:20  raised");
}

TEST_CASE("a change of another day has its date", "[cli]") {
  auto f = finding();
  const Nanos midnight = 1'700'006'400 * kSecond;
  f.raised_ns = midnight - kSecond;
  CHECK(start_of_change(f, "raised", midnight) == "2023-11-14 23:59:59  raised");
  CHECK(start_of_change(f, "raised", midnight - 1) == "23:59:59  raised");
}

TEST_CASE("a mesh shows a matrix and the worst pairs first, golden", "[cli]") {
  const std::vector<localise::MeshCell> cells{cell("h1/rxe0", "h2/rxe0", "ok"), cell("h2/rxe0", "h1/rxe0", "loss", 20),
                                              cell("h1/rxe0", "h3/rxe0", "silent", 100)};
  CHECK(mesh_report(cells, 100, 30, Paint(false)) ==
        "from \\ to  h1/rxe0  h2/rxe0  h3/rxe0\n"
        "h1/rxe0             20.0 us   silent\n"
        "h2/rxe0       20 %                 -\n"
        "\n"
        "from     to       state    lost   of   CE   median      p90  paths\n"
        "h1/rxe0  h3/rxe0  silent  100 %  100  0 %  20.0 us  25.0 us      8\n"
        "h2/rxe0  h1/rxe0  loss     20 %  100  0 %  20.0 us  25.0 us      8\n"
        "h1/rxe0  h2/rxe0  ok        0 %  100  0 %  20.0 us  25.0 us      8\n");
  CHECK(cell_counts(cells[1]));
  CHECK_FALSE(cell_counts(cells[0]));
}

TEST_CASE("a mesh too wide for the screen leaves the matrix out and long ones are cut", "[cli]") {
  std::vector<localise::MeshCell> cells;
  std::vector<std::string> hosts;
  for (int i = 0; i < 20; ++i) hosts.push_back("host" + std::to_string(i) + "/rxe0");
  for (const auto& a : hosts) {
    for (const auto& b : hosts) {
      if (a != b) cells.push_back(cell(a.c_str(), b.c_str(), "ok"));
    }
  }
  const std::string text = mesh_report(cells, 80, 30, Paint(false));
  CHECK(text.find("from \\ to") == std::string::npos);
  CHECK_THAT(text, ContainsSubstring("and 375 better pairs"));
}

TEST_CASE("a pair that did not answer is silent, unmeasured is unknown, never ok", "[cli]") {
  auto c = cell("a", "b", "");
  CHECK(cell_state(c, true, false) == "ok");
  CHECK(cell_state(c, true, true) == "unknown");
  CHECK(cell_state(c, false, false) == "silent");
  c.lost = 1;
  CHECK(cell_state(c, true, false) == "loss");
  c.lost = c.sent = 0;
  CHECK(cell_state(c, true, false) == "unknown");
}

TEST_CASE("mesh from here: loss is 1, else a host that could not be measured 3, whatever the others are", "[cli]") {
  const auto ok = cell("h1/rxe0", "h2/rxe0", "ok"), lossy = cell("h1/rxe0", "h3/rxe0", "loss", 20);
  auto silent = cell("h1/rxe0", "h4", "silent");
  silent.sent = 0;
  CHECK(direct_mesh_exit({ok}, false) == ExitCode::Healthy);
  CHECK(direct_mesh_exit({ok, silent}, false) == ExitCode::CannotMeasure);
  CHECK(direct_mesh_exit({lossy, silent}, false) == ExitCode::Findings);
  CHECK(direct_mesh_exit({ok, silent}, true) == ExitCode::Findings);
  CHECK(direct_mesh_exit({silent}, false) == ExitCode::CannotMeasure);
  const auto unsure = cell("h1/rxe0", "h4/rxe0", "unknown");
  CHECK(direct_mesh_exit({ok, unsure}, false) == ExitCode::CannotMeasure);
}

TEST_CASE("a trace by port and hop, with names, shared and silent hops, golden", "[cli]") {
  TraceReport r;
  r.host = "h3";
  r.address = "10.0.3.2";
  r.local = "10.0.1.2";
  r.finished = true;
  r.views = {view(49152, {"10.0.1.1", "10.1.11.2", "10.9.9.9"}), view(49153, {"10.0.1.1", "", "10.9.9.9"}, false)};
  r.views[1].hops[2].shared = true;
  r.views[1].hops[2].rtt_ns.reset();
  CHECK(trace_report(r, names(), Paint(false)) ==
        "h3 (10.0.3.2) from 10.0.1.2\n"
        "  port   hop 1  hop 2  hop 3\n"
        "  49152  l1     s1     10.9.9.9   whole way\n"
        "  49153  l1     ?      10.9.9.9~  silent hops\n"
        "\n"
        "  router        hop  ports  fastest answer\n"
        "  l1 10.0.1.1   1        2          400 us\n"
        "  s1 10.1.11.2  2        1          400 us\n"
        "  10.9.9.9      3        2          400 us\n"
        "  ~ as sibling ports saw it, not asked for this port\n"
        "  ? silent: unknown, not lost; many routers answer little or never\n");
  CHECK(trace_exit(r) == ExitCode::Healthy);
  const auto json = trace_json(r, names());
  CHECK(json["paths"][0]["hops"][1]["name"] == "s1");
  CHECK(json["paths"][1]["hops"][1]["address"].is_null());
  CHECK(json["paths"][1]["hops"][2]["from_siblings"] == true);
}

TEST_CASE("a trace that nobody answered is never exit 0 (mtr 532)", "[cli]") {
  TraceReport r;
  r.host = r.address = "10.0.3.2";
  r.finished = true;
  r.views = {view(49152, {"", ""}, false)};
  CHECK(trace_exit(r) == ExitCode::CannotMeasure);
  CHECK_THAT(trace_report(r, RouteNames(), Paint(false)), ContainsSubstring("nothing answered"));
  r.finished = false;
  CHECK(trace_exit(r) == ExitCode::Deadline);
  r.views = {view(49152, {}, true)};
  r.finished = true;
  CHECK(trace_exit(r) == ExitCode::Healthy);
}

TEST_CASE("status: ports, the GID in use with its reason, what cannot be measured and how to get it", "[cli]") {
  StatusReport r;
  r.inventory.host = "h1";
  r.inventory.kernel = "6.1.0";
  model::RdmaDevice device;
  device.name = "rxe0";
  device.driver = "rxe";
  model::RdmaPort port;
  port.state = model::PortState::Active;
  port.link_layer = model::LinkLayer::Ethernet;
  port.rate_bits_per_s = 100'000'000'000;
  port.active_mtu_bytes = 1024;
  port.netdev = "eth0";
  port.gids = {{0, model::Gid::parse("fe80::1").value(), model::GidType::RoceV2, "eth0"},
               {1, model::Gid::parse("10.0.1.2").value(), model::GidType::RoceV2, "eth0"}};
  device.ports = {port};
  r.inventory.devices = {device};
  r.gid_by_port["rxe0/1"] = {1, "index 1: the only RoCEv2 IPv4 address"};
  r.timestamps_by_port["rxe0/1"] = {model::TimestampRung::Software, ""};
  r.agent = {false, "not running"};
  r.limitations = {{"rnic:h1/rxe0", "no hardware timestamps", "a NIC that has them"}};
  const std::string text = status_report(r, 100, Paint(false));
  CHECK_THAT(text, ContainsSubstring("h1  Linux 6.1.0  weftd: not running\n"));
  CHECK_THAT(text, ContainsSubstring("rxe0"));
  CHECK_THAT(text, ContainsSubstring("100 Gb/s"));
  CHECK_THAT(text, ContainsSubstring("10.0.1.2") && ContainsSubstring("< probes use this"));
  CHECK_THAT(text, ContainsSubstring("rxe0/1: index 1: the only RoCEv2 IPv4 address"));
  CHECK_THAT(text, ContainsSubstring("rnic:h1/rxe0: no hardware timestamps\n    to get it: a NIC that has them\n"));
  CHECK(status_exit(r) == ExitCode::Healthy);
  const auto json = status_json(r);
  CHECK(json["devices"][0]["ports"][0]["gid_used"] == 1);
  CHECK_THAT(text, ContainsSubstring("rxe0/1: timestamps by weft itself (software)"));
  CHECK(json["devices"][0]["ports"][0]["timestamps"] == "software");
  r.timestamps_by_port["rxe0/1"] = {std::nullopt, "rxe0: no permission"};
  CHECK_THAT(status_report(r, 100, Paint(false)), ContainsSubstring("rxe0/1: timestamps unknown: rxe0: no permission"));
  CHECK(status_json(r)["devices"][0]["ports"][0]["timestamps"].is_null());
  CHECK(status_json(r)["devices"][0]["ports"][0]["timestamps_why"] == "rxe0: no permission");
  r.inventory.devices[0].ports[0].state = model::PortState::Down;
  CHECK(status_exit(r) == ExitCode::Findings);
}

TEST_CASE("what answers on weftd's port is believed only when it speaks of weft", "[cli]") {
  CHECK_FALSE(agent_state_of("<html>hello</html>").answers);
  CHECK_FALSE(agent_state_of("node_cpu_seconds_total{cpu=\"0\"} 5\n").answers);
  const auto state =
      agent_state_of("# HELP x\nweft_probe_sent_total{device=\"a\"} 5\nweft_probe_sent_total{device=\"b\"} 7\n");
  CHECK(state.answers);
  CHECK_THAT(state.text, ContainsSubstring("12 probes sent"));
  CHECK_FALSE(agent_state_of("weft_x NaN-garbage\n").answers);
}

TEST_CASE("a way of silent hops alone is not known; one router, or none on the whole way, is", "[cli]") {
  model::PathTrace trace;
  CHECK_FALSE(names().path(trace).known);
  trace.complete = true;
  CHECK(names().path(trace).known);
  trace.hops.resize(2);
  CHECK(names().path(trace).words == "? > ?");
  CHECK_FALSE(names().path(trace).known);
  trace.hops[0].address = "10.0.1.1";
  CHECK(names().path(trace).words == "l1 > ?");
  CHECK(names().path(trace).known);
}

TEST_CASE("links without probes enough: three by name, and how many more there are", "[cli]") {
  client::Status status;
  status.links = 4;
  status.uncovered = {"link:a>b", "link:b>a", "link:c>b", "link:b>c"};
  CHECK(blind_spots(status) == std::vector<std::string>{"0 of 4 links have probes enough, not link:a>b, link:b>a, "
                                                        "link:c>b and 1 more"});
  status.uncovered.pop_back();  // the aggregator's list may be cut
  CHECK_THAT(blind_spots(status).front(), ContainsSubstring("link:c>b and 1 more"));
  status.links_covered = 1;
  CHECK(blind_spots(status).front() == "1 of 4 links have probes enough, not link:a>b, link:b>a, link:c>b");
  status.links_covered = 4;
  CHECK(blind_spots(status) == std::vector<std::string>{"the aggregator has not enough evidence yet"});
}
