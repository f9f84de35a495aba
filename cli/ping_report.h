// A ping summary for people and as JSON. Pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "cli/exit_code.h"
#include "cli/ping_stats.h"
#include "cli/route_names.h"
#include "cli/terminal.h"

namespace weft::cli {

struct HostReport {
  std::string host;  // as asked
  std::string address;
  std::string local;              // "rdma rxe0 GID 1 10.0.1.2", "udp eth0 10.0.1.2"
  std::string local_why;          // why this place and this GID of it
  bool tried = true;              // false: not measured at all, for the reason in trouble
  bool answered = false;          // the hello was answered
  std::string trouble;            // why not, or what failed since, in words
  std::size_t payload_bytes = 0;  // of the probes, when more than the smallest was asked for
  PingSummary summary;
  std::map<std::uint16_t, WayThere> path_by_port;
  std::string path_note;  // why paths are missing
};

// One probe as a line: "h3 #12: 45.2 us ...".
std::string outcome_line(const std::string& host, const probes::ProbeOutcome& outcome, bool show_port,
                         const Paint& paint);
std::string ping_report(const HostReport& report, const Paint& paint);
nlohmann::json ping_json(const HostReport& report);
// Why nothing was measured, in words; empty when nobody said.
std::string ping_trouble(const HostReport& report);
// The same of a summary that is unsure().
std::string unsure_text(const PingSummary& summary);
// Loss or marks 1; nobody answered or nothing could be judged 3; else 0. Large probes none of which came through are no
// loss: the hello did come through, and whatever carries fewer bytes on the way drops them in silence.
ExitCode ping_exit(const HostReport& report);
// What to do next, one sentence; empty when there is nothing.
std::string ping_hint(const HostReport& report);

}  // namespace weft::cli
