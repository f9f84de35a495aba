#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/aggregator.h"
#include "cli/commands.h"
#include "cli/findings_report.h"
#include "cli/format.h"
#include "cli/mesh_direct.h"
#include "cli/mesh_report.h"

namespace weft::cli {
namespace {

constexpr std::size_t kMaxRows = 30;

ExitCode exit_for(const std::vector<localise::MeshCell>& cells) {
  bool measured = false;
  bool bad = false;
  for (const auto& cell : cells) {
    measured |= cell.sent > 0;
    bad |= cell_counts(cell);
  }
  if (!measured) return ExitCode::CannotMeasure;
  return bad ? ExitCode::Findings : ExitCode::Healthy;
}

ExitCode direct_mesh(const MeshOptions& o, Output& output, const Clock& clock) {
  if (!output.json) {
    output.say("measuring " + count_of(o.hosts.size(), "host") + " over " + count_of(o.ports, "port") + " each for " +
               format_ns(o.duration_ns));
  }
  auto mesh = measure_mesh(o, clock);
  if (!mesh) return output.fail("mesh", mesh.error());
  // Verdicts carry monotonic times; people read the wall clock.
  const Nanos shift = clock.wall_ns() - clock.monotonic_ns();
  for (model::Finding& f : mesh->findings) {
    for (Nanos* at : {&f.since_ns, &f.raised_ns, &f.last_seen_ns}) *at = *at == 0 ? clock.wall_ns() : *at + shift;
  }
  const ExitCode code = direct_mesh_exit(mesh->cells, !mesh->findings.empty());
  std::string missing;
  for (const std::string& host : mesh->missing) missing += (missing.empty() ? "" : "; ") + host;
  if (output.json) {
    nlohmann::json body{{"local", mesh->local},
                        {"pairs", mesh_json(mesh->cells)},
                        {"findings", nlohmann::json::array()},
                        {"not_checked", mesh->notes}};
    for (const auto& f : mesh->findings) body["findings"].push_back(finding_json(f));
    if (code == ExitCode::CannotMeasure) body["error"] = {{"kind", "cannot_measure"}, {"message", missing}};
    return output.finish_json("mesh", code, std::move(body));
  }
  output.out << "from " << mesh->local << "\n\n" << mesh_report(mesh->cells, output.width, kMaxRows, output.paint);
  for (const auto& f : mesh->findings) {
    output.out << '\n' << finding_block(f, clock.wall_ns(), output.width, output.paint);
  }
  output.out << std::flush;
  for (const std::string& note : mesh->notes) output.say("note: " + printable(note));
  const bool unmeasured =
      std::any_of(mesh->cells.begin(), mesh->cells.end(), [](const auto& c) { return c.sent == 0; });
  if (unmeasured) output.say("next: start `weft responder` or weftd on these hosts");
  return code;
}

bool wanted(const std::string& end, const std::vector<std::string>& hosts) {
  if (hosts.empty()) return true;
  const std::string host = end.substr(0, end.find('/'));
  return std::any_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h == host || h == end; });
}

ExitCode aggregator_mesh(const MeshOptions& o, Output& output) {
  auto client = open_client(o.aggregator);
  if (!client) return output.fail("mesh", client.error());
  auto mesh = client->mesh();
  if (!mesh) return fail_aggregator("mesh", output, mesh.error(), o.aggregator, "weft mesh --direct HOST...");
  std::vector<localise::MeshCell> cells;
  for (client::MeshCell& c : mesh->cells) {
    // One host named: its row and column; more: the pairs between them.
    const bool from = wanted(c.from, o.hosts), to = wanted(c.to, o.hosts);
    if (o.hosts.size() == 1 ? !(from || to) : !(from && to)) continue;
    localise::MeshCell cell;
    cell.from = std::move(c.from);
    cell.to = std::move(c.to);
    cell.state = std::move(c.state);
    cell.sent = c.sent;
    cell.lost = c.lost;
    cell.ce = c.ce;
    cell.ecn_capable = c.ecn_capable;
    cell.rtt_median_ns = c.rtt_median_ns;
    cell.rtt_p90_ns = c.rtt_p90_ns;
    cell.paths = c.paths;
    cells.push_back(std::move(cell));
  }
  const ExitCode code = exit_for(cells);
  const std::string nothing = o.hosts.empty() ? "the aggregator has no measured pair yet"
                                              : "the aggregator has no measured pair of these hosts";
  if (output.json) {
    nlohmann::json body{{"aggregator", o.aggregator.address}, {"pairs", mesh_json(cells)}};
    if (code == ExitCode::CannotMeasure) body["error"] = {{"kind", "cannot_measure"}, {"message", nothing}};
    return output.finish_json("mesh", code, std::move(body));
  }
  if (code == ExitCode::CannotMeasure) {
    return output.fail("mesh", code, make_error(Error::Kind::NoData, nothing), "weft status on the hosts says why");
  }
  output.out << mesh_report(cells, output.width, kMaxRows, output.paint);
  if (code == ExitCode::Findings)
    output.out << "\nnext: weft findings names the cause where there is evidence enough\n";
  output.out << std::flush;
  return code;
}

}  // namespace

ExitCode run_mesh(const MeshOptions& options, Output& output, const Clock& clock) {
  return options.is_direct ? direct_mesh(options, output, clock) : aggregator_mesh(options, output);
}

}  // namespace weft::cli
