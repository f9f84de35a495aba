// Traced paths for people and as JSON. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/exit_code.h"
#include "cli/route_names.h"
#include "cli/terminal.h"
#include "probes/trace/trace_schedule.h"

namespace weft::cli {

struct TraceReport {
  std::string host, address, local;
  std::string note;  // what limits this trace
  std::string send_error;
  bool scouted = false;  // hop count and ports come from the host's responder
  bool finished = false;
  bool stopped = false;  // by Ctrl-C
  std::vector<probes::TraceView> views;
  probes::TraceStats stats;
};

std::string trace_report(const TraceReport& report, const RouteNames& names, const Paint& paint);
nlohmann::json trace_json(const TraceReport& report, const RouteNames& names);
// Nothing answered where something should have: 3. Unfinished at the deadline: 124. Else 0: silence is unknown.
ExitCode trace_exit(const TraceReport& report);

}  // namespace weft::cli
