#include "aggregator/export/api_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/config.h"

namespace weft::aggregator {
namespace {

using nlohmann::json;

// Names come through strict decoding, but one byte of foreign text must never make a document fail.
std::string dump(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

json document() { return {{"schema", 1}}; }

json time_or_null(Nanos wall_ns) { return wall_ns > 0 ? json(format_rfc3339(wall_ns)) : json(nullptr); }

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

template <typename T>
json maybe(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json to_json(const model::Finding& finding) {
  json evidence = json::array();
  for (const model::EvidenceItem& item : finding.evidence) {
    evidence.push_back(
        {{"name", item.name}, {"value", number(item.value)}, {"unit", item.unit}, {"window_s", number(item.window_s)}});
  }
  return {{"id", finding.id},
          {"kind", model::finding_info(finding.kind).name},
          {"subject", finding.subject},
          {"severity", model::to_string(finding.severity)},
          {"state", finding.active() ? "active" : "cleared"},
          {"since", time_or_null(finding.since_ns)},
          {"first_evidence_at", time_or_null(finding.since_ns)},
          {"raised_at", time_or_null(finding.raised_ns)},
          {"last_seen_at", time_or_null(finding.last_seen_ns)},
          {"until", finding.until_ns ? time_or_null(*finding.until_ns) : json(nullptr)},
          {"confidence", number(finding.confidence)},
          {"summary", finding.summary},
          {"evidence", std::move(evidence)},
          {"victims", finding.victims},
          {"not_checked", finding.not_checked},
          {"runbook", model::runbook_path(finding.kind)},
          {"acknowledged", finding.acknowledged}};
}

bool matches(const model::Finding& finding, const FindingsQuery& query) {
  if (query.state == FindingsQuery::State::Active && !finding.active()) return false;
  if (query.state == FindingsQuery::State::Cleared && finding.active()) return false;
  if (query.since_ns && finding.until_ns && *finding.until_ns < *query.since_ns) return false;
  if (!query.kind.empty() && model::finding_info(finding.kind).name != query.kind) return false;
  if (query.subject.empty()) return true;
  if (query.subject.back() != '*') return finding.subject == query.subject;
  return finding.subject.compare(0, query.subject.size() - 1, query.subject, 0, query.subject.size() - 1) == 0;
}

Result<std::size_t> limit_value(const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value == 0 || value > kMaxLimit) {
    return make_error(Error::Kind::Invalid, "limit: a number from 1 to " + std::to_string(kMaxLimit));
  }
  return value;
}

Error invalid(const std::string& text) { return make_error(Error::Kind::Invalid, text); }

// Rows of a table with how many there are in all, so that a cut is never silent.
template <typename Rows, typename ToJson>
std::string table(const Snapshot& snapshot, const char* name, const Rows& rows, std::size_t limit, ToJson to) {
  json out = document();
  json list = json::array();
  for (const auto& row : rows) {
    if (list.size() >= limit) break;
    list.push_back(to(row));
  }
  out["at"] = time_or_null(snapshot.wall_ns);
  out["total"] = rows.size();
  out[name] = std::move(list);
  return dump(out);
}

}  // namespace

Result<FindingsQuery> parse_findings_query(const std::multimap<std::string, std::string>& parameters, Nanos wall_now) {
  FindingsQuery out;
  std::set<std::string> seen;
  for (const auto& [name, value] : parameters) {
    if (!seen.insert(name).second) return invalid(name + ": given twice");
    if (name == "state") {
      if (value == "active") {
        out.state = FindingsQuery::State::Active;
      } else if (value == "cleared") {
        out.state = FindingsQuery::State::Cleared;
      } else if (value == "all") {
        out.state = FindingsQuery::State::All;
      } else {
        return invalid("state: active, cleared or all");
      }
    } else if (name == "since") {
      Nanos since = 0;
      if (!parse_rfc3339(value, since)) {
        const Result<std::int64_t> back = parse_duration(value);
        if (!back || *back < 0) return invalid("since: a time like 2026-12-01T18:30:00Z or a duration like 10m");
        since = wall_now - *back;
      }
      out.since_ns = since;
    } else if (name == "kind") {
      if (!model::parse_finding_kind(value)) return invalid("kind: not a kind of finding; see docs/findings.md");
      out.kind = value;
    } else if (name == "subject") {
      if (value.empty() || value.size() > 800) return invalid("subject: like link:s1>l2, or a prefix like link:s1*");
      out.subject = value;
    } else if (name == "limit") {
      const auto limit = limit_value(value);
      if (!limit) return limit.error();
      out.limit = *limit;
    } else {
      return invalid("unknown parameter; known: state, since, kind, subject, limit");
    }
  }
  return out;
}

Result<std::size_t> parse_limit(const std::multimap<std::string, std::string>& parameters) {
  std::size_t limit = kMaxLimit;
  for (const auto& [name, value] : parameters) {
    if (name != "limit") return invalid("unknown parameter; known: limit");
    if (parameters.count(name) > 1) return invalid("limit: given twice");
    const auto parsed = limit_value(value);
    if (!parsed) return parsed.error();
    limit = *parsed;
  }
  return limit;
}

std::string status_json(const Snapshot& snapshot, const std::string& version) {
  json out = document();
  const localise::Coverage& coverage = snapshot.coverage;
  out["fabric"] = snapshot.fabric;
  out["version"] = version;
  out["started_at"] = time_or_null(snapshot.started_wall_ns);
  out["judged_at"] = time_or_null(snapshot.wall_ns);
  out["judge_seconds"] = snapshot.judge_seconds;
  out["agents"] = {{"expected", coverage.agents_expected},
                   {"reporting", coverage.agents_reporting},
                   {"connected", snapshot.agents_connected}};
  out["coverage"] = {{"links", coverage.links},
                     {"covered", coverage.covered},
                     {"ready", coverage.ready},
                     {"uncovered", coverage.uncovered}};
  out["findings"] = {{"active", snapshot.active.size()}};
  const StoreStatus& store = snapshot.store;
  out["store"] = {{"acknowledging", store.acknowledging},
                  {"problem", store.problem.empty() ? json(nullptr) : json(store.problem)},
                  {"started_empty_after_damage", store.started_empty_after_damage || store.generation > 0},
                  {"size_bytes", store.size_bytes},
                  {"pending_batches", store.pending_batches}};
  return dump(out);
}

std::string findings_json(const Snapshot& snapshot, const FindingsQuery& query) {
  std::vector<const model::Finding*> found;
  for (const model::Finding& finding : snapshot.active) {
    if (matches(finding, query)) found.push_back(&finding);
  }
  std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return a->raised_ns > b->raised_ns; });
  for (const model::Finding& finding : *snapshot.cleared) {
    if (matches(finding, query)) found.push_back(&finding);
  }
  json out = document();
  json list = json::array();
  for (const model::Finding* finding : found) {
    if (list.size() >= query.limit) break;
    list.push_back(to_json(*finding));
  }
  out["at"] = time_or_null(snapshot.wall_ns);
  out["total"] = found.size();
  out["findings"] = std::move(list);
  return dump(out);
}

