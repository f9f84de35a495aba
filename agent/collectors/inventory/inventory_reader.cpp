#include "agent/collectors/inventory/inventory_reader.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>

#include "lib/model/subject.h"
#include "lib/rdma/gid_choice.h"

namespace weft::inventory {
namespace {

constexpr std::size_t kMaxDevices = 256;
constexpr std::size_t kMaxPorts = 256;
constexpr std::size_t kMaxGids = 1024;
constexpr std::size_t kMaxLimitations = 64;

std::optional<std::uint64_t> parse_number(std::string_view text, int base = 10) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Lister {
 public:
  Lister(const FileReader& files, const InventoryOptions& options) : files_(files), options_(options) {}

  Listing run() {
    const auto names = files_.list(class_root());
    if (!names) {
      no_class(names.error());
      return std::move(out_);
    }
    read_verbs_nodes();
    for (const std::string& name : *names) {
      if (out_.devices.size() >= kMaxDevices) break;
      if (model::valid_name(name)) out_.devices.push_back(name);
    }
    if (out_.devices.empty())
      limit(model::host_subject(options_.host), "this host has no RDMA device",
            "load the NIC's RDMA driver (mlx5_ib, bnxt_re, irdma), or try software RoCE: rdma link add rxe0 type rxe "
            "netdev INTERFACE; without, weft probes over UDP");
    return std::move(out_);
  }

 private:
  std::string class_root() const { return options_.sys_root + "/class/infiniband"; }

  void limit(std::string subject, std::string why, std::string how) {
    out_.limitations.push_back({std::move(subject), std::move(why), std::move(how)});
  }

  void no_class(const Error& error) {
    const std::string subject = model::host_subject(options_.host);
    if (error.kind == Error::Kind::NotFound)
      limit(subject, "this kernel has no RDMA: " + class_root() + " does not exist",
            "modprobe ib_uverbs and the NIC's RDMA driver (mlx5_ib, bnxt_re, irdma; rdma_rxe for software RoCE); "
            "without, weft probes over UDP");
    else
      limit(subject, "RDMA devices cannot be listed: " + error.message(), "let weft's user read " + class_root());
  }

  void read_verbs_nodes() {
    const std::string root = options_.sys_root + "/class/infiniband_verbs";
    const auto nodes = files_.list(root);
    out_.has_verbs = nodes.has_value();
    if (!nodes) return;
    for (const std::string& node : *nodes)
      if (auto device = read_trimmed(files_, root + "/" + node + "/ibdev"); device && out_.nodes.size() < kMaxDevices)
        out_.nodes[*device] = node;
  }

  const FileReader& files_;
  const InventoryOptions& options_;
  Listing out_;
};

// One read of one device. Collects limitations as it goes.
class Reader {
 public:
  Reader(const FileReader& files, const InventoryOptions& options, const Listing& listing)
      : files_(files), options_(options), listing_(listing) {}

  DeviceReading run(const std::string& name) {
    const std::string root = class_root() + "/" + name;
    const std::string subject = model::rnic_subject(options_.host, name);
    model::RdmaDevice& device = out_.device;
    device.name = name;
    device.driver = driver_of(root);
    device.node_guid = value(subject, root + "/node_guid").value_or("");
    device.firmware = value(subject, root + "/fw_ver").value_or("");
    // "4: RNIC" is iWARP (kernel rdma_node_type).
    const bool iwarp = value(subject, root + "/node_type").value_or("").starts_with("4:");

    const auto ports = files_.list(root + "/ports");
    if (!ports) limit(subject, "its ports cannot be listed: " + ports.error().message(), "check the driver");
    for (const std::string& text : ports.value_or(std::vector<std::string>{})) {
      const auto number = parse_number(text);
      if (!number || *number == 0 || *number > kMaxPorts || device.ports.size() >= kMaxPorts) continue;
      device.ports.push_back(read_port(name, static_cast<unsigned>(*number)));
    }
    std::sort(device.ports.begin(), device.ports.end(),
              [](const auto& left, const auto& right) { return left.number < right.number; });
    judge_device(device, iwarp);
    return std::move(out_);
  }

