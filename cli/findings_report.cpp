#include "cli/findings_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/format.h"

namespace weft::cli {
namespace {

constexpr std::size_t kVictimsShown = 6;
constexpr std::size_t kUncoveredShown = 3;

Style severity_style(model::Severity severity) {
  switch (severity) {
    case model::Severity::Critical:
      return Style::Bad;
    case model::Severity::Warning:
      return Style::Warn;
    case model::Severity::Info:
      return Style::Dim;
  }
  return Style::Plain;
}

std::string number(double value) {
  if (!std::isfinite(value)) return "?";
  char text[48];
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    std::snprintf(text, sizeof text, "%.0f", value);
  } else {
    std::snprintf(text, sizeof text, "%.3g", value);
  }
  return text;
}

std::string item_text(const model::EvidenceItem& item) {
  std::string name = item.name;
  std::replace(name.begin(), name.end(), '_', ' ');
  if (item.unit == "ratio") return name + ' ' + number(item.value * 100) + " %";
  if (item.unit == "seconds" && std::fabs(item.value) < 1e9) {
    return name + ' ' + format_ns(static_cast<Nanos>(item.value * 1e9));
  }
  return name + ' ' + number(item.value) + (item.unit.empty() ? "" : ' ' + item.unit);
}

std::string clock_time(Nanos wall_ns) { return format_rfc3339(wall_ns).substr(11, 8); }

std::string time_of_change(const model::Finding& f, const std::string& what, Nanos wall_now) {
  Nanos at = wall_now;  // when it was acknowledged is not told
  if (what == "raised" && f.raised_ns != 0) at = f.raised_ns;
  if (what == "cleared" && f.until_ns) at = *f.until_ns;
  const std::string date = format_rfc3339(at).substr(0, 10);
  return (date == format_rfc3339(wall_now).substr(0, 10) ? "" : date + ' ') + clock_time(at);
}

nlohmann::json time_json(Nanos wall_ns) { return format_rfc3339(wall_ns); }

}  // namespace

bool counts(const model::Finding& f) { return f.active() && !f.acknowledged && f.severity != model::Severity::Info; }

std::vector<model::Finding> select_findings(std::vector<model::Finding> findings, const FindingFilter& filter) {
  std::erase_if(findings, [&](const model::Finding& f) {
    if (!filter.all && (!f.active() || f.acknowledged)) return true;
    if (!filter.kind.empty() && model::finding_info(f.kind).name != filter.kind) return true;
    if (!filter.subject.empty() && f.subject.find(filter.subject) == std::string::npos) return true;
    return filter.since_ns && f.since_ns < *filter.since_ns;
  });
  const auto rank = [](const model::Finding& f) {
    return std::tuple(!f.active(), f.acknowledged, -static_cast<int>(f.severity), f.since_ns);
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const model::Finding& a, const model::Finding& b) { return rank(a) < rank(b); });
  return findings;
}

std::string evidence_sentence(const model::Finding& f) {
  std::string out;
  double window_s = 0;
  for (const model::EvidenceItem& item : f.evidence) {
    out += (out.empty() ? "" : ", ") + item_text(item);
    window_s = std::max(window_s, item.window_s);
  }
  if (!out.empty() && window_s > 0) out += " (over " + number(window_s) + " s)";
  return out;
}

