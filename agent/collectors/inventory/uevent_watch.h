// Tells when RDMA devices and network interfaces come and go, from the kernel's uevents.
// Why it matters: drivers that cannot disassociate (rxe) let `rdma link delete` hang for as long as anyone holds a
// verbs context. Measured on kernel 6.1, `rdma link delete rxe0` with a context open: first
// "remove .../infiniband_verbs/uverbs0", at once and before the kernel waits; "remove .../infiniband/rxe0" comes only
// after the last context was closed. So the holder must close on the removal of the *uverbs* node. Coming back:
// "add .../infiniband_verbs/uverbs0", 3 ms later "add .../infiniband/rxe0"; GIDs may be a little later still.
// The same in other words: DeviceEvent::Removed means close now; Added means try to open, again if Transient.
// One thread. Text from outside the kernel, too long, or in no known shape is ignored and counted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/collectors/inventory/netlink_source.h"
#include "lib/base/files.h"
#include "lib/base/result.h"

namespace weft::inventory {

enum class UeventAction : std::uint8_t { Add, Remove, Change, Move };
enum class UeventSubsystem : std::uint8_t { InfiniBand, InfiniBandVerbs, Net };

struct Uevent {
  UeventAction action = UeventAction::Change;
  UeventSubsystem subsystem = UeventSubsystem::Net;
  std::string name;  // last part of the device path: "rxe0", "uverbs0", "eth0"
  bool operator==(const Uevent&) const = default;
};

// "add@/devices/...\0ACTION=add\0SUBSYSTEM=...\0...". Malformed: not a uevent. NoData: one of another subsystem or
// action. At most 8 KiB are looked at. Pure.
Result<Uevent> parse_uevent(std::string_view bytes);

struct DeviceEvent {
  enum class Kind : std::uint8_t {
    Added,      // device: an RDMA device
    Removed,    // device: close it now. May come twice for one removal
    Interface,  // device: a network interface came, went or changed its name
    Lost        // events were dropped or a device was renamed: read everything anew
  };
  Kind kind = Kind::Lost;
  std::string device;
  bool operator==(const DeviceEvent&) const = default;
};

struct UeventCounts {
  std::uint64_t received = 0;
  std::uint64_t other = 0;      // of subsystems weft does not care for
  std::uint64_t malformed = 0;  // ignored
  std::uint64_t overruns = 0;   // the kernel dropped some
};

class UeventWatch {
 public:
  // files and sys_root tell which device a uverbs node belongs to.
  UeventWatch(std::unique_ptr<NetlinkSource> source, const FileReader& files, std::string sys_root);

  // Readable when take() has something.
  int fd() const { return source_->fd(); }
  // What happened since the last call, oldest first; at most 256 at once. A failure of the socket is an error.
  Result<std::vector<DeviceEvent>> take();
  const UeventCounts& counts() const { return counts_; }

 private:
  void learn_nodes();
  void translate(const Uevent& event, std::vector<DeviceEvent>& out);

  std::unique_ptr<NetlinkSource> source_;
  const FileReader& files_;
  const std::string sys_root_;
  std::map<std::string, std::string> device_of_node_;  // "uverbs0" -> "rxe0", also after the node has gone
  UeventCounts counts_;
};

}  // namespace weft::inventory
