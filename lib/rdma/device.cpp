#include "lib/rdma/device.h"

#include <fcntl.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lib/base/files.h"
#include "lib/model/subject.h"
#include "lib/rdma/enum_number.h"

namespace weft::rdma {
namespace {

// rxe names itself by its vendor id (RXE_VENDOR_ID in the kernel's rxe_param.h) and a "parent" attribute in sysfs.
constexpr std::uint32_t kRxeVendorId = 0xFFFFFF;

model::PortState state_of(std::uint32_t state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return model::PortState::Down;
    case IBV_PORT_INIT:
      return model::PortState::Init;
    case IBV_PORT_ARMED:
      return model::PortState::Armed;
    case IBV_PORT_ACTIVE:
      return model::PortState::Active;
    case IBV_PORT_ACTIVE_DEFER:
      return model::PortState::ActiveDefer;
    default:
      return model::PortState::Unknown;
  }
}

model::LinkLayer layer_of(std::uint8_t layer) {
  switch (layer) {
    case IBV_LINK_LAYER_ETHERNET:
      return model::LinkLayer::Ethernet;
    case IBV_LINK_LAYER_INFINIBAND:
      return model::LinkLayer::InfiniBand;
    default:
      return model::LinkLayer::Unknown;
  }
}

model::GidEntry entry_of(const ibv_gid_entry& from) {
  model::GidEntry entry;
  entry.index = from.gid_index;
  std::copy_n(from.gid.raw, 16, entry.gid.raw.begin());
  switch (from.gid_type) {
    case IBV_GID_TYPE_IB:
      entry.type = model::GidType::InfiniBand;
      break;
    case IBV_GID_TYPE_ROCE_V1:
      entry.type = model::GidType::RoceV1;
      break;
    case IBV_GID_TYPE_ROCE_V2:
      entry.type = model::GidType::RoceV2;
      break;
    default:
      break;
  }
  char name[IF_NAMESIZE] = {};
  if (from.ndev_ifindex != 0 && if_indextoname(from.ndev_ifindex, name) != nullptr) entry.netdev = name;
  return entry;
}

struct DeviceList {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  int error = devices == nullptr ? errno : 0;
  DeviceList() = default;
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (devices != nullptr) ibv_free_device_list(devices);
  }
};

// The kernel has it, libibverbs does not list it: rdma-core (libibverbs/init.c) skips those without a character device
// and those that no provider library claims.
Error not_offered(const std::string& name, const DeviceRoots& roots, const SystemFiles& files) {
  const std::string where = "RDMA device " + name + ": ";
  const std::string verbs = roots.sys + "/class/infiniband_verbs";
  const auto nodes = files.list(verbs);
  if (!nodes)
    return make_error(Error::Kind::Unsupported,
                      where + "its kernel module ib_uverbs is not loaded (modprobe ib_uverbs)");
  for (const std::string& node : *nodes) {
    const auto of = read_trimmed(files, verbs + "/" + node + "/ibdev");
    if (!of || *of != name) continue;
    const std::string path = roots.dev + "/infiniband/" + node;
    if (::access(path.c_str(), F_OK) != 0)
      return make_error(Error::Kind::Unsupported,
                        where + path + " does not exist (mount devtmpfs, or pass the node into this container)");
    return make_error(Error::Kind::Unsupported,
                      where +
                          "libibverbs has no provider library for it (install ibverbs-providers of rdma-core, or "
                          "the provider that came with the NIC's driver)");
  }
  // It is coming or going.
  return make_error(Error::Kind::NotFound, where + "it has no uverbs node");
}

Error no_device(const DeviceList& list, const std::string& name, const DeviceRoots& roots) {
  const SystemFiles files;
  const bool valid = model::valid_name(name);
  if (valid && ::access((roots.sys + "/class/infiniband/" + name).c_str(), F_OK) == 0)
    return not_offered(name, roots, files);
  if (list.devices == nullptr || list.count == 0) {
    const bool module = ::access((roots.sys + "/class/infiniband_verbs").c_str(), F_OK) == 0;
    return make_error(module ? Error::Kind::NotFound : Error::Kind::Unsupported,
                      "RDMA device " + name + ": this host has none" +
                          (module ? "" : " and its kernel module ib_uverbs is not loaded (modprobe ib_uverbs)"));
  }
  std::string names;
  for (int i = 0; i < list.count; ++i) names += (i > 0 ? ", " : "") + std::string(ibv_get_device_name(list.devices[i]));
  return make_error(Error::Kind::NotFound, "RDMA device " + name + " does not exist; this host has: " + names);
}

}  // namespace

Device::Device(std::string name, ibv_context* context)
    : name_(std::move(name)), verbs_path_(context->device->dev_path), context_(context) {}

Device::~Device() {
  if (domain_ != nullptr) ibv_dealloc_pd(domain_);
  ibv_close_device(context_);
}

