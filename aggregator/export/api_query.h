// What a request asks for in its query string, checked. Pure. Unknown parameters, repeated ones and values out of range
// are refused with the parameter's name and what would do.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "lib/base/clock.h"
#include "lib/model/finding.h"

namespace weft::aggregator {

inline constexpr std::size_t kMaxLimit = 10'000;

using Parameters = std::multimap<std::string, std::string>;

struct BadParameter {
  std::string name, detail;
};
template <typename T>
using Parsed = tl::expected<T, BadParameter>;

// Where a page begins: after the row of this key. The position is where that row was, so that a list which changed
// meanwhile goes on near by.
struct Cursor {
  std::size_t position = 0;
  std::string key;
  bool operator==(const Cursor&) const = default;
};
// Opaque to clients: lower-case hex.
std::string format_cursor(const Cursor& cursor);
std::optional<Cursor> parse_cursor(std::string_view text);

struct Page {
  std::size_t limit = kMaxLimit;
  std::optional<Cursor> after;
  // How the address of the next page begins, up to its cursor; set by who serves.
  std::string base;
};

// Where a finding stands in the list: active ones first, the latest raised or cleared first within each. A page begins
// after it even when the finding itself has moved on.
struct FindingPlace {
  bool cleared = false;
  Nanos at_ns = 0;  // raised, or cleared
  std::string id;
  bool before(const FindingPlace& other) const;
};
FindingPlace place_of(const model::Finding& finding);
Cursor cursor_at(const FindingPlace& place);

struct FindingsQuery {
  enum class State { Active, Cleared, All } state = State::All;
  // Wall clock: active at or after since, and begun at or before until.
  std::optional<Nanos> since_ns, until_ns;
  std::set<model::FindingKind> kinds;    // empty: any
  std::set<model::Severity> severities;  // empty: any
  std::string subject;                   // a pattern; empty: any
  std::string job;                       // is, or hits, the job or a rank of it; empty: any
  std::optional<FindingPlace> after;
  Page page{1000, std::nullopt, {}};
};

struct HostsQuery {
  std::string host;   // a pattern; empty: any
  std::string state;  // empty: any
  bool brief = false;
  Page page;
};

struct MeshQuery {
  std::string from, to;  // patterns of ports, or a leaf; empty: any
  bool by_leaf = false;
  Page page;
};

// since and until are RFC 3339 or a duration back from now ("10m").
Parsed<FindingsQuery> parse_findings_query(const Parameters& parameters, Nanos wall_now);
Parsed<HostsQuery> parse_hosts_query(const Parameters& parameters);
Parsed<MeshQuery> parse_mesh_query(const Parameters& parameters);
// For documents that take only limit and cursor.
Parsed<Page> parse_page(const Parameters& parameters);
// For what takes no parameter: the first one that is there.
std::optional<BadParameter> refuse_any(const Parameters& parameters);

// '*' stands for any number of characters, everything else for itself.
bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace weft::aggregator
