// A mesh row measured from this host now, with no aggregator, and what can be localised from it.
#pragma once

#include <string>
#include <vector>

#include "cli/exit_code.h"
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
  std::vector<std::string> missing;      // hosts that could not be measured, each with its reason
};

// Runs for duration_ns or until Ctrl-C.
Result<DirectMesh> measure_mesh(const MeshOptions& options, const Clock& clock);

// Pure. Loss, marks or a finding: 1; else 3 when some host could not be measured; else 0.
ExitCode direct_mesh_exit(const std::vector<localise::MeshCell>& cells, bool any_finding);
// Pure: a pair's state from its counts. unsure: see PingSummary.
std::string cell_state(const localise::MeshCell& cell, bool answered, bool unsure);

}  // namespace weft::cli
