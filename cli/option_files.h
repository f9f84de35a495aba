// The files that options name, read before anything is measured: one that is missing is a wrong option.
#pragma once

#include "cli/options.h"
#include "cli/route_names.h"
#include "lib/base/files.h"
#include "lib/base/result.h"
#include "probes/packet/fabric_key.h"

namespace weft::cli {

struct OptionFiles {
  RouteNames names;       // of --topology; none without it
  probes::FabricKey key;  // of --key-file; the well-known one without it
};

// Invalid with the option and, of what is wrong inside a topology, line and column; Permission.
Result<OptionFiles> read_option_files(const DirectOptions& options, const FileReader& files = SystemFiles());

}  // namespace weft::cli
