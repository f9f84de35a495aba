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
  if (!until) out.victims = {"pair:h1>h3", "rank:train-7/12"};
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
  CHECK((document["next"].is_null() || document["total"] > query->page.limit));
  for (const auto& item : document["findings"]) out.push_back(item["id"]);
  return out;
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("api: parameters that are unknown, repeated or out of range are refused by their name with what would do",
          "[aggregator]") {
  for (const auto& [name, value] : std::multimap<std::string, std::string>{{"state", "open"},
                                                                           {"since", "yesterday"},
                                                                           {"since", "-5m"},
                                                                           {"until", "5"},
                                                                           {"kind", "nonsense"},
                                                                           {"kind", "link_loss,"},
                                                                           {"severity", "fatal"},
                                                                           {"subject", ""},
                                                                           {"subject", std::string(801, 'x')},
                                                                           {"subject", "*********"},
                                                                           {"job", ""},
                                                                           {"limit", "0"},
                                                                           {"limit", "10001"},
                                                                           {"limit", "9x"},
                                                                           {"cursor", "xyz"},
                                                                           {"cursor", "3"},
                                                                           {"cursor", "3a"},
                                                                           {"cursor", "303a3a"},
                                                                           {"colour", "red"}}) {
    CAPTURE(name, value);
    const auto query = parse_findings_query({{name, value}}, kNow);
    REQUIRE_FALSE(query);
    CHECK(query.error().name == name);
    CHECK_FALSE(query.error().detail.empty());
  }
  CHECK(parse_findings_query({{"state", "all"}, {"state", "active"}}, kNow).error().name == "state");
  CHECK(parse_findings_query({{"since", "1m"}, {"until", "5m"}}, kNow).error().name == "until");
  CHECK(parse_page({{"state", "all"}}).error().name == "state");
  CHECK(parse_page({{"limit", "1"}, {"limit", "2"}}).error().name == "limit");
  CHECK(parse_mesh_query({{"group", "rack"}}).error().name == "group");
  CHECK(parse_hosts_query({{"detail", "all"}}).error().name == "detail");
  CHECK(refuse_any({{"limit", "1"}})->name == "limit");
}

TEST_CASE("api: a pattern's stars stand for anything, all else for itself", "[aggregator]") {
  for (const char* pattern : {"*", "link:*", "*>l2", "link:s1>l2", "l*:s*>*2", "**l2"}) {
    CAPTURE(pattern);
    CHECK(matches_pattern(pattern, "link:s1>l2"));
  }
  for (const char* pattern : {"", "link", "*l3", "link:s?>l2", "*x*", "link:s1>l2*2"}) {
    CAPTURE(pattern);
    CHECK_FALSE(matches_pattern(pattern, "link:s1>l2"));
  }
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
  CHECK(ids({{"subject", "*l1"}}) == Ids{"f0"});
  CHECK(ids({{"limit", "1"}}) == Ids{"f2"});
  CHECK(ids({{"until", "11m"}}) == Ids{"f0"});
  CHECK(ids({{"kind", "link_ecn,link_loss"}, {"until", "11m"}}) == Ids{"f0"});
  CHECK(ids({{"severity", "info,warning"}}).empty());
  CHECK(ids({{"severity", "critical"}}) == Ids{"f2", "f1", "f0"});
  CHECK(ids({{"job", "train-7"}}) == Ids{"f2", "f1"});
  CHECK(ids({{"job", "train-*"}, {"limit", "1"}}) == Ids{"f2"});
  CHECK(ids({{"job", "train"}}).empty());
}

TEST_CASE("api: a long list is read page by page, whatever moves meanwhile", "[aggregator]") {
  Snapshot s = snapshot();
  const auto page_after = [&](const std::string& next) {
    const std::string cursor = next.substr(next.find("cursor=") + 7);
    auto query = parse_findings_query({{"limit", "1"}, {"cursor", cursor}}, kNow);
    REQUIRE(query);
    query->page.base = "/api/v1/findings?limit=1&";
    return json::parse(findings_json(s, *query));
  };
  auto first = parse_findings_query({{"limit", "1"}}, kNow);
  first->page.base = "/api/v1/findings?limit=1&";
  const json one = json::parse(findings_json(s, *first));
  CHECK(one["findings"][0]["id"] == "f2");
  CHECK(one["total"] == 3);
  REQUIRE(one["next"].get<std::string>().rfind("/api/v1/findings?limit=1&cursor=", 0) == 0);
  // The one that the page ended with is cleared, and another is raised: no page shows less for it.
  s.cleared = std::make_shared<std::vector<model::Finding>>(
      std::vector{finding("f2", "link:s2>l2", kNow - 10 * kSecond, kNow), s.cleared->front()});
  s.active = {s.active[0], finding("f3", "link:s2>l2", kNow, std::nullopt)};
  const json two = page_after(one["next"]);
  CHECK(two["findings"][0]["id"] == "f1");
  const json three = page_after(two["next"]);
  CHECK(three["findings"][0]["id"] == "f2");
  const json four = page_after(three["next"]);
  CHECK(four["findings"][0]["id"] == "f0");
  CHECK(four["next"].is_null());

  auto views = std::make_shared<Snapshot::Views>();
  for (const char* to : {"a", "b", "c", "d"}) views->links.push_back({"s1", to});
  s.views = views;
  const auto links_after = [&](const json& next) {
    Page page{2, std::nullopt, "?"};
    if (next.is_string()) page.after = parse_cursor(next.get<std::string>().substr(8));
    return json::parse(links_json(s, page));
  };
  const json links = links_after(nullptr);
  CHECK(links["links"][1]["to"] == "b");
  // Another comes in before, and the page goes on after its last row; the row itself goes, and it goes on near by.
  auto more = std::make_shared<Snapshot::Views>(*views);
  more->links.insert(more->links.begin(), {"s0", "x"});
  s.views = more;
  CHECK(links_after(links["next"])["links"][0]["to"] == "c");
  auto fewer = std::make_shared<Snapshot::Views>(*views);
  fewer->links.erase(fewer->links.begin() + 1);
  s.views = fewer;
  CHECK(links_after(links["next"])["links"][0]["to"] == "c");
}

