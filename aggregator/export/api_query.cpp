#include "aggregator/export/api_query.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/base/config.h"

namespace weft::aggregator {
namespace {

constexpr std::size_t kMaxPattern = 800;
constexpr std::size_t kMaxStars = 8;
constexpr std::size_t kMaxCursor = 4096;
constexpr const char* kForeignCursor = "not one of ours: follow \"next\" of the page before, or leave it out";

using Bad = std::optional<std::string>;  // why a value is refused
using Take = std::function<Bad(const std::string&)>;

// Each known parameter with what takes its value.
std::optional<BadParameter> read(const Parameters& parameters, const std::vector<std::pair<const char*, Take>>& known) {
  for (const auto& parameter : parameters) {
    const std::string& name = parameter.first;
    const auto found = std::find_if(known.begin(), known.end(), [&](const auto& row) { return name == row.first; });
    if (found == known.end()) {
      std::string names;
      for (const auto& row : known) names += (names.empty() ? "" : ", ") + std::string(row.first);
      return BadParameter{name, "unknown parameter; known: " + (names.empty() ? "none" : names)};
    }
    if (parameters.count(name) > 1) return BadParameter{name, name + ": given twice"};
    if (const Bad why = found->second(parameter.second)) return BadParameter{name, name + ": " + *why};
  }
  return std::nullopt;
}

template <typename T>
Parsed<T> done(T value, std::optional<BadParameter> bad) {
  if (bad) return tl::unexpected<BadParameter>(std::move(*bad));
  return value;
}

Take limit_into(Page& page) {
  return [&page](const std::string& text) -> Bad {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value == 0 || value > kMaxLimit) {
      return "a number from 1 to " + std::to_string(kMaxLimit);
    }
    page.limit = value;
    return std::nullopt;
  };
}

Take cursor_into(Page& page) {
  return [&page](const std::string& text) -> Bad {
    page.after = parse_cursor(text);
    return page.after ? Bad() : kForeignCursor;
  };
}

std::optional<FindingPlace> place_at(const Cursor& cursor) {
  FindingPlace out;
  out.cleared = cursor.position == 1;
  const char* const begin = cursor.key.data();
  const char* const last = begin + cursor.key.size();
  const auto [end, error] = std::from_chars(begin, last, out.at_ns);
  if (cursor.position > 1 || error != std::errc{} || end == last || *end != ':') return std::nullopt;
  out.id.assign(end + 1, last);
  return out;
}

Take pattern_into(std::string& to, const char* like) {
  return [&to, like](const std::string& text) -> Bad {
    const auto stars = static_cast<std::size_t>(std::count(text.begin(), text.end(), '*'));
    if (text.empty() || text.size() > kMaxPattern || stars > kMaxStars) {
      return std::string(like) + "; at most " + std::to_string(kMaxPattern) + " characters and " +
             std::to_string(kMaxStars) + " *";
    }
    to = text;
    return std::nullopt;
  };
}

Take time_into(std::optional<Nanos>& to, Nanos wall_now) {
  return [&to, wall_now](const std::string& text) -> Bad {
    Nanos at = 0;
    if (!parse_rfc3339(text, at)) {
      const Result<std::int64_t> back = parse_duration(text);
      if (!back || *back < 0) return "a time like 2026-12-01T18:30:00Z or a duration back from now like 10m";
      at = wall_now - *back;
    }
    to = at;
    return std::nullopt;
  };
}

// Names separated by commas, each of them known to parse.
template <typename T, typename Parse>
Take names_into(std::set<T>& to, Parse parse, std::string why) {
  return [&to, parse, why = std::move(why)](const std::string& text) -> Bad {
    std::size_t begin = 0;
    while (true) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const auto value = parse(std::string_view(text).substr(begin, end - begin));
      if (!value) return why;
      to.insert(*value);
      if (end == text.size()) return std::nullopt;
      begin = end + 1;
    }
  };
}

template <typename T>
Take choice_into(T& to, std::vector<std::pair<const char*, T>> choices) {
  return [&to, choices = std::move(choices)](const std::string& text) -> Bad {
    std::string names;
    for (const auto& [name, value] : choices) {
      if (text == name) {
        to = value;
        return std::nullopt;
      }
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return "one of " + names;
  };
}

}  // namespace