Result<std::unique_ptr<Device>> Device::open(const std::string& name, const DeviceRoots& roots) {
  const DeviceList list;
  ibv_device* found = nullptr;
  for (int i = 0; i < list.count && list.devices != nullptr; ++i)
    if (name == ibv_get_device_name(list.devices[i])) found = list.devices[i];
  if (found == nullptr) return no_device(list, name, roots);

  ibv_context* context = ibv_open_device(found);
  if (context == nullptr) {
    const std::string node = std::string("/dev/infiniband/") + found->dev_name;
    const int error = errno;
    Error failure = errno_error(error, "RDMA device " + name + ": cannot open " + node);
    if (failure.kind == Error::Kind::Permission) failure.context += " (give weft's user read and write access to it)";
    return failure;
  }
  std::unique_ptr<Device> device(new Device(name, context));
  if (const int error = ibv_query_device_ex(context, nullptr, &device->attributes_); error != 0)
    return errno_error(error, "RDMA device " + name + ": cannot query its attributes");
  device->domain_ = ibv_alloc_pd(context);
  if (device->domain_ == nullptr) return errno_error(errno, "RDMA device " + name + ": cannot allocate a domain");
  const std::string parent = std::string(found->ibdev_path) + "/parent";
  device->is_rxe_ = device->attributes_.orig_attr.vendor_id == kRxeVendorId && ::access(parent.c_str(), F_OK) == 0;

  const int flags = ::fcntl(context->async_fd, F_GETFL);
  if (flags < 0 || ::fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0)
    return errno_error(errno, "RDMA device " + name + ": cannot make its event descriptor non-blocking");
  return device;
}

bool Device::is_iwarp() const { return enum_number(context_->device->transport_type) == IBV_TRANSPORT_IWARP; }

bool Device::is_present() const { return ::access(verbs_path_.c_str(), F_OK) == 0; }

Result<model::GidEntry> Device::query_gid(unsigned port, unsigned index) const {
  ibv_gid_entry raw{};
  // rdma-core falls back to sysfs (gids/, gid_attrs/) by itself where the kernel lacks the call.
  const int error = ibv_query_gid_ex(context_, port, index, &raw, 0);
  if (error == ENODATA)
    return make_error(Error::Kind::NoData, port_name(port) + ": GID index " + std::to_string(index) + " is empty");
  if (error != 0) return errno_error(error, port_name(port) + ": cannot read GID index " + std::to_string(index));
  model::GidEntry entry = entry_of(raw);
  if (entry.gid.is_zero())
    return make_error(Error::Kind::NoData, port_name(port) + ": GID index " + std::to_string(index) + " is empty");
  return entry;
}

Result<PortInfo> Device::query_port(unsigned port) const {
  const unsigned ports = attributes_.orig_attr.phys_port_cnt;
  if (port == 0 || port > ports)
    return make_error(Error::Kind::NotFound,
                      port_name(port) + " does not exist; the device has " + std::to_string(ports) + " port(s)");
  ibv_port_attr raw{};
  if (const int error = ibv_query_port(context_, static_cast<std::uint8_t>(port), &raw); error != 0)
    return errno_error(error, port_name(port) + ": cannot query the port");

  PortInfo info;
  info.port.number = port;
  info.port.state = state_of(enum_number(raw.state));
  info.port.link_layer = layer_of(raw.link_layer);
  if (const std::uint32_t mtu = enum_number(raw.active_mtu); mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096)
    info.port.active_mtu_bytes = 128u << mtu;
  if (raw.lid != 0) info.port.lid = raw.lid;
  info.grh_required = info.port.link_layer == model::LinkLayer::Ethernet || (raw.flags & IBV_QPF_GRH_REQUIRED) != 0;

  constexpr int kMaxGids = 1024;  // drivers offer up to 256
  for (int index = 0; index < std::min(raw.gid_tbl_len, kMaxGids); ++index) {
    auto entry = query_gid(port, static_cast<unsigned>(index));
    if (!entry) continue;  // one unreadable slot never hides another
    if (info.port.netdev.empty() && !entry->netdev.empty()) info.port.netdev = entry->netdev;
    info.port.gids.push_back(std::move(*entry));
  }
  return info;
}

std::optional<AsyncEvent> Device::next_event() {
  ibv_async_event raw{};
  if (ibv_get_async_event(context_, &raw) != 0) return std::nullopt;
  AsyncEvent event;
  switch (enum_number(raw.event_type)) {
    case IBV_EVENT_DEVICE_FATAL:
      event.kind = DeviceEvent::Gone;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      event.kind = DeviceEvent::QueuePairFatal;
      event.queue_pair = raw.element.qp->qp_num;
      break;
    case IBV_EVENT_GID_CHANGE:
      event.kind = DeviceEvent::GidsChanged;
      break;
    default:
      break;
  }
  ibv_ack_async_event(&raw);
  return event;
}

}  // namespace weft::rdma
