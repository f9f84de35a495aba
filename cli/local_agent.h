// Is weftd running on this host, and what does it say of itself.
#pragma once

#include <string>

#include "cli/status_report.h"
#include "lib/base/clock.h"

namespace weft::cli {

// Reads its metrics page. Never fails: what went wrong is in the text.
AgentState ask_local_agent(const std::string& url, Nanos deadline_ns);
// Pure: what a metrics page says in a few words.
AgentState agent_state_of(const std::string& metrics_page);

}  // namespace weft::cli