std::string format_cursor(const Cursor& cursor) {
  const std::string text = std::to_string(cursor.position) + ":" + cursor.key;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

std::optional<Cursor> parse_cursor(std::string_view text) {
  if (text.empty() || text.size() % 2 != 0 || text.size() > kMaxCursor) return std::nullopt;
  std::string plain;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    if (error != std::errc{} || end != text.data() + i + 2) return std::nullopt;
    plain += static_cast<char>(byte);
  }
  Cursor out;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), out.position);
  if (error != std::errc{} || end == plain.data() + plain.size() || *end != ':') return std::nullopt;
  out.key = plain.substr(static_cast<std::size_t>(end - plain.data()) + 1);
  return out;
}

bool FindingPlace::before(const FindingPlace& other) const {
  return std::tie(cleared, other.at_ns, other.id) < std::tie(other.cleared, at_ns, id);
}

FindingPlace place_of(const model::Finding& finding) {
  return {!finding.active(), finding.until_ns.value_or(finding.raised_ns), finding.id};
}

Cursor cursor_at(const FindingPlace& place) {
  return {place.cleared ? 1U : 0U, std::to_string(place.at_ns) + ":" + place.id};
}

Parsed<FindingsQuery> parse_findings_query(const Parameters& parameters, Nanos wall_now) {
  FindingsQuery out;
  using State = FindingsQuery::State;
  auto bad = read(
      parameters,
      {{"state",
        choice_into<State>(out.state, {{"active", State::Active}, {"cleared", State::Cleared}, {"all", State::All}})},
       {"since", time_into(out.since_ns, wall_now)},
       {"until", time_into(out.until_ns, wall_now)},
       {"kind", names_into(out.kinds, model::parse_finding_kind,
                           "kinds of findings, separated by commas; see docs/findings.md")},
       {"severity", names_into(out.severities, model::parse_severity, "info, warning or critical, or several")},
       {"subject", pattern_into(out.subject, "like link:s1>l2, or a pattern like link:s1*")},
       {"job", pattern_into(out.job, "the id of a job, or a pattern like train-*")},
       {"limit", limit_into(out.page)},
       {"cursor", [&out](const std::string& text) -> Bad {
          if (const Bad why = cursor_into(out.page)(text)) return why;
          out.after = place_at(*out.page.after);
          return out.after ? Bad() : kForeignCursor;
        }}});
  if (!bad && out.since_ns && out.until_ns && *out.until_ns < *out.since_ns) {
    bad = BadParameter{"until", "until: not before since"};
  }
  return done(std::move(out), std::move(bad));
}

Parsed<HostsQuery> parse_hosts_query(const Parameters& parameters) {
  HostsQuery out;
  auto bad = read(parameters, {{"host", pattern_into(out.host, "a host's name, or a pattern like rack7-*")},
                               {"state", choice_into<std::string>(out.state, {{"reporting", "reporting"},
                                                                              {"silent", "silent"},
                                                                              {"stopped", "stopped"},
                                                                              {"restarting", "restarting"}})},
                               {"detail", choice_into<bool>(out.brief, {{"full", false}, {"brief", true}})},
                               {"limit", limit_into(out.page)},
                               {"cursor", cursor_into(out.page)}});
  return done(std::move(out), std::move(bad));
}

Parsed<MeshQuery> parse_mesh_query(const Parameters& parameters) {
  MeshQuery out;
  auto bad = read(parameters, {{"from", pattern_into(out.from, "a port like h1/rxe0, a pattern like h1/*, or a leaf")},
                               {"to", pattern_into(out.to, "a port like h1/rxe0, a pattern like h1/*, or a leaf")},
                               {"group", choice_into<bool>(out.by_leaf, {{"port", false}, {"leaf", true}})},
                               {"limit", limit_into(out.page)},
                               {"cursor", cursor_into(out.page)}});
  return done(std::move(out), std::move(bad));
}

Parsed<Page> parse_page(const Parameters& parameters) {
  Page out;
  auto bad = read(parameters, {{"limit", limit_into(out)}, {"cursor", cursor_into(out)}});
  return done(std::move(out), std::move(bad));
}

std::optional<BadParameter> refuse_any(const Parameters& parameters) { return read(parameters, {}); }

bool matches_pattern(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace weft::aggregator
