#include "aggregator/export/api_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "aggregator/export/leaf_mesh.h"

namespace weft::aggregator {
namespace {

using nlohmann::json;

// Names come through strict decoding, but one byte of foreign text must never make a document fail.
std::string dump(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

json document() { return {{"schema", 1}}; }

json time_or_null(Nanos wall_ns) { return wall_ns > 0 ? json(format_rfc3339(wall_ns)) : json(nullptr); }

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

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
          {"look_first", model::finding_info(finding.kind).check_first},
          {"runbook", model::runbook_path(finding.kind)},
          {"acknowledged", finding.acknowledged}};
}

// A subject "job:ID" or "rank:ID/N" is of the job.
bool of_job(const std::string& subject, const std::string& job) {
  const auto is = [&](std::string_view type) {
    if (subject.compare(0, type.size(), type) != 0) return false;
    const std::size_t end = type == "rank:" ? subject.rfind('/') : subject.size();
    return end != std::string::npos && end >= type.size() &&
           matches_pattern(job, std::string_view(subject).substr(type.size(), end - type.size()));
  };
  return is("job:") || is("rank:");
}

bool matches(const model::Finding& finding, const FindingsQuery& query) {
  if (query.state == FindingsQuery::State::Active && !finding.active()) return false;
  if (query.state == FindingsQuery::State::Cleared && finding.active()) return false;
  if (query.since_ns && finding.until_ns && *finding.until_ns < *query.since_ns) return false;
  if (query.until_ns && finding.since_ns > *query.until_ns) return false;
  if (!query.kinds.empty() && query.kinds.count(finding.kind) == 0) return false;
  if (!query.severities.empty() && query.severities.count(finding.severity) == 0) return false;
  if (!query.subject.empty() && !matches_pattern(query.subject, finding.subject)) return false;
  if (query.job.empty() || of_job(finding.subject, query.job)) return true;
  return std::any_of(finding.victims.begin(), finding.victims.end(),
                     [&](const std::string& victim) { return of_job(victim, query.job); });
}

json next_of(const Page& page, const Cursor& last) { return page.base + "cursor=" + format_cursor(last); }

// The part of a list that a page asks for. Rows keep their order from one snapshot to the next, but some come and go.
template <typename Row, typename Key, typename ToJson>
std::string table(const Snapshot& snapshot, const char* name, const std::vector<const Row*>& rows, const Page& page,
                  Key key_of, ToJson to_json_of) {
  std::size_t begin = 0;
  if (page.after) {
    const Cursor& after = *page.after;
    const auto is_it = [&](const Row* row) { return key_of(*row) == after.key; };
    if (after.position < rows.size() && is_it(rows[after.position])) {
      begin = after.position + 1;
    } else {
      const auto found = std::find_if(rows.begin(), rows.end(), is_it);
      begin = found != rows.end() ? static_cast<std::size_t>(found - rows.begin()) + 1
                                  : std::min(after.position, rows.size());
    }
  }
  const std::size_t end = begin + std::min(page.limit, rows.size() - begin);
  json list = json::array();
  for (std::size_t i = begin; i < end; ++i) list.push_back(to_json_of(*rows[i]));
  json out = document();
  out["at"] = time_or_null(snapshot.wall_ns);
  out["total"] = rows.size();
  out["next"] = end < rows.size() ? next_of(page, {end - 1, key_of(*rows[end - 1])}) : json(nullptr);
  out[name] = std::move(list);
  return dump(out);
}

template <typename Row, typename Keep>
std::vector<const Row*> chosen(const std::vector<Row>& rows, Keep keep) {
  std::vector<const Row*> out;
  out.reserve(rows.size());
  for (const Row& row : rows) {
    if (keep(row)) out.push_back(&row);
  }
  return out;
}
template <typename Row>
std::vector<const Row*> all_of(const std::vector<Row>& rows) {
  return chosen(rows, [](const Row&) { return true; });
}

template <typename Cell>
json cell_json(const Cell& cell) {
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
}

json host_brief(const Snapshot& snapshot, const localise::HostView& host) {
  json out = {
      {"host", host.host}, {"state", host.state}, {"rail", text_or_null(host.rail)}, {"pod", text_or_null(host.pod)}};
  const bool heard = host.last_contact_ns > 0;
  const Nanos age = snapshot.monotonic_ns - host.last_contact_ns;
  out["last_contact"] = heard ? time_or_null(snapshot.wall_ns - age) : json(nullptr);
  return out;
}

json host_full(const Snapshot& snapshot, const localise::HostView& host) {
  json out = host_brief(snapshot, host);
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
}

}  // namespace

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
  std::vector<std::pair<FindingPlace, const model::Finding*>> found;
  for (const std::vector<model::Finding>* list : {&snapshot.active, snapshot.cleared.get()}) {
    for (const model::Finding& finding : *list) {
      if (matches(finding, query)) found.emplace_back(place_of(finding), &finding);
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first.before(b.first); });
  auto row = found.begin();
  if (query.after) {
    row = std::find_if(found.begin(), found.end(), [&](const auto& one) { return query.after->before(one.first); });
  }
  json list = json::array();
  for (; row != found.end() && list.size() < query.page.limit; ++row) list.push_back(to_json(*row->second));
  json out = document();
  out["at"] = time_or_null(snapshot.wall_ns);
  out["total"] = found.size();
  out["next"] = row != found.end() ? next_of(query.page, cursor_at((row - 1)->first)) : json(nullptr);
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

