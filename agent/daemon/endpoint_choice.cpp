#include "agent/daemon/endpoint_choice.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

#include "lib/model/subject.h"

namespace weft::agent {
namespace {

void choose_rdma(const model::Inventory& inventory, const ProbeSettings& settings, EndpointChoice& out) {
  for (const model::RdmaDevice& device : inventory.devices) {
    if (!device_allowed(settings, device.name)) continue;
    for (const model::RdmaPort& port : device.ports) {
      EndpointSpec spec;
      // A slash is the separator of subjects, so a second port gets a dot.
      spec.device = port.number == 1 ? device.name : device.name + "." + std::to_string(port.number);
      spec.rdma = true;
      spec.rdma_device = device.name;
      spec.rdma_port = port.number;
      spec.netdev = port.netdev;
      spec.rate_bits_per_s = port.rate_bits_per_s;
      spec.ready = port.state == model::PortState::Active;
      if (!spec.ready) {
        out.limitations.push_back(
            {model::port_subject(inventory.host, device.name, port.number),
             "the port is " + std::string(model::to_string(port.state)) + ", so nothing is probed from it",
             port.netdev.empty() ? "check the cable and the switch port"
                                 : "check the cable and the switch port, and that " + port.netdev + " is up"});
      }
      out.specs.push_back(std::move(spec));
    }
  }
  for (const std::string& name : settings.devices) {
    const bool there = std::any_of(inventory.devices.begin(), inventory.devices.end(),
                                   [&](const model::RdmaDevice& device) { return device.name == name; });
    if (!there) {
      out.limitations.push_back({model::rnic_subject(inventory.host, name),
                                 "probe.devices names it, but it is not here",
                                 "load its driver, or take the name out of probe.devices"});
    }
  }
}

bool in_subnet(const NetInterface& interface, const std::string& address) {
  in_addr a{}, b{};
  if (inet_pton(AF_INET, interface.address.c_str(), &a) != 1 || inet_pton(AF_INET, address.c_str(), &b) != 1) {
    return interface.address == address;
  }
  const unsigned length = std::min(interface.prefix_length, 32u);
  const std::uint32_t mask = length == 0 ? 0 : ~std::uint32_t{0} << (32 - length);
  return (ntohl(a.s_addr) & mask) == (ntohl(b.s_addr) & mask);
}

void add_udp(const NetInterface& interface, const std::string& address, EndpointChoice& out) {
  const bool taken = std::any_of(out.specs.begin(), out.specs.end(),
                                 [&](const EndpointSpec& spec) { return spec.device == interface.name; });
  if (taken) return;  // one address an interface
  EndpointSpec spec;
  spec.device = interface.name;
  spec.address = address;
  spec.netdev = interface.name;
  out.specs.push_back(std::move(spec));
}

void choose_udp(const model::Inventory& inventory, const std::vector<NetInterface>& interfaces,
                const ProbeSettings& settings, EndpointChoice& out) {
  const std::string host = model::host_subject(inventory.host);
  for (const std::string& wanted : settings.interfaces) {
    const bool is_address = model::Gid::parse(wanted).has_value();
    const auto found = std::find_if(interfaces.begin(), interfaces.end(), [&](const NetInterface& interface) {
      // 127.0.0.0/8 is all local, so a loopback address needs no entry of its own.
      if (is_address) return interface.address == wanted || (interface.loopback && in_subnet(interface, wanted));
      return interface.name == wanted;
    });
    if (found == interfaces.end()) {
      out.limitations.push_back({host, "probe.interfaces names " + wanted + ", which is not here or has no address",
                                 "give it an address, or correct probe.interfaces"});
      continue;
    }
    if (!found->up) {
      out.limitations.push_back({host, "interface " + found->name + " is down", "ip link set " + found->name + " up"});
      continue;
    }
    add_udp(*found, is_address ? wanted : found->address, out);
  }
  if (!settings.interfaces.empty()) return;
  const auto udp = [](const EndpointSpec& spec) { return !spec.rdma; };
  // An interface of an RDMA port is of the fabric, whatever it is: software RoCE may sit on a bond or a VLAN.
  for (const NetInterface& interface : interfaces) {
    const bool of_rdma = std::any_of(out.specs.begin(), out.specs.end(), [&](const EndpointSpec& spec) {
      return spec.rdma && spec.netdev == interface.name;
    });
    if (of_rdma && interface.up) add_udp(interface, interface.address, out);
  }
  if (std::any_of(out.specs.begin(), out.specs.end(), udp)) return;
  for (const NetInterface& interface : interfaces) {
    if (interface.up && interface.hardware && !interface.loopback) add_udp(interface, interface.address, out);
  }
  if (std::none_of(out.specs.begin(), out.specs.end(), udp)) {
    out.limitations.push_back({host, "no network interface with hardware behind it is up and has an address",
                               "name the interfaces to probe from in probe.interfaces"});
  }
}

// There is no endpoint over RDMA. so: what comes of it.
model::Limitation no_rdma(const model::Inventory& inventory, const ProbeSettings& settings, const std::string& so) {
  const std::string host = model::host_subject(inventory.host);
  // One that blocks in its driver is listed, and nothing is known of it.
  const bool unread =
      std::any_of(inventory.devices.begin(), inventory.devices.end(),
                  [&](const model::RdmaDevice& device) { return device_allowed(settings, device.name); });
  if (unread) {
    return {host, "no port of an RDMA device can be read, so " + so,
            "see what is said of the device; RDMA is used by itself once it can be read"};
  }
  return {host, "no RDMA device is here, so " + so,
          std::string("load the driver of the RNIC (rdma link shows devices)") +
              (settings.transport == TransportChoice::Rdma ? ", or set probe.transport = \"udp\"" : "")};
}

model::Limitation udp_instead(const std::string& host, const std::vector<RdmaRefusal>& refused) {
  constexpr std::size_t kNamed = 4;
  std::string tried;
  bool permission = false;
  for (std::size_t i = 0; i < refused.size(); ++i) {
    const EndpointSpec& spec = refused[i].spec;
    permission = permission || refused[i].error.kind == Error::Kind::Permission;
    if (i >= kNamed) continue;
    const std::string place = spec.rdma_device + " port " + std::to_string(spec.rdma_port);
    const std::string text = refused[i].error.message();
    tried += (i > 0 ? "; " : "") + (text.rfind(place, 0) == 0 ? text : place + ": " + text);
  }
  if (refused.size() > kNamed) tried += "; and " + std::to_string(refused.size() - kNamed) + " more";
  return {model::host_subject(host),
          "no RDMA device can be used, so paths are probed over UDP and RNICs are not: " + tried,
          std::string(permission ? "give weft's user read and write access to /dev/infiniband/uverbs*"
                                 : "RDMA probes need a RoCE device with UD queue pairs, ib_uverbs, and a weft built "
                                   "with libibverbs") +
              "; RDMA is tried again by itself"};
}

unsigned prefix_of(const sockaddr* mask) {
  unsigned bits = 0;
  if (mask == nullptr) return 128;
  if (mask->sa_family == AF_INET) {
    return static_cast<unsigned>(__builtin_popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr));
  }
  for (const unsigned char byte : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr) {
    bits += static_cast<unsigned>(__builtin_popcount(byte));
  }
  return bits;
}

}  // namespace

