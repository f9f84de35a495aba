#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/host_inventory.h"
#include "cli/local_agent.h"
#include "cli/status_report.h"
#include "cli/timestamp_modes.h"
#include "lib/rdma/gid_choice.h"
#include "probes/trace/raw_socket.h"

namespace weft::cli {

ExitCode run_status(const StatusOptions& o, Output& output, const Clock& clock) {
  StatusReport report;
  const Nanos until = clock.monotonic_ns() + o.deadline_ns;
  auto inventory = host_inventory(o.direct.sys_root, o.deadline_ns);
  if (!inventory) return output.fail("status", inventory.error());
  report.inventory = std::move(*inventory);
  report.limitations = report.inventory.limitations;
  for (const auto& device : report.inventory.devices) {
    if (!o.direct.device.empty() && device.name != o.direct.device) continue;
    for (const auto& port : device.ports) {
      GidNote& note = report.gid_by_port[device.name + "/" + std::to_string(port.number)];
      auto choice = rdma::choose_gid(device.name, port, o.direct.gid_index);
      if (choice) {
        note.index = choice->entry.index;
        note.reason = choice->reason;
      } else {
        note.reason = choice.error().message();
      }
    }
  }
  // Half of what is left: a device that blocks still leaves time to ask weftd.
  report.timestamps_by_port =
      timestamp_modes(report.inventory, o.direct, (until - clock.monotonic_ns()) / 2, clock, system_parts());
  if (auto socket = probes::open_trace_socket(); !socket) {
    report.limitations.push_back({"paths", socket.error().message(), ""});
  }
  report.agent = ask_local_agent(o.agent, until - clock.monotonic_ns());
  const ExitCode code = status_exit(report);
  if (output.json) return output.finish_json("status", code, status_json(report));
  output.out << status_report(report, output.width, output.paint);
  if (!report.agent.answers) {
    output.out << "\nnext: weft responder (answers probes without weftd), weft ping HOST\n";
  }
  output.out << std::flush;
  return code;
}

}  // namespace weft::cli