std::string finding_essence(const model::Finding& finding) {
  json out = to_json(finding);
  for (const char* fleeting : {"evidence", "summary", "confidence", "last_seen_at"}) out.erase(fleeting);
  return dump(out);
}

std::string mesh_json(const Snapshot& snapshot, const MeshQuery& query) {
  const auto is_end = [](const std::string& pattern, const std::string& port, const std::string& leaf) {
    return pattern.empty() || pattern == (leaf.empty() ? kUnknownLeaf : leaf) || matches_pattern(pattern, port);
  };
  const auto asked = [&](const localise::MeshCell& cell) {
    return is_end(query.from, cell.from, cell.from_leaf) && is_end(query.to, cell.to, cell.to_leaf);
  };
  const auto key = [](const auto& cell) { return cell.from + ">" + cell.to; };
  if (!query.by_leaf) {
    const auto rows = chosen(snapshot.views->mesh, asked);
    return table(snapshot, "mesh", rows, query.page, key, [](const localise::MeshCell& cell) {
      json out = cell_json(cell);
      out["from_leaf"] = text_or_null(cell.from_leaf);
      out["to_leaf"] = text_or_null(cell.to_leaf);
      return out;
    });
  }
  const LeafMesh leaves = leaf_mesh(snapshot.views->mesh, asked);
  return table(snapshot, "mesh", all_of(leaves.cells), query.page, key, [](const LeafCell& cell) {
    json out = cell_json(cell);
    out["pairs"] = cell.pairs;
    return out;
  });
}

std::string paths_json(const Snapshot& snapshot, const Page& page) {
  const auto key = [](const localise::PathView& p) {
    return p.key.from + ">" + p.key.to + ":" + std::to_string(p.key.forward_port) + ":" +
           std::to_string(p.key.return_port);
  };
  return table(snapshot, "paths", all_of(snapshot.views->paths), page, key, [](const localise::PathView& path) -> json {
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

std::string links_json(const Snapshot& snapshot, const Page& page) {
  const auto key = [](const localise::LinkView& link) { return link.from + ">" + link.to; };
  return table(snapshot, "links", all_of(snapshot.views->links), page, key, [](const localise::LinkView& link) -> json {
    return {
        {"from", link.from}, {"to", link.to}, {"probes_per_s", number(link.probes_per_s)}, {"crossed", link.crossed},
        {"lost", link.lost}, {"ce", link.ce}, {"ecn_capable", link.ecn_capable},           {"covered", link.covered}};
  });
}

std::string hosts_json(const Snapshot& snapshot, const HostsQuery& query) {
  const auto rows = chosen(snapshot.hosts, [&](const localise::HostView& host) {
    return (query.host.empty() || matches_pattern(query.host, host.host)) &&
           (query.state.empty() || query.state == host.state);
  });
  return table(
      snapshot, "hosts", rows, query.page, [](const localise::HostView& host) { return host.host; },
      [&](const localise::HostView& host) {
        return query.brief ? host_brief(snapshot, host) : host_full(snapshot, host);
      });
}

std::optional<std::string> host_json(const Snapshot& snapshot, const std::string& name) {
  for (const localise::HostView& host : snapshot.hosts) {
    if (host.host != name) continue;
    json out = document();
    out["at"] = time_or_null(snapshot.wall_ns);
    out["host"] = host_full(snapshot, host);
    return dump(out);
  }
  return std::nullopt;
}

std::string cleared_json(std::size_t count) {
  json out = document();
  out["cleared"] = count;
  return dump(out);
}

std::string problem_json(const Problem& problem) {
  json out = {{"status", problem.status}, {"title", problem.title}, {"detail", problem.detail}};
  if (!problem.parameter.empty()) out["parameter"] = problem.parameter;
  if (!problem.known.empty()) out["known"] = problem.known;
  return dump(out);
}

}  // namespace weft::aggregator
