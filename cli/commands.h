// The commands, one .cpp each. Each runs in the caller's thread until done, Ctrl-C (stop.h) or its deadline, and
// writes to the Output given.
#pragma once

#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/clock.h"

namespace weft::cli {

ExitCode run_ping(const PingOptions& options, Output& output, const Clock& clock);
ExitCode run_trace(const TraceOptions& options, Output& output, const Clock& clock);
ExitCode run_mesh(const MeshOptions& options, Output& output, const Clock& clock);
ExitCode run_findings(const FindingsOptions& options, Output& output, const Clock& clock);
ExitCode run_status(const StatusOptions& options, Output& output, const Clock& clock);
ExitCode run_responder(const ResponderOptions& options, Output& output, const Clock& clock);
ExitCode run_version(const VersionOptions& options, Output& output, const Clock& clock);

}  // namespace weft::cli
