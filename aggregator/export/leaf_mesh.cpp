#include "aggregator/export/leaf_mesh.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::aggregator {
namespace {

// Worst first. A silent host says less of a pair of leaves than lost probes do.
constexpr std::array kStates{"loss", "silent", "late", "ce", "ok", "unknown"};

// Name of each leaf's row.
std::map<std::string, std::string> rows_of(const std::map<std::string, std::string>& leaf_of) {
  std::map<std::string, std::size_t> ports;
  for (const auto& [port, leaf] : leaf_of) ++ports[leaf];
  std::vector<std::pair<std::string, std::size_t>> ordered(ports.begin(), ports.end());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::map<std::string, std::string> rows;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    rows[ordered[i].first] = i < kMaxLeaves ? ordered[i].first : kOtherLeaf;
  }
  return rows;
}

}  // namespace

LeafMesh leaf_mesh(const std::vector<localise::MeshCell>& mesh,
                   const std::function<bool(const localise::MeshCell&)>& keep) {
  LeafMesh out;
  for (const localise::MeshCell& cell : mesh) {
    if (keep && !keep(cell)) continue;
    out.leaf_of[cell.from] = cell.from_leaf.empty() ? kUnknownLeaf : cell.from_leaf;
    out.leaf_of[cell.to] = cell.to_leaf.empty() ? kUnknownLeaf : cell.to_leaf;
  }
  const std::map<std::string, std::string> rows = rows_of(out.leaf_of);
  for (auto& [port, leaf] : out.leaf_of) leaf = rows.at(leaf);

  struct Work {
    LeafCell cell;
    std::vector<Nanos> medians;
  };
  std::map<std::pair<std::string, std::string>, Work> cells;
  for (const localise::MeshCell& cell : mesh) {
    if (keep && !keep(cell)) continue;
    Work& work = cells[{out.leaf_of.at(cell.from), out.leaf_of.at(cell.to)}];
    work.cell.sent += cell.sent;
    work.cell.lost += cell.lost;
    work.cell.ce += cell.ce;
    work.cell.ecn_capable += cell.ecn_capable;
    work.cell.paths += cell.paths;
    ++work.cell.pairs[cell.state];
    if (cell.rtt_p90_ns) work.cell.rtt_p90_ns = std::max(work.cell.rtt_p90_ns.value_or(0), *cell.rtt_p90_ns);
    if (cell.rtt_median_ns) work.medians.push_back(*cell.rtt_median_ns);
  }
  for (auto& [pair, work] : cells) {
    work.cell.from = pair.first;
    work.cell.to = pair.second;
    const std::map<std::string, unsigned>& pairs = work.cell.pairs;
    const auto worst =
        std::find_if(kStates.begin(), kStates.end(), [&](const char* state) { return pairs.count(state) != 0; });
    if (worst != kStates.end()) work.cell.state = *worst;
    if (!work.medians.empty()) {
      const auto middle = work.medians.begin() + static_cast<std::ptrdiff_t>(work.medians.size() / 2);
      std::nth_element(work.medians.begin(), middle, work.medians.end());
      work.cell.rtt_median_ns = *middle;
    }
    out.cells.push_back(std::move(work.cell));
  }
  return out;
}

}  // namespace weft::aggregator