 private:
  std::string class_root() const { return options_.sys_root + "/class/infiniband"; }

  void limit(std::string subject, std::string why, std::string how) {
    if (out_.limitations.size() < kMaxLimitations)
      out_.limitations.push_back({std::move(subject), std::move(why), std::move(how)});
  }

  // The trimmed text of a value that may be missing. A missing file or an EINVAL (not for this port) is counted only;
  // any other failure is also told, once a file.
  std::optional<std::string> value(const std::string& subject, const std::string& path) {
    auto text = read_trimmed(files_, path);
    if (text) return std::move(*text);
    const Error& error = text.error();
    const bool absent = error.kind == Error::Kind::NotFound || error.kind == Error::Kind::Unsupported ||
                        error.error_number == EINVAL || error.error_number == ENOTDIR;
    ++(absent ? out_.counts.absent : out_.counts.failed);
    if (!absent) limit(subject, "a value cannot be read: " + error.message(), "see the kernel log for this device");
    return std::nullopt;
  }

  std::string driver_of(const std::string& root) {
    // A device name says nothing about its driver: udev renames devices.
    if (const auto link = files_.read_link(root + "/device/driver"); link) {
      const auto slash = link->find_last_of('/');
      return slash == std::string::npos ? *link : link->substr(slash + 1);
    }
    // Software devices have no bus device. Of those in the kernel only rxe names its interface in "parent".
    return files_.read(root + "/parent") ? "rxe" : "";
  }

  model::RdmaPort read_port(const std::string& device, unsigned number) {
    const std::string root = class_root() + "/" + device + "/ports/" + std::to_string(number);
    const std::string subject = model::port_subject(options_.host, device, number);
    model::RdmaPort port;
    port.number = number;
    if (const auto text = value(subject, root + "/state")) port.state = parse_port_state(*text);
    if (const auto text = value(subject, root + "/link_layer"))
      port.link_layer = *text == "Ethernet"     ? model::LinkLayer::Ethernet
                        : *text == "InfiniBand" ? model::LinkLayer::InfiniBand
                                                : model::LinkLayer::Unknown;
    if (const auto text = value(subject, root + "/rate")) port.rate_bits_per_s = parse_rate_bits_per_s(*text);
    if (const auto text = value(subject, root + "/lid"); text && text->starts_with("0x"))
      if (const auto lid = parse_number(std::string_view(*text).substr(2), 16); lid && *lid > 0 && *lid <= 0xFFFF)
        port.lid = static_cast<std::uint16_t>(*lid);
    read_gids(subject, root, port);
    if (port.netdev.empty()) port.netdev = read_trimmed(files_, class_root() + "/" + device + "/parent").value_or("");
    if (port.link_layer == model::LinkLayer::Ethernet && model::valid_name(port.netdev))
      if (const auto text = value(subject, options_.sys_root + "/class/net/" + port.netdev + "/mtu"))
        if (const auto mtu = parse_number(*text); mtu && *mtu <= 1'000'000)
          port.active_mtu_bytes = roce_mtu_bytes(static_cast<std::uint32_t>(*mtu));
    return port;
  }

  void read_gids(const std::string& subject, const std::string& root, model::RdmaPort& port) {
    GidMemory::Port* memory = options_.gids != nullptr ? &options_.gids->of(root) : nullptr;
    if (memory != nullptr && memory->reads != 0) {
      read_likely_gids(subject, root, *memory, port);
    } else {
      read_all_gids(subject, root, port);
    }
    if (memory != nullptr) {
      memory->reads = (memory->reads + 1) % GidMemory::kReadsBetweenScans;
      memory->used.clear();
      for (const model::GidEntry& entry : port.gids) memory->used.insert(entry.index);
    }
    std::sort(port.gids.begin(), port.gids.end(),
              [](const auto& left, const auto& right) { return left.index < right.index; });
    for (const model::GidEntry& entry : port.gids)
      if (port.netdev.empty()) port.netdev = entry.netdev;
  }