std::optional<std::string> finding_json(const Snapshot& snapshot, const std::string& id) {
  for (const model::Finding& finding : snapshot.active) {
    if (finding.id == id) return finding_json(finding);
  }
  for (const model::Finding& finding : *snapshot.cleared) {
    if (finding.id == id) return finding_json(finding);
  }
  return std::nullopt;
}

std::string finding_json(const model::Finding& finding) {
  json out = document();
  out["finding"] = to_json(finding);
  return dump(out);
}

std::string mesh_json(const Snapshot& snapshot, std::size_t limit) {
  return table(snapshot, "mesh", snapshot.views->mesh, limit, [](const localise::MeshCell& cell) -> json {
    return {{"from", cell.from},
            {"to", cell.to},
            {"sent", cell.sent},
            {"lost", cell.lost},
            {"ce", cell.ce},
            {"ecn_capable", cell.ecn_capable},
            {"rtt_median_ns", maybe(cell.rtt_median_ns)},
            {"rtt_p90_ns", maybe(cell.rtt_p90_ns)},
            {"paths", cell.paths},
            {"state", cell.state}};
  });
}

std::string paths_json(const Snapshot& snapshot, std::size_t limit) {
  return table(snapshot, "paths", snapshot.views->paths, limit, [](const localise::PathView& path) -> json {
    return {{"from", path.key.from},
            {"to", path.key.to},
            {"forward_port", path.key.forward_port},
            {"return_port", path.key.return_port},
            {"forward", path.forward},
            {"back", path.back},
            {"sent", path.sent},
            {"lost_forward", path.lost_forward},
            {"lost_back", path.lost_back},
            {"lost_unknown", path.lost_unknown},
            {"ce_forward", path.ce_forward},
            {"ce_back", path.ce_back},
            {"ecn_forward", path.ecn_forward},
            {"ecn_back", path.ecn_back},
            {"rtt_median_ns", maybe(path.rtt_median_ns)}};
  });
}