std::string finding_block(const model::Finding& f, Nanos wall_now, std::size_t width, const Paint& paint) {
  const auto& info = model::finding_info(f.kind);
  std::string head = f.active() ? std::string(to_string(f.severity)) : "cleared";
  std::transform(head.begin(), head.end(), head.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string out = paint(f.active() ? severity_style(f.severity) : Style::Dim, head) + "  " +
                    paint(Style::Bold, std::string(info.name) + "  " + printable(f.subject));
  if (!f.id.empty()) out += paint(Style::Dim, "  [" + printable(f.id) + "]");
  if (f.acknowledged) out += "  acknowledged";
  out += '\n';
  Table facts({{""}, {""}});
  const std::size_t room = std::max<std::size_t>(width, 60) - 15;
  const auto fact = [&](const char* name, const std::string& text) {
    if (text.empty()) return;
    const std::string wrapped = wrap(printable(text), room, 0);
    std::size_t at = 0;
    bool first = true;
    while (at <= wrapped.size()) {
      const std::size_t end = std::min(wrapped.find('\n', at), wrapped.size());
      facts.add({{first ? name : "", Style::Dim}, wrapped.substr(at, end - at)});
      first = false;
      at = end + 1;
    }
  };
  fact("what", f.summary.empty() ? std::string(info.meaning) : f.summary);
  std::string since = format_age(wall_now - f.since_ns) + " ago (" + clock_time(f.since_ns) + " UTC)";
  if (f.until_ns) {
    since += ", cleared " + format_age(wall_now - *f.until_ns) + " ago, lasted " + format_age(*f.until_ns - f.since_ns);
  } else if (wall_now - f.last_seen_ns > 5 * kSecond) {
    since += ", last seen " + format_age(wall_now - f.last_seen_ns) + " ago";
  }
  fact("since", since);
  fact("confidence",
       std::isfinite(f.confidence) ? number(std::round(std::clamp(f.confidence, 0.0, 1.0) * 100)) + " %" : "not known");
  fact("evidence", evidence_sentence(f));
  std::string victims;
  for (std::size_t i = 0; i < std::min(f.victims.size(), kVictimsShown); ++i) {
    victims += (i == 0 ? "" : ", ") + f.victims[i];
  }
  if (f.victims.size() > kVictimsShown) victims += " and " + std::to_string(f.victims.size() - kVictimsShown) + " more";
  fact("hit", victims);
  std::string unchecked;
  for (const std::string& sentence : f.not_checked) unchecked += (unchecked.empty() ? "" : "; ") + sentence;
  fact("not checked", unchecked);
  fact("look first", std::string(info.check_first));
  fact("runbook", model::runbook_path(f.kind));
  return out + facts.render(paint, 2);
}

std::string finding_change(const model::Finding& f, const std::string& what, Nanos wall_now, const Paint& paint) {
  std::string line = time_of_change(f, what, wall_now) + "  " +
                     paint(what == "cleared" ? Style::Good : severity_style(f.severity), what) + "  " +
                     std::string(model::finding_info(f.kind).name) + "  " + printable(f.subject);
  const std::string evidence = evidence_sentence(f);
  if (what != "cleared" && !f.summary.empty()) {
    line += "  " + printable(f.summary);
  } else if (what != "cleared" && !evidence.empty()) {
    line += "  " + printable(evidence);
  }
  if (f.until_ns) line += "  after " + format_age(*f.until_ns - f.since_ns);
  return line;
}

nlohmann::json finding_json(const model::Finding& f) {
  nlohmann::json out{{"id", f.id},
                     {"kind", std::string(model::finding_info(f.kind).name)},
                     {"subject", f.subject},
                     {"severity", std::string(to_string(f.severity))},
                     {"since", time_json(f.since_ns)},
                     {"raised", time_json(f.raised_ns)},
                     {"last_seen", time_json(f.last_seen_ns)},
                     {"active", f.active()},
                     {"acknowledged", f.acknowledged},
                     {"confidence", f.confidence},
                     {"summary", f.summary},
                     {"victims", f.victims},
                     {"not_checked", f.not_checked},
                     {"look_first", std::string(model::finding_info(f.kind).check_first)},
                     {"runbook", model::runbook_path(f.kind)},
                     {"evidence", nlohmann::json::array()}};
  out["until"] = f.until_ns ? time_json(*f.until_ns) : nlohmann::json(nullptr);
  for (const model::EvidenceItem& item : f.evidence) {
    out["evidence"].push_back(
        {{"name", item.name}, {"value", item.value}, {"unit", item.unit}, {"window_s", item.window_s}});
  }
  return out;
}

std::vector<std::string> blind_spots(const client::Status& status) {
  std::vector<std::string> out;
  if (status.agents_reporting < status.agents_expected) {
    out.push_back(std::to_string(status.agents_reporting) + " of " + count_of(status.agents_expected, "agent") +
                  " report");
  }
  if (status.links_covered < status.links) {
    std::string links;
    const std::size_t shown = std::min(kUncoveredShown, status.uncovered.size());
    for (std::size_t i = 0; i < shown; ++i) links += (i == 0 ? ", not " : ", ") + status.uncovered[i];
    // The aggregator may list fewer than it counts.
    const std::size_t missing = std::max<std::size_t>(status.links - status.links_covered, status.uncovered.size());
    if (shown > 0 && missing > shown) links += " and " + std::to_string(missing - shown) + " more";
    out.push_back(std::to_string(status.links_covered) + " of " + count_of(status.links, "link") +
                  " have probes enough" + links);
  }
  if (!status.ready && out.empty()) out.push_back("the aggregator has not enough evidence yet");
  if (!status.store_acknowledging) out.push_back("the aggregator cannot store: " + status.store_problem);
  return out;
}

}  // namespace weft::cli
