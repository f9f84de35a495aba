#include "cli/trace_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/format.h"

namespace weft::cli {
namespace {

bool anything_known(const TraceReport& report) {
  return std::any_of(report.views.begin(), report.views.end(), [](const probes::TraceView& view) {
    return view.trace.complete || view.reached ||
           std::any_of(view.hops.begin(), view.hops.end(), [](const auto& hop) { return !hop.address.empty(); });
  });
}

std::string end_text(const probes::TraceView& view) {
  if (view.trace.complete) return "whole way";
  if (!view.finished) return "not finished";
  const bool silent = std::any_of(view.hops.begin(), view.hops.end(), [](const auto& h) { return h.address.empty(); });
  return silent ? "silent hops" : "end not seen";
}

}  // namespace

std::string trace_report(const TraceReport& report, const RouteNames& names, const Paint& paint) {
  std::string out = paint(Style::Bold, printable(report.host));
  if (report.address != report.host) out += " (" + report.address + ")";
  out += " from " + report.local + '\n';
  if (!report.note.empty()) out += "  " + paint(Style::Warn, printable(report.note)) + '\n';
  if (!report.send_error.empty()) out += "  " + paint(Style::Bad, printable(report.send_error)) + '\n';

  std::size_t longest = 0;
  bool any_shared = false, any_silent = false;
  for (const auto& view : report.views) longest = std::max(longest, view.hops.size());
  std::vector<Table::Column> columns{{"port"}};
  for (std::size_t i = 1; i <= longest; ++i) columns.push_back({"hop " + std::to_string(i)});
  columns.push_back({""});
  Table ports(columns);
  struct Router {
    std::set<std::uint8_t> ttls;
    std::set<std::uint16_t> ports;
    std::optional<Nanos> rtt_ns;
  };
  std::map<std::string, Router> routers;
  for (const auto& view : report.views) {
    std::vector<Cell> row{std::to_string(view.trace.source_port)};
    for (std::size_t i = 0; i < longest; ++i) {
      if (i >= view.hops.size()) {
        row.emplace_back("");
        continue;
      }
      const auto& hop = view.hops[i];
      if (hop.address.empty()) {
        any_silent = true;
        row.emplace_back(hop.asked == 0 ? "-" : "?", Style::Warn);
        continue;
      }
      any_shared |= hop.shared;
      row.emplace_back(names.name(hop.address) + (hop.shared ? "~" : ""), hop.shared ? Style::Dim : Style::Plain);
      Router& router = routers[hop.address];
      router.ttls.insert(static_cast<std::uint8_t>(i + 1));
      router.ports.insert(view.trace.source_port);
      if (hop.rtt_ns) router.rtt_ns = std::min(router.rtt_ns.value_or(*hop.rtt_ns), *hop.rtt_ns);
    }
    row.emplace_back(view.hops.empty() && view.trace.complete ? "no router on the way" : end_text(view),
                     view.trace.complete ? Style::Good : Style::Warn);
    ports.add(std::move(row));
  }
  out += ports.render(paint, 2);

  if (!routers.empty()) {
    Table seen({{"router"}, {"hop"}, {"ports", Align::Right}, {"fastest answer", Align::Right}});
    std::vector<std::pair<std::string, Router>> sorted(routers.begin(), routers.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return *a.second.ttls.begin() < *b.second.ttls.begin(); });
    for (const auto& [address, router] : sorted) {
      std::string hops;
      for (std::uint8_t ttl : router.ttls) hops += (hops.empty() ? "" : ",") + std::to_string(ttl);
      const std::string name = names.name(address);
      seen.add({name == address ? address : name + " " + address, hops, std::to_string(router.ports.size()),
                format_ns(router.rtt_ns)});
    }
    out += '\n' + seen.render(paint, 2);
  }
  if (any_shared) out += "  ~ as sibling ports saw it, not asked for this port\n";
  if (any_silent) out += "  ? silent: unknown, not lost; many routers answer little or never\n";
  if (!anything_known(report)) out += "  " + paint(Style::Bad, "nothing answered") + '\n';
  if (!report.finished) out += "  stopped before every hop was asked\n";
  return out;
}

nlohmann::json trace_json(const TraceReport& report, const RouteNames& names) {
  nlohmann::json out{{"host", report.host},
                     {"address", report.address},
                     {"local", report.local},
                     {"hop_count_from_probes", report.scouted},
                     {"finished", report.finished},
                     {"packets_sent", report.stats.sent},
                     {"answers", report.stats.answered},
                     {"answers_not_ours", report.stats.unmatched},
                     {"paths", nlohmann::json::array()}};
  if (!report.note.empty()) out["note"] = report.note;
  for (const auto& view : report.views) {
    nlohmann::json path{
        {"port", view.trace.source_port}, {"complete", view.trace.complete}, {"hops", nlohmann::json::array()}};
    for (std::size_t i = 0; i < view.hops.size(); ++i) {
      const auto& hop = view.hops[i];
      nlohmann::json one{{"ttl", i + 1}, {"asked", hop.asked}, {"from_siblings", hop.shared}};
      one["address"] = hop.address.empty() ? nlohmann::json(nullptr) : nlohmann::json(hop.address);
      const bool named = !hop.address.empty() && names.name(hop.address) != hop.address;
      one["name"] = named ? nlohmann::json(names.name(hop.address)) : nlohmann::json(nullptr);
      one["answer_ns"] = hop.rtt_ns ? nlohmann::json(*hop.rtt_ns) : nlohmann::json(nullptr);
      path["hops"].push_back(std::move(one));
    }
    out["paths"].push_back(std::move(path));
  }
  return out;
}

ExitCode trace_exit(const TraceReport& report) {
  if (!report.finished && !report.stopped) return ExitCode::Deadline;
  return anything_known(report) ? ExitCode::Healthy : ExitCode::CannotMeasure;
}

}  // namespace weft::cli
