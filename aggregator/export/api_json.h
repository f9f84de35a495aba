// The JSON API's bodies, made from a snapshot. Pure. Every document carries "schema": 1; times are RFC 3339 UTC with
// milliseconds, absent ones null. nlohmann stays inside api_json.cpp.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "aggregator/state/snapshot.h"
#include "lib/base/result.h"

namespace weft::aggregator {

inline constexpr std::size_t kMaxLimit = 10'000;

struct FindingsQuery {
  enum class State { Active, Cleared, All } state = State::All;
  std::optional<Nanos> since_ns;  // wall clock: active at or after it
  std::string kind;               // empty: any
  std::string subject;            // exact, or a prefix when it ends with '*'
  std::size_t limit = 1000;
};

// From the query string. since is RFC 3339 or a duration back from now ("10m"). Unknown parameters, repeated ones and
// values out of range are Invalid, and the text says what would do.
Result<FindingsQuery> parse_findings_query(const std::multimap<std::string, std::string>& parameters, Nanos wall_now);
// For documents that take only limit.
Result<std::size_t> parse_limit(const std::multimap<std::string, std::string>& parameters);

std::string status_json(const Snapshot& snapshot, const std::string& version);
// Active ones first, newest first within each.
std::string findings_json(const Snapshot& snapshot, const FindingsQuery& query);
std::optional<std::string> finding_json(const Snapshot& snapshot, const std::string& id);
std::string finding_json(const model::Finding& finding);
std::string mesh_json(const Snapshot& snapshot, std::size_t limit);
std::string paths_json(const Snapshot& snapshot, std::size_t limit);
std::string links_json(const Snapshot& snapshot, std::size_t limit);
std::string hosts_json(const Snapshot& snapshot, std::size_t limit);
std::string cleared_json(std::size_t count);
// RFC 7807: application/problem+json.
std::string problem_json(int status, const std::string& title, const std::string& detail);

}  // namespace weft::aggregator