TEST_CASE("api: the mesh is cut by ends and folded into leaves", "[aggregator]") {
  Snapshot s = snapshot();
  auto views = std::make_shared<Snapshot::Views>();
  views->mesh.push_back({"h1/rxe0", "h3/rxe0", "l1", "l2", 200, 13, 5, 187, 1'500'000, 2'500'000, 4, "loss"});
  views->mesh.push_back({"h2/rxe0", "h3/rxe0", "l1", "l2", 100, 0, 0, 100, 500'000, 600'000, 4, "ok"});
  views->mesh.push_back({"h3/rxe0", "h1/rxe0", "l2", "l1", 100, 0, 0, 100, std::nullopt, std::nullopt, 4, "unknown"});
  s.views = views;
  const auto asked = [&](const Parameters& parameters) {
    const auto query = parse_mesh_query(parameters);
    REQUIRE(query);
    return json::parse(mesh_json(s, *query))["mesh"];
  };
  CHECK(asked({{"from", "h1/*"}}).size() == 1);
  CHECK(asked({{"from", "l1"}, {"to", "l2"}}).size() == 2);
  CHECK(asked({{"from", "l1"}, {"to", "l1"}}).empty());
  const json leaves = asked({{"group", "leaf"}});
  REQUIRE(leaves.size() == 2);
  CHECK(leaves[0] == json::parse(R"({"from": "l1", "to": "l2", "sent": 300, "lost": 13, "ce": 5, "ecn_capable": 287,
      "rtt_median_ns": 1500000, "rtt_p90_ns": 2500000, "paths": 8, "state": "loss", "pairs": {"loss": 1, "ok": 1}})"));
  CHECK(leaves[1]["state"] == "unknown");
  CHECK(leaves[1]["rtt_median_ns"].is_null());
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
  CHECK_FALSE(json::parse(problem_json({400, "t", "\xff", "\xff", {"\xff"}}), nullptr, false).is_discarded());
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
  const json links = json::parse(links_json(s, {2, {}, ""}));
  CHECK(links["links"].size() == 2);
  CHECK(links["total"] == 3);
  CHECK(json::parse(mesh_json(s, {}))["mesh"][0]["rtt_median_ns"].is_null());
  CHECK(json::parse(paths_json(s, {}))["paths"].size() == 1);
  const json hosts = json::parse(hosts_json(s, {}));
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

  const json mesh = json::parse(mesh_json(s, {}));
  CHECK(mesh["schema"] == 1);
  CHECK(mesh["at"] == weft::format_rfc3339(kNow));
  CHECK(mesh["total"] == 1);
  CHECK(mesh["mesh"] == json::parse(R"([{"from": "h1/rxe0", "to": "h3/rxe0", "sent": 200, "lost": 13, "ce": 5,
      "ecn_capable": 187, "rtt_median_ns": 1500000, "rtt_p90_ns": 2500000, "paths": 4, "state": "loss",
      "from_leaf": "l1", "to_leaf": null}])"));

  const json paths = json::parse(paths_json(s, {}));
  CHECK(paths["total"] == 2);
  CHECK(paths["paths"][0] == json::parse(R"({"from": "h1/rxe0", "to": "h3/rxe0", "forward_port": 49152,
      "return_port": 57001, "forward": ["h1/rxe0", "l1", "s1", "l2", "h3/rxe0"],
      "back": ["h3/rxe0", "l2", "s2", "l1", "h1/rxe0"], "sent": 50, "lost_forward": 6, "lost_back": 2,
      "lost_unknown": 1, "ce_forward": 4, "ce_back": 3, "ecn_forward": 41, "ecn_back": 39,
      "rtt_median_ns": 1600000})"));
  CHECK(paths["paths"][1]["forward"] == json::array());
  CHECK(paths["paths"][1]["rtt_median_ns"].is_null());

  const json links = json::parse(links_json(s, {}));
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

  const json hosts = json::parse(hosts_json(s, {}));
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
  const json alone = json::parse(*host_json(s, "h1"));
  CHECK(alone["host"] == expected);
  CHECK_FALSE(host_json(s, "h2"));
  for (const char* key : {"kernel", "version", "devices", "endpoints", "limitations", "health"}) expected.erase(key);
  CHECK(json::parse(hosts_json(s, *parse_hosts_query({{"detail", "brief"}})))["hosts"][0] == expected);
  CHECK(json::parse(hosts_json(s, *parse_hosts_query({{"state", "silent"}})))["total"] == 0);
  CHECK(json::parse(hosts_json(s, *parse_hosts_query({{"host", "x*"}})))["total"] == 0);
}