std::string links_json(const Snapshot& snapshot, std::size_t limit) {
  return table(snapshot, "links", snapshot.views->links, limit, [](const localise::LinkView& link) -> json {
    return {
        {"from", link.from}, {"to", link.to}, {"probes_per_s", number(link.probes_per_s)}, {"crossed", link.crossed},
        {"lost", link.lost}, {"ce", link.ce}, {"ecn_capable", link.ecn_capable},           {"covered", link.covered}};
  });
}

std::string hosts_json(const Snapshot& snapshot, std::size_t limit) {
  return table(snapshot, "hosts", snapshot.hosts, limit, [&](const localise::HostView& host) -> json {
    const auto said = [](const std::string& text) { return text.empty() ? json(nullptr) : json(text); };
    json out = {{"host", host.host}, {"state", host.state}, {"rail", said(host.rail)}, {"pod", said(host.pod)}};
    const bool heard = host.last_contact_ns > 0;
    const Nanos age = snapshot.monotonic_ns - host.last_contact_ns;
    out["last_contact"] = heard ? time_or_null(snapshot.wall_ns - age) : json(nullptr);
    out["kernel"] = host.inventory ? json(host.inventory->kernel) : json(nullptr);
    out["version"] = host.inventory ? json(host.inventory->version) : json(nullptr);
    json devices = json::array();
    json endpoints = json::array();
    json limitations = json::array();
    if (host.inventory) {
      for (const model::RdmaDevice& device : host.inventory->devices) {
        json ports = json::array();
        for (const model::RdmaPort& port : device.ports) {
          ports.push_back({{"number", port.number},
                           {"state", model::to_string(port.state)},
                           {"link_layer", model::to_string(port.link_layer)},
                           {"rate_bits_per_s", maybe(port.rate_bits_per_s)},
                           {"netdev", port.netdev}});
        }
        devices.push_back({{"name", device.name}, {"driver", device.driver}, {"ports", std::move(ports)}});
      }
      for (const model::ProbeEndpoint& endpoint : host.inventory->endpoints) {
        endpoints.push_back({{"device", endpoint.device},
                             {"transport", endpoint.transport},
                             {"address", endpoint.address},
                             {"hello_port", endpoint.hello_port}});
      }
      for (const model::Limitation& limitation : host.inventory->limitations) {
        limitations.push_back({{"subject", limitation.subject}, {"why", limitation.why}, {"how", limitation.how}});
      }
    }
    out["devices"] = std::move(devices);
    out["endpoints"] = std::move(endpoints);
    out["limitations"] = std::move(limitations);
    if (host.health) {
      out["health"] = {{"max_gap_ns", host.health->max_gap_ns},
                       {"total_gap_ns", host.health->total_gap_ns},
                       {"window_ns", host.health->window_ns},
                       {"cpu_pressure_some", maybe(host.health->cpu_pressure_some)},
                       {"responder_low_water", maybe(host.health->responder_low_water)},
                       {"probes_throttled", host.health->probes_throttled}};
    } else {
      out["health"] = nullptr;
    }
    return out;
  });
}

std::string cleared_json(std::size_t count) {
  json out = document();
  out["cleared"] = count;
  return dump(out);
}

std::string problem_json(int status, const std::string& title, const std::string& detail) {
  return dump({{"status", status}, {"title", title}, {"detail", detail}});
}

}  // namespace weft::aggregator
