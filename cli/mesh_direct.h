// A mesh row measured from this host now, with no aggregator, and what can be localised from it.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/localise/localiser.h"
#include "lib/model/finding.h"

namespace weft::cli {

struct DirectMesh {
  std::string local;
  std::vector<localise::MeshCell> cells;
  std::vector<model::Finding> findings;  // times are monotonic
  std::vector<std::string> notes;        // what limits this measurement
};

// Runs for duration_ns or until Ctrl-C.
Result<DirectMesh> measure_mesh(const MeshOptions& options, const Clock& clock);

// Pure: a pair's state from its counts.
std::string cell_state(const localise::MeshCell& cell, bool answered);

}  // namespace weft::cli
