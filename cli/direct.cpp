#include "cli/direct.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "cli/host_inventory.h"
#include "cli/stop.h"
#include "lib/base/files.h"
#include "probes/packet/fabric_key.h"
#include "probes/ping/udp_transport.h"
#include "probes/rdma/rdma_transport.h"
#include "probes/trace/raw_socket.h"

namespace weft::cli {
namespace {

struct LocalAddress {
  std::string interface, address;
  bool loopback = false;
};

std::vector<LocalAddress> local_addresses() {
  std::vector<LocalAddress> out;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return out;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
  for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || (a->ifa_flags & IFF_UP) == 0) continue;
    model::Gid gid;
    if (a->ifa_addr->sa_family == AF_INET) {
      gid.raw[10] = gid.raw[11] = 0xff;
      std::memcpy(gid.raw.data() + 12, &reinterpret_cast<sockaddr_in*>(a->ifa_addr)->sin_addr, 4);
    } else if (a->ifa_addr->sa_family == AF_INET6) {
      std::memcpy(gid.raw.data(), &reinterpret_cast<sockaddr_in6*>(a->ifa_addr)->sin6_addr, 16);
    } else {
      continue;
    }
    if (gid.is_link_local()) continue;
    out.push_back({a->ifa_name, gid.to_string(), (a->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return out;
}

std::string interface_of(const std::string& address) {
  for (const LocalAddress& a : local_addresses()) {
    if (a.address == address) return a.interface;
  }
  return "";
}

std::string device_names(const model::Inventory& inventory) {
  std::string out;
  for (const auto& device : inventory.devices) out += (out.empty() ? "" : ", ") + device.name;
  return out.empty() ? "none" : out;
}

bool owns(const model::RdmaPort& port, const std::string& address) {
  return std::any_of(port.gids.begin(), port.gids.end(), [&](const auto& g) { return g.gid.to_string() == address; });
}

LocalPlace rdma_place(const model::RdmaDevice& device, const model::RdmaPort& port, std::string why) {
  LocalPlace out;
  out.rdma = true;
  out.device = device.name;
  out.port = port.number;
  out.netdev = port.netdev;
  out.rate_bits_per_s = port.rate_bits_per_s;
  out.why = std::move(why);
  return out;
}

LocalPlace udp_place(const std::string& source, std::string why) {
  LocalPlace out;
  out.device = source.starts_with("127.") ? "lo" : interface_of(source);
  out.netdev = out.device == "lo" ? "" : out.device;
  if (out.device.empty()) out.device = "udp";
  out.address = source;
  out.why = std::move(why);
  return out;
}

}  // namespace

Result<LocalPlace> choose_place(const DirectOptions& options, const model::Inventory& inventory,
                                const std::string& source) {
  if (options.transport == "udp") return udp_place(source, "--transport udp");
  std::string why_not = "no RDMA device here";
  const model::RdmaDevice* best_device = nullptr;
  const model::RdmaPort* best_port = nullptr;
  bool named = false;
  for (const auto& device : inventory.devices) {
    if (!options.device.empty() && device.name != options.device) continue;
    named = true;
    for (const auto& port : device.ports) {
      if (options.device_port != 0 && port.number != options.device_port) continue;
      if (port.state != model::PortState::Active) {
        why_not = device.name + " port " + std::to_string(port.number) + " is " + std::string(to_string(port.state));
        // Asked for by name: let opening it say what is wrong, step by step.
        if (options.device.empty()) continue;
      }
      if (best_port == nullptr || (owns(port, source) && !owns(*best_port, source))) {
        best_device = &device;
        best_port = &port;
      }
    }
  }
  if (!options.device.empty() && !named) {
    if (options.transport == "auto" && !local_addresses().empty()) {
      for (const LocalAddress& a : local_addresses()) {
        if (a.interface == options.device) return udp_place(a.address, "--device " + options.device);
      }
    }
    return make_error(Error::Kind::NotFound,
                      "device " + options.device + " does not exist here; RDMA devices: " + device_names(inventory));
  }
  if (best_port == nullptr) {
    if (options.transport == "rdma") {
      return make_error(Error::Kind::Unsupported, "cannot measure over RDMA: " + why_not);
    }
    return udp_place(source, why_not);
  }
  return rdma_place(*best_device, *best_port,
                    !options.device.empty()    ? "--device " + options.device
                    : owns(*best_port, source) ? "it owns " + source + ", the address packets to the peer leave from"
                                               : "the first active RDMA port");
}

Result<void> Direct::add(const DirectOptions& options, const LocalPlace& local, const EngineNeeds& needs) {
  probes::EngineOptions engine;
  engine.host = own_host_name();
  engine.device = local.device;
  engine.hello_port = options.hello_port;
  if (!options.key_file.empty()) {
    auto key = probes::FabricKey::load(SystemFiles(), options.key_file);
    if (!key) return key.error();
    engine.key = *key;
  }
  engine.traffic_class = static_cast<std::uint8_t>(options.traffic_class & 0xfc);
  engine.timeout_ns = needs.timeout_ns;
  engine.payload_bytes = options.size_bytes;
  engine.max_probes_per_s = needs.probes_per_s * 1.5 + 10;
  engine.max_link_share = 0.05;  // an operator is looking
  engine.rate_bits_per_s = local.rate_bits_per_s;
  engine.answer = needs.answer;

  std::unique_ptr<probes::Transport> transport;
  if (local.rdma) {
    probes::RdmaTransportOptions rdma;
    rdma.device = local.device;
    rdma.port = local.port;
    rdma.gid_index = options.gid_index;
    rdma.prober_ports = needs.answer ? 1 : needs.ports;
    rdma.responder_ports = needs.ports;
    rdma.responder = needs.answer;
    rdma.max_payload_bytes = std::max<std::size_t>(rdma.max_payload_bytes, options.size_bytes);
    rdma.clock = &clock_;
    auto opened = probes::open_rdma_transport(rdma);
    if (!opened) return opened.error();
    transport = std::move(*opened);
  } else {
    probes::UdpTransportOptions udp;
    auto gid = model::Gid::parse(local.address);
    if (!gid) return gid.error();
    udp.local = *gid;
    udp.interface = local.netdev;
    udp.prober_ports.assign(needs.answer ? 1 : needs.ports, 0);
    udp.responder_ports.assign(needs.answer ? needs.ports : 1, 0);
    auto opened = probes::open_udp_transport(udp, clock_);
    if (!opened) return opened.error();
    transport = std::move(*opened);
  }
  auto started = probes::Engine::start(engine, std::move(transport), clock_);
  if (!started) return started.error();
  Place place;
  place.local = local;
  place.engine = std::move(*started);
  const auto endpoint = place.engine->endpoint();
  place.local.address = endpoint.address;
  place.label = endpoint.transport + ' ' + local.device + (local.rdma ? " port " + std::to_string(local.port) : "") +
                ", " + endpoint.address;
  const std::size_t index = places_.size();
  place.engine->on_outcome([this, index](const probes::ProbeOutcome& outcome) { outcomes_.push({index, outcome}); });
  if (needs.ports > 1 && !needs.answer) place.engine->want_ports(needs.ports);
  places_.push_back(std::move(place));
  return {};
}

Result<std::unique_ptr<Direct>> Direct::open(const DirectOptions& options, const std::vector<HostAddress>& peers,
                                             const EngineNeeds& needs, const Clock& clock) {
  std::unique_ptr<Direct> direct(new Direct(clock));
  const model::Inventory inventory = options.transport == "udp" ? model::Inventory{} : host_inventory(options.sys_root);
  std::vector<LocalPlace> wanted;
  for (const HostAddress& peer : peers) {
    std::string source = options.source;
    if (source.empty()) {
      auto routed = probes::source_address_for(peer.address);
      if (!routed) return routed.error();
      source = *routed;
    }
    auto local = choose_place(options, inventory, source);
    if (!local) return local.error();
    const auto existing = std::find(wanted.begin(), wanted.end(), *local);
    direct->place_of_peer_.push_back(static_cast<std::size_t>(existing - wanted.begin()));
    if (existing == wanted.end()) wanted.push_back(*local);
  }
  for (const LocalPlace& local : wanted) {
    if (auto added = direct->add(options, local, needs); !added) return added.error();
  }
  return direct;
}

Result<std::unique_ptr<Direct>> Direct::open_all(const DirectOptions& options, const EngineNeeds& needs,
                                                 const Clock& clock) {
  std::unique_ptr<Direct> direct(new Direct(clock));
  std::vector<LocalPlace> wanted;
  if (options.transport != "udp") {
    const model::Inventory inventory = host_inventory(options.sys_root);
    for (const auto& device : inventory.devices) {
      if (!options.device.empty() && device.name != options.device) continue;
      for (const auto& port : device.ports) {
        if (options.device_port != 0 && port.number != options.device_port) continue;
        if (!options.source.empty() && !owns(port, options.source)) continue;
        if (port.state == model::PortState::Active) {
          wanted.push_back(rdma_place(device, port, "active"));
        } else {
          direct->notes_.push_back(device.name + " port " + std::to_string(port.number) + " is " +
                                   std::string(to_string(port.state)) + ": not listening there");
        }
      }
    }
    if (wanted.empty() && options.transport == "rdma") {
      return make_error(Error::Kind::Unsupported, "cannot answer over RDMA: no active port of " +
                                                      (options.device.empty() ? "any device" : options.device) +
                                                      "; RDMA devices: " + device_names(inventory));
    }
  }
  if (wanted.empty()) {
    const std::vector<LocalAddress> all = local_addresses();
    const bool only_loopback = std::all_of(all.begin(), all.end(), [](const auto& a) { return a.loopback; });
    for (const LocalAddress& a : all) {
      if (!options.source.empty() || (!options.device.empty() && a.interface != options.device)) continue;
      if (a.loopback && !only_loopback && options.device.empty()) continue;
      wanted.push_back(udp_place(a.address, "local address"));
    }
    if (!options.source.empty()) wanted.push_back(udp_place(options.source, "--source"));
  }
  if (wanted.empty()) return make_error(Error::Kind::NotFound, "no local address to listen on");
  Error first;
  for (const LocalPlace& local : wanted) {
    if (auto added = direct->add(options, local, needs); !added) {
      if (direct->notes_.empty()) first = added.error();
      direct->notes_.push_back(added.error().message());
    }
  }
  if (direct->places_.empty()) return first;
  return direct;
}

Direct::~Direct() {
  for (Place& place : places_) place.engine->close();
}

std::vector<std::uint16_t> Direct::ports(Place& place, unsigned count) {
  const Nanos until = clock_.monotonic_ns() + kSecond;
  std::vector<std::uint16_t> ports = place.engine->endpoint().prober_ports;
  while (ports.size() < count && clock_.monotonic_ns() < until && !stop_asked()) {
    sleep_until(clock_, clock_.monotonic_ns() + 20 * kMillisecond);
    ports = place.engine->endpoint().prober_ports;
  }
  if (ports.size() > count) ports.resize(count);
  return ports;
}

Error cannot_measure(Error error) {
  if (error.kind == Error::Kind::Invalid) error.kind = Error::Kind::Unsupported;
  error.context = "cannot measure: " + error.context;
  return error;
}

std::optional<probes::PeerStatus> peer_status(const probes::Engine& engine, const std::string& to) {
  for (auto& peer : engine.peers()) {
    if (peer.to == to) return peer;
  }
  return std::nullopt;
}

Result<RouteNames> load_names(const DirectOptions& options) {
  if (options.topology_file.empty()) return RouteNames{};
  auto text = SystemFiles().read(options.topology_file, 16 * 1024 * 1024);
  if (!text) return text.error();
  auto topology = localise::Topology::parse(*text, options.topology_file);
  if (!topology) return topology.error();
  return RouteNames(std::move(*topology));
}

}  // namespace weft::cli
