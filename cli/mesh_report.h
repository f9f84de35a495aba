// A mesh of pairs for people and as JSON. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "lib/localise/localiser.h"

namespace weft::cli {

// Worst first: silent and lossy, then marked, then late, then unknown, then by round trip.
void sort_cells(std::vector<localise::MeshCell>& cells);
bool cell_counts(const localise::MeshCell& cell);  // makes the exit code 1
// A matrix when it fits the width and there is more than one row, then the pairs that are not ok (all of them when
// there are at most max_rows).
std::string mesh_report(std::vector<localise::MeshCell> cells, std::size_t width, std::size_t max_rows,
                        const Paint& paint);
nlohmann::json mesh_json(const std::vector<localise::MeshCell>& cells);

}  // namespace weft::cli
