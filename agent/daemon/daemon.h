// The process around the pipeline: main loop (asio), signals, timers, sources read off the loop, service manager.
#pragma once

#include <string>

#include "agent/daemon/host_features.h"
#include "agent/daemon/settings.h"

namespace weft::agent {

struct DaemonOptions {
  std::string config_path;  // read again on SIGHUP; empty: none
  std::string host_name;    // default of agent.name
  std::string log_level;    // of the command line: wins over the file
  Roots roots;
};

// Runs until SIGTERM or SIGINT. The exit status: 0 stopped as asked, 1 could not start (said on the log).
int run_daemon(const DaemonOptions& options, Settings settings);

}  // namespace weft::agent
