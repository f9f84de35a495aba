// This host for people and as JSON. Pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "lib/model/device.h"
#include "lib/model/path.h"

namespace weft::cli {

struct GidNote {
  std::optional<unsigned> index;  // the one probes use
  std::string reason;
};

// Who stamps probes over a port.
struct TimestampNote {
  std::optional<model::TimestampRung> rung;
  std::string why;  // why it is not known
};

struct AgentState {
  bool answers = false;
  std::string text;  // "not running: connection refused", "up, 3 peers, ..."
};

struct StatusReport {
  model::Inventory inventory;
  std::map<std::string, GidNote> gid_by_port;               // "rxe0/1"
  std::map<std::string, TimestampNote> timestamps_by_port;  // ports that are active
  AgentState agent;
  std::vector<model::Limitation> limitations;  // the inventory's and what the CLI itself found
};

std::string status_report(const StatusReport& report, std::size_t width, const Paint& paint);
nlohmann::json status_json(const StatusReport& report);
// A port that is not active 1; no way to measure at all 3; else 0 (limitations alone are no failure).
ExitCode status_exit(const StatusReport& report);

}  // namespace weft::cli