  void read_all_gids(const std::string& subject, const std::string& root, model::RdmaPort& port) {
    const auto slots = files_.list(root + "/gids");
    if (!slots) return;
    for (const std::string& slot : *slots) {
      const auto index = parse_number(slot);
      if (index && *index < kMaxGids) read_gid(subject, root, static_cast<unsigned>(*index), port);
    }
  }

  void read_likely_gids(const std::string& subject, const std::string& root, const GidMemory::Port& memory,
                        model::RdmaPort& port) {
    for (const unsigned index : memory.used) read_gid(subject, root, index, port);
    unsigned free = 0;
    for (unsigned index = 0; index < kMaxGids && free < GidMemory::kFreeSlots; ++index)
      if (memory.used.count(index) == 0 && !read_gid(subject, root, index, port)) ++free;
  }

  // False: the slot is free, or cannot be read.
  bool read_gid(const std::string& subject, const std::string& root, unsigned index, model::RdmaPort& port) {
    const std::string slot = std::to_string(index);
    const auto text = value(subject, root + "/gids/" + slot);
    if (!text) return false;
    const auto gid = model::Gid::parse(*text);
    if (!gid || gid->is_zero()) return false;
    model::GidEntry entry;
    entry.index = index;
    entry.gid = *gid;
    // Of an empty slot these give EINVAL, so they are read for the others only.
    if (const auto type = value(subject, root + "/gid_attrs/types/" + slot)) entry.type = type_of(*type);
    entry.netdev = value(subject, root + "/gid_attrs/ndevs/" + slot).value_or("");
    // The kernel says "IB/RoCE v1" for both; the link layer tells which.
    if (entry.type == model::GidType::RoceV1 && port.link_layer == model::LinkLayer::InfiniBand)
      entry.type = model::GidType::InfiniBand;
    port.gids.push_back(std::move(entry));
    return true;
  }

  static model::GidType type_of(std::string_view text) {
    if (text == "RoCE v2") return model::GidType::RoceV2;
    if (text == "IB/RoCE v1" || text == "RoCE v1") return model::GidType::RoceV1;
    return model::GidType::Unknown;
  }

  void judge_device(const model::RdmaDevice& device, bool iwarp) {
    const std::string subject = model::rnic_subject(options_.host, device.name);
    if (iwarp) {
      limit(subject, "iWARP has no UD queue pairs, so RDMA probes cannot be sent", "probe over UDP instead");
      return;
    }
    judge_node(device, subject);
    for (const model::RdmaPort& port : device.ports) judge_port(device, port);
  }

  void judge_node(const model::RdmaDevice& device, const std::string& subject) {
    const auto node = listing_.nodes.find(device.name);
    if (node == listing_.nodes.end()) {
      limit(subject,
            listing_.has_verbs ? "it has no uverbs node" : "user space has no way to RDMA: ib_uverbs is not loaded",
            "modprobe ib_uverbs");
      return;
    }
    const std::string path = options_.dev_root + "/infiniband/" + node->second;
    const auto open = options_.can_open ? options_.can_open(path) : system_can_open(path);
    if (open) return;
    if (open.error().kind == Error::Kind::NotFound)
      limit(subject, path + " does not exist", "mount devtmpfs, or pass the node into this container");
    else
      limit(subject, "no permission to use it: " + open.error().message(),
            "give weft's user read and write access to " + path + " (group rdma on some systems)");
  }

  static Result<void> system_can_open(const std::string& path) {
    if (::access(path.c_str(), R_OK | W_OK) == 0) return {};
    return errno_error(errno, "open " + path);
  }

