#include "aggregator/export/api_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/unit/catch.h"

using nlohmann::json;
using weft::kSecond;
using weft::Nanos;
using namespace weft::aggregator;
namespace model = weft::model;

namespace {

constexpr Nanos kNow = 1'700'000'000 * kSecond;

model::Finding finding(const std::string& id, const std::string& subject, Nanos raised, std::optional<Nanos> until) {
  model::Finding out;
  out.id = id;
  out.kind = model::FindingKind::LinkLoss;
  out.severity = model::Severity::Critical;
  out.subject = subject;
  out.since_ns = raised - 2 * kSecond;
  out.raised_ns = raised;
  out.last_seen_ns = raised;
  out.until_ns = until;
  out.confidence = 0.9;
  out.evidence = {{"lost", NAN, "probes", 20}};
  return out;
}

Snapshot snapshot() {
  Snapshot out;
  out.fabric = "lab";
  out.wall_ns = kNow;
  out.views = std::make_shared<Snapshot::Views>();
  out.active = {finding("f1", "link:s1>l2", kNow - 20 * kSecond, std::nullopt),
                finding("f2", "link:s2>l2", kNow - 10 * kSecond, std::nullopt)};
  out.cleared = std::make_shared<std::vector<model::Finding>>(
      std::vector{finding("f0", "link:s1>l1", kNow - 900 * kSecond, kNow - 600 * kSecond)});
  return out;
}

std::vector<std::string> ids(const std::multimap<std::string, std::string>& parameters) {
  const auto query = parse_findings_query(parameters, kNow);
  REQUIRE(query);
  std::vector<std::string> out;
  const json document = json::parse(findings_json(snapshot(), *query));
  for (const auto& item : document["findings"]) out.push_back(item["id"]);
  return out;
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("api: parameters that are unknown, repeated or out of range are refused with what would do", "[aggregator]") {
  for (const auto& [name, value] : std::multimap<std::string, std::string>{{"state", "open"},
                                                                           {"since", "yesterday"},
                                                                           {"since", "-5m"},
                                                                           {"kind", "nonsense"},
                                                                           {"subject", ""},
                                                                           {"limit", "0"},
                                                                           {"limit", "10001"},
                                                                           {"limit", "9x"},
                                                                           {"colour", "red"}}) {
    CAPTURE(name, value);
    CHECK_FALSE(parse_findings_query({{name, value}}, kNow));
  }
  CHECK_FALSE(parse_findings_query({{"state", "all"}, {"state", "active"}}, kNow));
  CHECK_FALSE(parse_limit({{"state", "all"}}));
  CHECK_FALSE(parse_limit({{"limit", "1"}, {"limit", "2"}}));
}

TEST_CASE("api: findings are chosen by state, time, kind, subject and number", "[aggregator]") {
  CHECK(ids({}) == Ids{"f2", "f1", "f0"});
  CHECK(ids({{"state", "active"}}) == Ids{"f2", "f1"});
  CHECK(ids({{"state", "cleared"}}) == Ids{"f0"});
  CHECK(ids({{"since", "5m"}}) == Ids{"f2", "f1"});
  CHECK(ids({{"since", "1h"}}) == Ids{"f2", "f1", "f0"});
  CHECK(ids({{"since", weft::format_rfc3339(kNow - 700 * kSecond)}}) == Ids{"f2", "f1", "f0"});
  CHECK(ids({{"kind", "link_ecn"}}).empty());
  CHECK(ids({{"subject", "link:s1>l2"}}) == Ids{"f1"});
  CHECK(ids({{"subject", "link:s1*"}}) == Ids{"f1", "f0"});
  CHECK(ids({{"limit", "1"}}) == Ids{"f2"});
}

TEST_CASE("api: a finding has every field of the contract, and what is no number is null", "[aggregator]") {
  const auto body = finding_json(snapshot(), "f0");
  REQUIRE(body);
  const json document = json::parse(*body);
  CHECK(document["schema"] == 1);
  const json& item = document["finding"];
  for (const char* key :
       {"id", "kind", "subject", "severity", "state", "since", "until", "first_evidence_at", "raised_at", "confidence",
        "summary", "evidence", "victims", "not_checked", "runbook", "acknowledged"}) {
    CAPTURE(key);
    CHECK(item.contains(key));
  }
  CHECK(item["state"] == "cleared");
  CHECK(item["until"] == weft::format_rfc3339(kNow - 600 * kSecond));
  CHECK(item["evidence"][0]["value"].is_null());
  CHECK(item["runbook"] == "docs/findings.md#link_loss");
  CHECK_FALSE(finding_json(snapshot(), "f9"));
}

TEST_CASE("api: foreign bytes never make a document fail", "[aggregator]") {
  Snapshot s = snapshot();
  s.active[0].summary = "bad \xff\xc0 byte";
  s.store.problem = "\xff";
  CHECK_FALSE(json::parse(findings_json(s, {}), nullptr, false).is_discarded());
  CHECK_FALSE(json::parse(status_json(s, "0.1.0"), nullptr, false).is_discarded());
  CHECK_FALSE(json::parse(problem_json(400, "t", "\xff"), nullptr, false).is_discarded());
}

TEST_CASE("api: status says coverage, agents and whether the store keeps up", "[aggregator]") {
  Snapshot s = snapshot();
  s.coverage.links = 8;
  s.coverage.covered = 7;
  s.coverage.agents_expected = 4;
  s.coverage.agents_reporting = 3;
  s.coverage.uncovered = {"link:s1>l2"};
  s.store.acknowledging = false;
  s.store.problem = "disk full";
  const json document = json::parse(status_json(s, "0.1.0"));
  CHECK(document["fabric"] == "lab");
  CHECK(document["agents"]["expected"] == 4);
  CHECK(document["coverage"]["ready"] == false);
  CHECK(document["coverage"]["uncovered"][0] == "link:s1>l2");
  CHECK(document["store"]["acknowledging"] == false);
  CHECK(document["store"]["problem"] == "disk full");
}

TEST_CASE("api: tables say how many rows there are when they are cut", "[aggregator]") {
  Snapshot s = snapshot();
  auto views = std::make_shared<Snapshot::Views>();
  views->links.resize(3);
  views->mesh.resize(1);
  views->paths.resize(1);
  s.views = views;
  s.hosts.resize(1);
  s.hosts[0].host = "h1";
  const json links = json::parse(links_json(s, 2));
  CHECK(links["links"].size() == 2);
  CHECK(links["total"] == 3);
  CHECK(json::parse(mesh_json(s, 9))["mesh"][0]["rtt_median_ns"].is_null());
  CHECK(json::parse(paths_json(s, 9))["paths"].size() == 1);
  const json hosts = json::parse(hosts_json(s, 9));
  CHECK(hosts["hosts"][0]["health"].is_null());
  CHECK(hosts["hosts"][0]["last_contact"].is_null());
}

TEST_CASE("api: a mesh cell, a path and a link carry every number they were given, each under its own name",
          "[aggregator]") {
  Snapshot s = snapshot();
  auto views = std::make_shared<Snapshot::Views>();
  views->mesh.push_back({"h1/rxe0", "h3/rxe0", "l1", "", 200, 13, 5, 187, 1'500'000, 2'500'000, 4, "loss"});
  views->paths.push_back({{"h1/rxe0", "h3/rxe0", 49'152, 57'001},
                          {"h1/rxe0", "l1", "s1", "l2", "h3/rxe0"},
                          {"h3/rxe0", "l2", "s2", "l1", "h1/rxe0"},
                          50,
                          6,
                          2,
                          1,
                          4,
                          3,
                          41,
                          39,
                          1'600'000});
  views->paths.push_back({{"h3/rxe0", "h1/rxe0", 1, 2}, {}, {}, 0, 0, 0, 0, 0, 0, 0, 0, std::nullopt});
  views->links.push_back({"s1", "l2", 11.5, 230, 17, 6, 210, true});
  views->links.push_back({"l2", "s1", NAN, 0, 0, 0, 0, false});
  s.views = views;

  const json mesh = json::parse(mesh_json(s, 9));
  CHECK(mesh["schema"] == 1);
  CHECK(mesh["at"] == weft::format_rfc3339(kNow));
  CHECK(mesh["total"] == 1);
  CHECK(mesh["mesh"] == json::parse(R"([{"from": "h1/rxe0", "to": "h3/rxe0", "sent": 200, "lost": 13, "ce": 5,
      "ecn_capable": 187, "rtt_median_ns": 1500000, "rtt_p90_ns": 2500000, "paths": 4, "state": "loss"}])"));

  const json paths = json::parse(paths_json(s, 9));
  CHECK(paths["total"] == 2);
  CHECK(paths["paths"][0] == json::parse(R"({"from": "h1/rxe0", "to": "h3/rxe0", "forward_port": 49152,
      "return_port": 57001, "forward": ["h1/rxe0", "l1", "s1", "l2", "h3/rxe0"],
      "back": ["h3/rxe0", "l2", "s2", "l1", "h1/rxe0"], "sent": 50, "lost_forward": 6, "lost_back": 2,
      "lost_unknown": 1, "ce_forward": 4, "ce_back": 3, "ecn_forward": 41, "ecn_back": 39,
      "rtt_median_ns": 1600000})"));
  CHECK(paths["paths"][1]["forward"] == json::array());
  CHECK(paths["paths"][1]["rtt_median_ns"].is_null());

  const json links = json::parse(links_json(s, 9));
  CHECK(links["links"][0] == json::parse(R"({"from": "s1", "to": "l2", "probes_per_s": 11.5, "crossed": 230,
      "lost": 17, "ce": 6, "ecn_capable": 210, "covered": true})"));
  CHECK(links["links"][1]["probes_per_s"].is_null());
  CHECK(links["links"][1]["covered"] == false);
}

TEST_CASE("api: a host is told with its devices, endpoints, limits and health, and when it was heard", "[aggregator]") {
  Snapshot s = snapshot();
  s.monotonic_ns = 500 * kSecond;
  weft::localise::HostView host;
  host.host = "h1";
  host.state = "reporting";
  host.rail = "3";
  host.last_contact_ns = 497 * kSecond;
  host.inventory.emplace();
  host.inventory->host = "h1";
  host.inventory->kernel = "6.1.0";
  host.inventory->version = "0.1.0";
  model::RdmaPort port;
  port.number = 2;
  port.state = model::PortState::Active;
  port.link_layer = model::LinkLayer::Ethernet;
  port.rate_bits_per_s = 100'000'000'000;
  port.netdev = "eth1";
  host.inventory->devices = {{"rxe0", "rxe", "", "", {port}}};
  host.inventory->endpoints = {{"rxe0", "rdma", "10.0.1.2", 47'910, 1, {49'152}, {57'001}}};
  host.inventory->limitations = {{"rnic:h1/rxe1", "no permission", "add the group rdma"}};
  host.health.emplace();
  host.health->window_ns = kSecond;
  host.health->max_gap_ns = 7'000'000;
  host.health->total_gap_ns = 9'000'000;
  host.health->cpu_pressure_some = 0.25;
  host.health->responder_low_water = 31;
  host.health->probes_throttled = 4;
  s.hosts = {host};

  const json hosts = json::parse(hosts_json(s, 9));
  CHECK(hosts["total"] == 1);
  json expected = json::parse(
      R"({"host": "h1", "state": "reporting", "rail": "3", "pod": null, "kernel": "6.1.0", "version": "0.1.0",
      "devices": [{"name": "rxe0", "driver": "rxe", "ports": [{"number": 2, "rate_bits_per_s": 100000000000,
                   "netdev": "eth1"}]}],
      "endpoints": [{"device": "rxe0", "transport": "rdma", "address": "10.0.1.2", "hello_port": 47910}],
      "limitations": [{"subject": "rnic:h1/rxe1", "why": "no permission", "how": "add the group rdma"}],
      "health": {"max_gap_ns": 7000000, "total_gap_ns": 9000000, "window_ns": 1000000000, "cpu_pressure_some": 0.25,
                 "responder_low_water": 31, "probes_throttled": 4}})");
  expected["last_contact"] = weft::format_rfc3339(kNow - 3 * kSecond);
  expected["devices"][0]["ports"][0]["state"] = model::to_string(model::PortState::Active);
  expected["devices"][0]["ports"][0]["link_layer"] = model::to_string(model::LinkLayer::Ethernet);
  CHECK(hosts["hosts"][0] == expected);
}
