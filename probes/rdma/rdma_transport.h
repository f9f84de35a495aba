// The probe transport over UD queue pairs of one RDMA port (probes/ping/transport.h has the contract).
// Declared whatever the build has; without libibverbs it returns Unsupported with the reason.
// Where the source port of a queue pair is fixed (rxe), each lane is a queue pair of its own; elsewhere one queue pair
// a role serves a spread of ports by flow label.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "probes/ping/transport.h"

namespace weft::probes {

struct RdmaTransportOptions {
  std::string device;                 // "rxe0"
  unsigned port = 1;                  // physical port of the device
  std::optional<unsigned> gid_index;  // chosen by rule when absent (lib/rdma/gid_choice.h)
  unsigned prober_ports = 8;          // source ports to begin with; more by want_ports
  unsigned responder_ports = 4;
  std::size_t max_payload_bytes = 1024;  // at most the path MTU: a larger one is refused, naming both
  unsigned receive_buffers = 0;          // of a lane; 0: enough for 200 ms of 1,024 peers, on rxe 128 a lane
  bool responder = true;                 // false: no responder lanes (a tool that only asks)
  const Clock* clock = nullptr;          // the system's when null; outlives the transport
};

// Opens the device and makes its queue pairs. The error names device, port, GID and step, and says what to do:
// Unsupported (no UD here, or not in this build), NotFound (no such device or port), Permission (uverbs node),
// Invalid (GID index, payload size), Transient (port not active; no GID yet).
// poll() of the result fails with NotFound within a second after the device left, or its GID changed: close it then, so
// that the kernel can let the device go, and open anew.
Result<std::unique_ptr<Transport>> open_rdma_transport(const RdmaTransportOptions& options);

}  // namespace weft::probes