bool device_allowed(const ProbeSettings& settings, const std::string& rdma_device) {
  return settings.devices.empty() ||
         std::find(settings.devices.begin(), settings.devices.end(), rdma_device) != settings.devices.end();
}

EndpointChoice choose_endpoints(const model::Inventory& inventory, const std::vector<NetInterface>& interfaces,
                                const ProbeSettings& settings, bool rdma_seen,
                                const std::vector<RdmaRefusal>& refused) {
  EndpointChoice out;
  if (settings.transport != TransportChoice::Udp) choose_rdma(inventory, settings, out);
  const bool none = out.specs.empty();
  const bool automatic = settings.transport == TransportChoice::Auto;
  if (settings.transport == TransportChoice::Rdma || (automatic && rdma_seen && refused.empty())) {
    if (none) out.limitations.push_back(no_rdma(inventory, settings, "nothing is probed"));
    return out;
  }
  if (settings.transport == TransportChoice::Udp || none || !refused.empty()) {
    if (automatic && !none) {
      out.limitations.push_back(udp_instead(inventory.host, refused));
    } else if (automatic) {
      out.limitations.push_back(no_rdma(inventory, settings, "paths are probed over UDP and RNICs are not"));
    }
    choose_udp(inventory, interfaces, settings, out);
  }
  return out;
}

Result<std::vector<NetInterface>> list_interfaces(const FileReader& files, const std::string& sys_root) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return errno_error(errno, "cannot list interface addresses (getifaddrs)");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  std::vector<NetInterface> out;
  for (const ifaddrs* it = list.get(); it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr) continue;
    const int family = it->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    NetInterface entry;
    char text[INET6_ADDRSTRLEN];
    if (family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(it->ifa_addr)->sin_addr, text, sizeof text);
    } else {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(it->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;  // says nothing without a zone
      inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    }
    entry.name = it->ifa_name;
    entry.address = text;
    entry.prefix_length = prefix_of(it->ifa_netmask);
    entry.up = (it->ifa_flags & IFF_UP) != 0 && (it->ifa_flags & IFF_RUNNING) != 0;
    entry.loopback = (it->ifa_flags & IFF_LOOPBACK) != 0;
    entry.hardware = files.read_link(sys_root + "/class/net/" + entry.name + "/device").has_value();
    out.push_back(std::move(entry));
  }
  std::stable_sort(out.begin(), out.end(), [](const NetInterface& a, const NetInterface& b) {
    return (a.address.find(':') == std::string::npos) > (b.address.find(':') == std::string::npos);
  });
  return out;
}

}  // namespace weft::agent
