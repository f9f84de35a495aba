// An open RDMA device: verbs context and protection domain, closed together.
// No state outside the object. Not thread safe except where said. Holding one blocks `rdma link delete` on drivers
// that cannot disassociate (rxe), so whoever holds it watches is_present() and uevents, and closes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/device.h"

namespace weft::rdma {

struct PortInfo {
  model::RdmaPort port;       // with its GIDs
  bool grh_required = false;  // IBV_QPF_GRH_REQUIRED (some InfiniBand fabrics); on Ethernet always
};

enum class DeviceEvent : std::uint8_t { Gone, QueuePairFatal, GidsChanged, Other };

struct AsyncEvent {
  DeviceEvent kind = DeviceEvent::Other;
  std::uint32_t queue_pair = 0;  // of QueuePairFatal
};

// Where to look for a device that libibverbs does not list.
struct DeviceRoots {
  std::string sys = "/sys", dev = "/dev";
};

class Device {
 public:
  // NotFound with the names that exist; Permission with the node; Unsupported when this kernel has no RDMA at all, or
  // has the device but libibverbs cannot offer it: no provider library, no character device.
  static Result<std::unique_ptr<Device>> open(const std::string& name, const DeviceRoots& roots = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  const ibv_device_attr_ex& attributes() const { return attributes_; }
  // "rxe0 port 1": how every error names it.
  std::string port_name(unsigned port) const { return name_ + " port " + std::to_string(port); }

  bool is_iwarp() const;
  // Software RoCE: UD source ports are fixed per queue pair, and its extended completion queues are not trusted.
  bool is_rxe() const { return is_rxe_; }
  // The device node still exists. Thread safe; one access(2).
  bool is_present() const;

  Result<PortInfo> query_port(unsigned port) const;
  // NoData when the slot is empty.
  Result<model::GidEntry> query_gid(unsigned port, unsigned index) const;

  // Readable when next_event has something. Never blocks.
  int event_fd() const { return context_->async_fd; }
  std::optional<AsyncEvent> next_event();

 private:
  Device(std::string name, ibv_context* context);
  std::string name_;
  std::string verbs_path_;  // /sys/class/infiniband_verbs/uverbs0
  ibv_context* context_;
  ibv_pd* domain_ = nullptr;
  ibv_device_attr_ex attributes_{};
  bool is_rxe_ = false;
};

}  // namespace weft::rdma
