// The JSON API's bodies, made from a snapshot. Pure. Every document carries "schema": 1; times are RFC 3339 UTC with
// milliseconds, absent ones null. nlohmann stays inside api_json.cpp.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/export/api_query.h"
#include "aggregator/state/snapshot.h"

namespace weft::aggregator {

std::string status_json(const Snapshot& snapshot, const std::string& version);
// Active ones first, newest first within each.
std::string findings_json(const Snapshot& snapshot, const FindingsQuery& query);
std::optional<std::string> finding_json(const Snapshot& snapshot, const std::string& id);
std::string finding_json(const model::Finding& finding);
// What of it a watcher is told at once: all but what changes with every judgement, as evidence does.
std::string finding_essence(const model::Finding& finding);
// Lists end at the page's limit; "next" is then the address of the rest, else null, and "total" counts all of them.
std::string mesh_json(const Snapshot& snapshot, const MeshQuery& query);
std::string paths_json(const Snapshot& snapshot, const Page& page);
std::string links_json(const Snapshot& snapshot, const Page& page);
std::string hosts_json(const Snapshot& snapshot, const HostsQuery& query);
std::optional<std::string> host_json(const Snapshot& snapshot, const std::string& name);
std::string cleared_json(std::size_t count);

// RFC 9457: application/problem+json.
struct Problem {
  int status = 500;
  std::string title, detail;
  std::string parameter;           // the one to blame; empty: none
  std::vector<std::string> known;  // "GET /api/v1/status": what would be found
};
std::string problem_json(const Problem& problem);

}  // namespace weft::aggregator
