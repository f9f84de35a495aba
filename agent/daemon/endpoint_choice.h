// Which local addresses to probe from: each allowed RDMA device port, else (no RDMA device that can be used) UDP on
// interfaces. Pure, except list_interfaces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/daemon/settings.h"
#include "lib/base/files.h"
#include "lib/base/result.h"
#include "lib/model/device.h"

namespace weft::agent {

struct NetInterface {
  std::string name;
  std::string address;  // IP text
  unsigned prefix_length = 0;
  bool up = false;
  bool loopback = false;
  bool hardware = false;  // has a device behind it, so is no bridge, tunnel or veth
};

struct EndpointSpec {
  std::string device;  // name in paths and subjects: "rxe0"; "mlx5_0.2" for a second port; "eth0" over UDP
  bool rdma = false;
  std::string rdma_device;  // RDMA only
  unsigned rdma_port = 1;
  std::string address;  // UDP only, IP text
  std::string netdev;
  std::optional<std::uint64_t> rate_bits_per_s;
  bool ready = true;  // port ACTIVE; an endpoint already open stays open while it is not
  // The same endpoint: what is open may go on.
  bool same_place(const EndpointSpec& other) const {
    return device == other.device && rdma == other.rdma && rdma_device == other.rdma_device &&
           rdma_port == other.rdma_port && address == other.address;
  }
};

// An RDMA endpoint that this host or build cannot open.
struct RdmaRefusal {
  EndpointSpec spec;
  Error error;  // Unsupported or Permission; the context names the step
  bool operator==(const RdmaRefusal& other) const {
    return spec.same_place(other.spec) && error.kind == other.error.kind && error.message() == other.error.message();
  }
};

struct EndpointChoice {
  std::vector<EndpointSpec> specs;
  std::vector<model::Limitation> limitations;
};

// rdma_seen: a port of an allowed RDMA device was there before. In automatic choice such a host does not fall back to
// UDP when the device is gone: other paths would be measured under the same host's name. A device that was listed and
// could never be read, as its driver blocks, does not count.
// refused: not empty when every RDMA endpoint was tried and none can be opened. In automatic choice UDP then probes
// beside them, from the interfaces of these RDMA ports where they have addresses; the RDMA endpoints stay in the choice
// and so are tried again.
EndpointChoice choose_endpoints(const model::Inventory& inventory, const std::vector<NetInterface>& interfaces,
                                const ProbeSettings& settings, bool rdma_seen,
                                const std::vector<RdmaRefusal>& refused = {});

bool device_allowed(const ProbeSettings& settings, const std::string& rdma_device);

// Addresses of this host; IPv4 first. sys_root tells which interfaces have hardware.
Result<std::vector<NetInterface>> list_interfaces(const FileReader& files, const std::string& sys_root);

}  // namespace weft::agent
