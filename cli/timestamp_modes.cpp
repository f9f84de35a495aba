#include "cli/timestamp_modes.h"

#include <memory>
#include <utility>
#include <vector>

#include "cli/bounded_call.h"
#include "probes/rdma/rdma_transport.h"

namespace weft::cli {
namespace {

constexpr std::size_t kSmallPayload = 256;  // fits every MTU there is

using Rung = Result<model::TimestampRung>;

}  // namespace

std::map<std::string, TimestampNote> timestamp_modes(const model::Inventory& inventory, const DirectOptions& options,
                                                     Nanos within_ns, const Clock& clock, const DirectParts& parts) {
  const Nanos until = clock.monotonic_ns() + within_ns;
  std::vector<std::pair<std::string, BoundedCall<Rung>>> calls;
  for (const auto& device : inventory.devices) {
    if (!options.device.empty() && device.name != options.device) continue;
    for (const auto& port : device.ports) {
      if (port.state != model::PortState::Active) continue;
      probes::RdmaTransportOptions rdma;
      rdma.device = device.name;
      rdma.port = port.number;
      rdma.gid_index = options.gid_index;
      rdma.prober_ports = rdma.responder_ports = 1;
      rdma.responder = false;
      rdma.max_payload_bytes = kSmallPayload;
      calls.emplace_back(device.name + "/" + std::to_string(port.number),
                         BoundedCall<Rung>([open = parts.open_rdma, rdma]() -> Rung {
                           auto transport = open(rdma);
                           if (!transport) return transport.error();
                           return (*transport)->rung();
                         }));
    }
  }
  std::map<std::string, TimestampNote> out;
  for (auto& [name, call] : calls) {
    const auto rung = call.wait(until - clock.monotonic_ns());
    TimestampNote& note = out[name];
    if (!rung) {
      note.why = gave_up("opening the RDMA device", within_ns).message();
    } else if (!*rung) {
      note.why = rung->error().message();
    } else {
      note.rung = **rung;
    }
  }
  return out;
}

}  // namespace weft::cli
