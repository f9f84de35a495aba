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
