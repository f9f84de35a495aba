#include "cli/ping_report.h"

#include <nlohmann/json.hpp>

#include "cli/format.h"

namespace weft::cli {
namespace {

constexpr std::size_t kPortsShown = 12;
constexpr std::size_t kCarriedEverywhere = 512;  // bytes
constexpr std::uint64_t kEnoughLost = 3;

bool none_of_the_large(const HostReport& r) {
  return r.payload_bytes > kCarriedEverywhere && r.summary.sent >= kEnoughLost && r.summary.lost == r.summary.sent;
}

std::string of(std::uint64_t part, std::uint64_t whole) {
  return std::to_string(part) + " of " + std::to_string(whole) + " (" + format_share(part, whole) + ")";
}

std::string ecn_text(const DirectionSummary& d) {
  if (d.ecn_capable > 0) return of(d.ce, d.ecn_capable) + " marked" + (d.bleached ? ", some bleached" : "");
  return d.bleached > 0 ? "cannot be measured: ECN bits are cleared on the way" : "not seen";
}

Style ecn_style(const DirectionSummary& d) { return d.ce > 0 ? Style::Warn : Style::Plain; }

nlohmann::json quantiles_json(const Quantiles& q) {
  if (q.count() == 0) return nullptr;
  return {{"count", q.count()}, {"min", *q.min()},    {"median", *q.at(0.5)},
          {"p90", *q.at(0.9)},  {"p99", *q.at(0.99)}, {"max", *q.max()}};
}

nlohmann::json direction_json(const DirectionSummary& d) {
  nlohmann::json out{{"lost", d.lost}, {"ecn_capable", d.ecn_capable}, {"ce", d.ce}, {"bleached", d.bleached}};
  out["hops"] = d.hops ? nlohmann::json(*d.hops) : nlohmann::json(nullptr);
  return out;
}

std::string hops_text(const DirectionSummary& d) { return d.hops ? std::to_string(*d.hops) : "-"; }

Cell lost_cell(const DirectionSummary& d, const PortSummary& p) {
  return {std::to_string(d.lost) + (d.lost > 0 ? " (" + format_share(d.lost, p.sent) + ")" : ""),
          d.lost > 0 ? Style::Bad : Style::Plain};
}

Cell ce_cell(const DirectionSummary& d) {
  return {format_share(d.ce, d.ecn_capable), d.ce > 0 ? Style::Warn : Style::Plain};
}

std::string more_text(std::size_t rows) {
  return rows <= kPortsShown ? "" : "  and " + count_of(rows - kPortsShown, "better port") + " (--json has all)\n";
}

std::string loss_text(const PingSummary& s) {
  std::string out = of(s.lost, s.sent) + " lost";
  if (s.unsure()) return out + ": cannot measure: " + unsure_text(s);
  if (s.lost == 0) return out;
  std::string split;
  const auto part = [&](std::uint64_t count, const char* where) {
    if (count == 0) return;
    if (!split.empty()) split += ", ";
    split += std::to_string(count) + ' ' + where;
  };
  part(s.forward.lost, "on the way there");
  part(s.back.lost, "on the way back");
  part(s.lost_unknown, "direction unknown");
  return out + ": " + split;
}

}  // namespace

std::string outcome_line(const std::string& host, const probes::ProbeOutcome& o, bool show_port, const Paint& paint) {
  using probes::ProbeResult;
  std::string line = printable(host) + " #" + std::to_string(o.sequence);
  if (show_port) line += " port " + std::to_string(o.key.forward_port) + "/" + std::to_string(o.key.return_port);
  line += ": ";
  switch (o.result) {
    case ProbeResult::Ok:
      line += format_ns(o.rtt_ns) + "  prober " + format_ns(o.prober_delay_ns) + "  responder " +
              format_ns(o.responder_delay_ns);
      break;
    case ProbeResult::Timeout:
      line += paint(Style::Bad, "lost");
      break;
    case ProbeResult::AckWithoutTimes:
      line += "answered, but without times";
      break;
    case ProbeResult::Late:
      line += paint(Style::Warn, "answered after the timeout: slow, not lost");
      break;
    case ProbeResult::Overslept:
      line += paint(Style::Dim, "not counted: this host was late itself");
      break;
    case ProbeResult::LocalError:
      line += paint(Style::Warn, "not sent: " + printable(o.error));
      break;
    default:
      line += std::string(probes::to_string(o.result));
      break;
  }
  const auto ce = [](std::optional<std::uint8_t> tos) { return tos && (*tos & 3) == 3; };
  if (ce(o.forward_tos)) line += paint(Style::Warn, "  CE there");
  if (ce(o.back_tos)) line += paint(Style::Warn, "  CE back");
  return line;
}

std::string ping_report(const HostReport& r, const Paint& paint) {
  const PingSummary& s = r.summary;
  std::string out = paint(Style::Bold, printable(r.host));
  if (!r.tried) {
    return out + "\n  " + paint(Style::Bad, "cannot measure") + (r.trouble.empty() ? "" : ": " + printable(r.trouble)) +
           '\n';
  }
  if (r.address != r.host) out += " (" + r.address + ")";
  out += " from " + r.local + '\n';
  if (!r.answered) {
    return out + "  " + paint(Style::Bad, "cannot measure: no answer to the hello") +
           (r.trouble.empty() ? "" : ": " + printable(r.trouble)) + '\n';
  }
  if (s.sent == 0) {
    const std::string why = ping_trouble(r);
    out += "  " + paint(Style::Warn, "cannot measure: no probe counts") + (why.empty() ? "" : ": " + printable(why)) +
           '\n';
  } else if (none_of_the_large(r)) {
    return out + "  " + paint(Style::Warn, "cannot measure") + ": " + printable(ping_trouble(r)) + '\n';
  } else {
    out += "  " + paint(s.lossy() ? Style::Bad : s.unsure() ? Style::Warn : Style::Good, loss_text(s)) + '\n';
  }
  const std::pair<const char*, std::uint64_t> apart[] = {{"answered after the timeout, so slow but not lost", s.late},
                                                         {"duplicate", s.duplicate},
                                                         {"not sent", s.local_error},
                                                         {"skipped, this host was late itself", s.overslept},
                                                         {"sent to queue pairs that were gone", s.stale},
                                                         {"with impossible times", s.bad_timestamp},
                                                         {"answered without times", s.without_times}};
  std::string also;
  for (const auto& [what, count] : apart) {
    if (count > 0) also += (also.empty() ? "" : ", ") + std::to_string(count) + ' ' + what;
  }
  if (!also.empty()) out += "  also: " + also + '\n';
  if (s.sent == 0) return out;
  if (!r.trouble.empty()) out += "  " + paint(Style::Warn, "trouble") + ": " + printable(r.trouble) + '\n';
  if (!s.last_error.empty()) out += "  last error: " + printable(s.last_error) + '\n';

  Table times({{""},
               {"min", Align::Right},
               {"median", Align::Right},
               {"p90", Align::Right},
               {"p99", Align::Right},
               {"max", Align::Right}});
  const auto row = [&](const char* name, const Quantiles& q) {
    times.add({name, format_ns(q.min()), format_ns(q.at(0.5)), format_ns(q.at(0.9)), format_ns(q.at(0.99)),
               format_ns(q.max())});
  };
  if (s.rtt.count() > 0) {
    row("network round trip", s.rtt);
    row("prober delay", s.prober_delay);
    row("responder delay", s.responder_delay);
    out += times.render(paint, 2);
    if (s.rung) out += "  timestamps by " + format_timestamps(*s.rung) + '\n';
  }
  Table facts({{""}, {"there"}, {"back"}});
  facts.add({"ECN", {ecn_text(s.forward), ecn_style(s.forward)}, {ecn_text(s.back), ecn_style(s.back)}});
  facts.add({"routers", hops_text(s.forward), hops_text(s.back)});
  out += facts.render(paint, 2);

  const std::vector<PortSummary> there = by_forward_port(s.ports);
  const auto path = [&](const PortSummary& p) {
    const auto known = r.path_by_port.find(p.forward_port);
    return known == r.path_by_port.end() ? std::string("-") : known->second.words;
  };
  if (there.size() > 1 || s.lossy()) {
    Table ports({{"port there"},
                 {"sent", Align::Right},
                 {"lost there", Align::Right},
                 {"CE there", Align::Right},
                 {"median", Align::Right},
                 {"way there"}});
    for (std::size_t i = 0; i < std::min(there.size(), kPortsShown); ++i) {
      const PortSummary& p = there[i];
      ports.add({std::to_string(p.forward_port), std::to_string(p.sent), lost_cell(p.forward, p), ce_cell(p.forward),
                 format_ns(p.rtt.at(0.5)), path(p)});
    }
    out += ports.render(paint, 2) + more_text(there.size());
  } else if (!there.empty()) {
    out += "  port " + std::to_string(there.front().forward_port) + ", way there: " + path(there.front()) + '\n';
  }
  if (s.back.lost > 0 || s.back.ce > 0) {
    const std::vector<PortSummary> back = by_return_port(s.ports);
    Table ports({{"port back"},
                 {"answers", Align::Right},
                 {"lost back", Align::Right},
                 {"CE back", Align::Right},
                 {"median", Align::Right}});
    for (std::size_t i = 0; i < std::min(back.size(), kPortsShown); ++i) {
      const PortSummary& p = back[i];
      ports.add({std::to_string(p.return_port), std::to_string(p.sent - p.forward.lost), lost_cell(p.back, p),
                 ce_cell(p.back), format_ns(p.rtt.at(0.5))});
    }
    out += ports.render(paint, 2) + more_text(back.size());
  }
  if (!r.path_note.empty()) out += "  " + paint(Style::Dim, printable(r.path_note)) + '\n';
  return out;
}

nlohmann::json ping_json(const HostReport& r) {
  const PingSummary& s = r.summary;
  nlohmann::json out{{"host", r.host},
                     {"address", r.address},
                     {"local", r.local},
                     {"local_why", r.local_why},
                     {"answered", r.answered},
                     {"sent", s.sent},
                     {"acked", s.acked},
                     {"lost", s.lost},
                     {"lost_there", s.forward.lost},
                     {"lost_back", s.back.lost},
                     {"lost_unknown", s.lost_unknown},
                     {"late", s.late},
                     {"duplicate", s.duplicate},
                     {"local_errors", s.local_error},
                     {"overslept", s.overslept},
                     {"stale", s.stale},
                     {"bad_timestamps", s.bad_timestamp},
                     {"without_times", s.without_times},
                     {"timestamps", s.rung ? nlohmann::json(model::to_string(*s.rung)) : nlohmann::json(nullptr)},
                     {"network_rtt_ns", quantiles_json(s.rtt)},
                     {"prober_delay_ns", quantiles_json(s.prober_delay)},
                     {"responder_delay_ns", quantiles_json(s.responder_delay)},
                     {"there", direction_json(s.forward)},
                     {"back", direction_json(s.back)},
                     {"ports", nlohmann::json::array()}};
  if (!r.trouble.empty() || ping_exit(r) == ExitCode::CannotMeasure)
    out["error"] = {{"kind", "cannot_measure"}, {"message", ping_trouble(r)}};
  if (!s.last_error.empty()) out["last_error"] = s.last_error;
  if (!r.path_note.empty()) out["path_note"] = r.path_note;
  for (const PortSummary& p : s.ports) {
    nlohmann::json port{{"port_there", p.forward_port},
                        {"port_back", p.return_port},
                        {"sent", p.sent},
                        {"lost", p.lost},
                        {"there", direction_json(p.forward)},
                        {"back", direction_json(p.back)},
                        {"network_rtt_ns", quantiles_json(p.rtt)}};
    const auto path = r.path_by_port.find(p.forward_port);
    const bool known = path != r.path_by_port.end() && path->second.known;
    port["way_there"] = known ? nlohmann::json(path->second.words) : nlohmann::json(nullptr);
    out["ports"].push_back(std::move(port));
  }
  return out;
}

std::string ping_trouble(const HostReport& r) {
  if (!r.trouble.empty()) return r.trouble;
  if (none_of_the_large(r)) {
    return "none of " + count_of(r.summary.sent, "probe") + " of " + std::to_string(r.payload_bytes) +
           " bytes came back, while the hello did: the MTU on the way may be smaller";
  }
  return r.summary.sent > 0 && r.summary.unsure() ? unsure_text(r.summary) : r.summary.last_error;
}

ExitCode ping_exit(const HostReport& r) {
  if (!r.answered || r.summary.sent == 0 || none_of_the_large(r)) return ExitCode::CannotMeasure;
  if (r.summary.lossy() || r.summary.marked() || r.summary.late > 0) return ExitCode::Findings;
  return r.summary.unsure() ? ExitCode::CannotMeasure : ExitCode::Healthy;
}

std::string unsure_text(const PingSummary& s) {
  return count_of(s.overslept, "more probe") + " may have been lost, and cannot count: this host was late itself";
}

std::string ping_hint(const HostReport& r) {
  if (!r.tried) return "";
  if (!r.answered) {
    return "is `weft responder` or weftd running on " + r.host +
           ", with the same --key-file and --hello-port, and is UDP let through?";
  }
  if (none_of_the_large(r)) return "does a smaller one come through? weft ping " + r.host;
  if (!r.summary.lossy() && !r.summary.marked()) {
    return r.summary.late > 0 ? "slow answers: compare the three delays above, and try a longer --timeout" : "";
  }
  if (by_forward_port(r.summary.ports).size() == 1)
    return "compare paths: weft ping -c 200 -i 20ms --ports 8 " + r.host;
  return "which link: weft mesh --direct --ports 16 " + r.host + "   (more hosts tell more)";
}

}  // namespace weft::cli
