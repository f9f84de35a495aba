#include "cli/mesh_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "cli/format.h"

namespace weft::cli {
namespace {

int weight(const std::string& state) {
  if (state == "silent") return 0;
  if (state == "loss") return 1;
  if (state == "ce") return 2;
  if (state == "late") return 3;
  if (state == "unknown") return 4;
  return 5;
}

Style style_of(const std::string& state) {
  const int w = weight(state);
  if (w <= 1) return Style::Bad;
  if (w <= 3) return Style::Warn;
  return w == 4 ? Style::Dim : Style::Good;
}

// What fits a matrix: the worst thing about the pair, else its round trip.
std::string short_text(const localise::MeshCell& c) {
  if (c.state == "silent") return "silent";
  if (c.state == "loss") return format_share(c.lost, c.sent);
  if (c.state == "ce") return "CE " + format_share(c.ce, c.ecn_capable);
  if (c.state == "unknown") return "?";
  return format_ns(c.rtt_median_ns);
}

std::string matrix(const std::vector<localise::MeshCell>& cells, std::size_t width, const Paint& paint) {
  std::set<std::string> froms, tos;
  std::map<std::pair<std::string, std::string>, const localise::MeshCell*> at;
  for (const auto& cell : cells) {
    froms.insert(cell.from);
    tos.insert(cell.to);
    at[{cell.from, cell.to}] = &cell;
  }
  if (froms.size() < 2 || tos.size() < 2) return "";
  std::vector<Table::Column> columns{{"from \\ to"}};
  for (const std::string& to : tos) columns.push_back({to, Align::Right});
  Table table(columns);
  for (const std::string& from : froms) {
    std::vector<Cell> row{from};
    for (const std::string& to : tos) {
      const auto cell = at.find({from, to});
      if (cell == at.end()) {
        row.emplace_back(from == to ? "" : "-", Style::Dim);
      } else {
        row.emplace_back(short_text(*cell->second), style_of(cell->second->state));
      }
    }
    table.add(std::move(row));
  }
  const std::string text = table.render(Paint(false));
  if (text.find('\n') > width) return "";
  return table.render(paint) + '\n';
}

}  // namespace

void sort_cells(std::vector<localise::MeshCell>& cells) {
  const auto share = [](std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  const auto rank = [&](const localise::MeshCell& c) {
    return std::tuple(weight(c.state), -share(c.lost, c.sent), -share(c.ce, c.ecn_capable),
                      -c.rtt_median_ns.value_or(0), c.from, c.to);
  };
  std::sort(cells.begin(), cells.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

bool cell_counts(const localise::MeshCell& cell) { return weight(cell.state) <= 3; }

std::string mesh_report(std::vector<localise::MeshCell> cells, std::size_t width, std::size_t max_rows,
                        const Paint& paint) {
  sort_cells(cells);
  std::string out = matrix(cells, width, paint);
  const auto bad = static_cast<std::size_t>(
      std::count_if(cells.begin(), cells.end(), [](const auto& c) { return weight(c.state) < 5; }));
  const std::size_t shown = cells.size() <= max_rows ? cells.size() : std::min(std::max(bad, std::size_t{5}), max_rows);
  Table table({{"from"},
               {"to"},
               {"state"},
               {"lost", Align::Right},
               {"of", Align::Right},
               {"CE", Align::Right},
               {"median", Align::Right},
               {"p90", Align::Right},
               {"paths", Align::Right}});
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& c = cells[i];
    table.add({c.from,
               c.to,
               {c.state, style_of(c.state)},
               format_share(c.lost, c.sent),
               std::to_string(c.sent),
               format_share(c.ce, c.ecn_capable),
               format_ns(c.rtt_median_ns),
               format_ns(c.rtt_p90_ns),
               std::to_string(c.paths)});
  }
  out += table.render(paint);
  if (shown < cells.size()) out += "and " + count_of(cells.size() - shown, "better pair") + " (--json has all)\n";
  return out;
}

nlohmann::json mesh_json(const std::vector<localise::MeshCell>& cells) {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& c : cells) {
    nlohmann::json cell{{"from", c.from},
                        {"to", c.to},
                        {"state", c.state},
                        {"sent", c.sent},
                        {"lost", c.lost},
                        {"ce", c.ce},
                        {"ecn_capable", c.ecn_capable},
                        {"paths", c.paths}};
    cell["rtt_median_ns"] = c.rtt_median_ns ? nlohmann::json(*c.rtt_median_ns) : nlohmann::json(nullptr);
    cell["rtt_p90_ns"] = c.rtt_p90_ns ? nlohmann::json(*c.rtt_p90_ns) : nlohmann::json(nullptr);
    out.push_back(std::move(cell));
  }
  return out;
}

}  // namespace weft::cli