  void judge_port(const model::RdmaDevice& device, const model::RdmaPort& port) {
    const std::string subject = model::port_subject(options_.host, device.name, port.number);
    const std::string interface = port.netdev.empty() ? "its interface" : "interface " + port.netdev;
    if (port.state != model::PortState::Active)
      limit(subject, "the port is " + std::string(model::to_string(port.state)) + ", not ACTIVE",
            port.link_layer == model::LinkLayer::InfiniBand ? "check the cable and the subnet manager"
                                                            : "set " + interface + " up and check the cable");
    if (port.link_layer == model::LinkLayer::InfiniBand) {
      limit(subject, "InfiniBand packets have no IP header: no ECN marks, no hop count; and peers are addressed by LID",
            "probe over UDP on the IPoIB interface; congestion shows in port_xmit_wait");
      return;
    }
    if (const auto choice = rdma::choose_gid(device.name, port); !choice)
      limit(subject, "no RoCEv2 GID (" + rdma::describe_gids(port) + ")",
            "give " + interface + " an IPv4 or IPv6 address and set it up");
  }

  const FileReader& files_;
  const InventoryOptions& options_;
  const Listing& listing_;
  DeviceReading out_;
};

}  // namespace

void add_limitations(model::Inventory& inventory, const std::vector<model::Limitation>& more) {
  const std::size_t room = kMaxLimitations - std::min(kMaxLimitations, inventory.limitations.size());
  inventory.limitations.insert(inventory.limitations.end(), more.begin(),
                               more.begin() + static_cast<std::ptrdiff_t>(std::min(room, more.size())));
}

std::optional<std::uint64_t> parse_rate_bits_per_s(std::string_view text) {
  constexpr std::string_view kUnit = " Gb/sec";
  const auto unit = text.find(kUnit);
  if (unit == std::string_view::npos) return std::nullopt;
  const auto after = text.substr(unit + kUnit.size());
  if (!after.empty() && after.front() != ' ') return std::nullopt;
  std::string_view number = text.substr(0, unit);
  std::uint64_t tenths = 0;
  if (const auto point = number.find('.'); point != std::string_view::npos) {
    const auto fraction = parse_number(number.substr(point + 1));
    if (!fraction || *fraction > 9 || number.size() != point + 2) return std::nullopt;  // the kernel writes one digit
    tenths = *fraction;
    number = number.substr(0, point);
  }
  const auto whole = parse_number(number);
  if (!whole || *whole > 1'000'000) return std::nullopt;
  const std::uint64_t rate = (*whole * 10 + tenths) * 100'000'000;
  return rate == 0 ? std::nullopt : std::optional(rate);
}

model::PortState parse_port_state(std::string_view text) {
  const auto number = parse_number(text.substr(0, text.find(':')));
  constexpr std::array kStates{model::PortState::Unknown, model::PortState::Down,   model::PortState::Init,
                               model::PortState::Armed,   model::PortState::Active, model::PortState::ActiveDefer};
  return number && *number < kStates.size() ? kStates[*number] : model::PortState::Unknown;
}

std::optional<std::uint32_t> roce_mtu_bytes(std::uint32_t interface_mtu_bytes) {
  // GRH 40, UDP 8, BTH 12, extended transport 16, atomic 28, ICRC 4: what the kernel keeps free.
  constexpr std::uint32_t kHeaders = 40 + 8 + 12 + 16 + 28 + 4;
  for (const std::uint32_t mtu : {4096u, 2048u, 1024u, 512u, 256u})
    if (interface_mtu_bytes >= mtu + kHeaders) return mtu;
  return std::nullopt;
}

Listing list_devices(const FileReader& files, const InventoryOptions& options) { return Lister(files, options).run(); }

DeviceReading read_device(const FileReader& files, const InventoryOptions& options, const Listing& listing,
                          const std::string& name) {
  return Reader(files, options, listing).run(name);
}

model::Inventory read_inventory(const FileReader& files, const InventoryOptions& options) {
  const Listing listing = list_devices(files, options);
  model::Inventory out;
  out.host = options.host;
  out.limitations = listing.limitations;
  for (const std::string& name : listing.devices) {
    DeviceReading reading = read_device(files, options, listing, name);
    out.devices.push_back(std::move(reading.device));
    add_limitations(out, reading.limitations);
  }
  return out;
}

model::Inventory read_inventory(const FileReader& files, const std::string& sys_root, const std::string& host) {
  InventoryOptions options;
  options.sys_root = sys_root;
  options.host = host;
  return read_inventory(files, options);
}

}  // namespace weft::inventory
