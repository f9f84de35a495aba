// Who stamps probes over each RDMA port of this host: known only to the device, so it is opened for a moment.
#pragma once

#include <map>
#include <string>

#include "cli/direct.h"
#include "cli/status_report.h"
#include "lib/base/clock.h"
#include "lib/model/device.h"

namespace weft::cli {

// By "rxe0/1", of active ports (of options.device when it is given). All devices open side by side within the time; one
// that fails or blocks has its reason and hides no other.
std::map<std::string, TimestampNote> timestamp_modes(const model::Inventory& inventory, const DirectOptions& options,
                                                     Nanos within_ns, const Clock& clock, const DirectParts& parts);

}  // namespace weft::cli
