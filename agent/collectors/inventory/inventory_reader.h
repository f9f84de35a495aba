// What RDMA devices this host has, read from sysfs; works with no libibverbs and no RDMA at all.
// Every value stands alone: a file, port or device that cannot be read leaves only itself absent, and what is missing
// for measuring is told as a Limitation with the way out. Bounded: at most 256 devices, 256 ports, 1,024 GIDs a port
// and 64 limitations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/files.h"
#include "lib/model/device.h"

namespace weft::inventory {

// Which GID slots were in use. A port has up to 1,024 of them, each a file, and hardly any is used: with this memory a
// read looks at those and at the lowest free ones, which the kernel fills first (kernel ib_cache_gid_add), and only
// every twentieth at all of them. Not shared between reads that run at once.
class GidMemory {
 public:
  static constexpr unsigned kReadsBetweenScans = 20;
  static constexpr unsigned kFreeSlots = 8;

  struct Port {
    std::set<unsigned> used;
    unsigned reads = 0;  // since the last scan of all
  };
  Port& of(const std::string& port_path) {
    if (ports_.size() >= kMaxPorts && ports_.count(port_path) == 0) ports_.clear();
    return ports_[port_path];
  }

 private:
  static constexpr std::size_t kMaxPorts = 4096;
  std::map<std::string, Port> ports_;
};

struct InventoryOptions {
  std::string sys_root = "/sys";
  std::string dev_root = "/dev";
  std::string host;  // name in the subjects of limitations
  // May this process open the device node for reading and writing? access(2) when empty.
  std::function<Result<void>(const std::string& path)> can_open;
  GidMemory* gids = nullptr;  // null: every slot is read
};

// Values that a device did not give. absent: not for this device or port, which is usual (ENOENT, EINVAL, EOPNOTSUPP);
// failed: any other error, also told as a limitation.
struct ReadCounts {
  std::uint64_t absent = 0, failed = 0;
};

// What there is to read. Asks no driver.
struct Listing {
  std::vector<std::string> devices;
  std::map<std::string, std::string> nodes;  // device name -> "uverbs0"
  bool has_verbs = false;
  std::vector<model::Limitation> limitations;
};
Listing list_devices(const FileReader& files, const InventoryOptions& options);

struct DeviceReading {
  model::RdmaDevice device;
  std::vector<model::Limitation> limitations;
  ReadCounts counts;
};
// One device of the listing. Blocks for as long as its driver or firmware likes; safe beside reads of other devices
// when each has a GidMemory of its own.
DeviceReading read_device(const FileReader& files, const InventoryOptions& options, const Listing& listing,
                          const std::string& name);

// Listing and reading of all in turn: fills devices and limitations; host is copied; kernel, version and endpoints are
// left to the caller.
model::Inventory read_inventory(const FileReader& files, const InventoryOptions& options);
model::Inventory read_inventory(const FileReader& files, const std::string& sys_root, const std::string& host);

// Within the bound on limitations.
void add_limitations(model::Inventory& inventory, const std::vector<model::Limitation>& more);

// "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)" to bits/s; absent on anything else and on 0.
std::optional<std::uint64_t> parse_rate_bits_per_s(std::string_view text);
// "4: ACTIVE", also "4: ACTIVE_DEFER" spelled with the state's number alone.
model::PortState parse_port_state(std::string_view text);
// MTU of RoCE packets on an interface of this MTU (kernel iboe_get_mtu): absent below 256.
std::optional<std::uint32_t> roce_mtu_bytes(std::uint32_t interface_mtu_bytes);

}  // namespace weft::inventory
