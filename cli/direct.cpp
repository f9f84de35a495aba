#include "cli/direct.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "cli/bounded_call.h"
#include "cli/host_inventory.h"
#include "cli/stop.h"
#include "lib/rdma/gid_choice.h"
#include "probes/ping/udp_transport.h"
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

LocalPlace rdma_place(const DirectOptions& options, const model::RdmaDevice& device, const model::RdmaPort& port,
                      std::string why) {
  LocalPlace out;
  out.rdma = true;
  out.device = device.name;
  out.port = port.number;
  out.netdev = port.netdev;
  out.rate_bits_per_s = port.rate_bits_per_s;
  out.why = std::move(why);
  // The rule of the transport on the same table; that there is none usable is said by opening.
  if (auto choice = rdma::choose_gid(device.name, port, options.gid_index)) out.gid = choice->reason;
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

// An interface as the place: its own address that the routes chose, else one that can reach as far. NotFound without.
Result<LocalPlace> udp_on(const std::string& interface, const std::string& source) {
  const bool v6 = source.find(':') != std::string::npos;
  std::string found;
  for (const LocalAddress& a : local_addresses()) {
    if (a.interface != interface) continue;
    if (a.address == source) return udp_place(source, "--device " + interface);
    if (found.empty() && (a.address.find(':') != std::string::npos) == v6) found = a.address;
  }
  if (!found.empty()) return udp_place(found, "--device " + interface);
  return make_error(Error::Kind::NotFound,
                    "interface " + interface + " has no IPv" + (v6 ? "6" : "4") + " address here");
}

using Opened = Result<std::unique_ptr<probes::Transport>>;

// A place on its way to be open: RDMA devices open side by side, each on its own thread, so that one that blocks takes
// no time from the others.
struct Opening {
  LocalPlace local;
  std::optional<BoundedCall<Opened>> call;  // RDMA
  std::optional<Result<std::size_t>> place;
};

Opening begin_opening(const DirectOptions& options, const LocalPlace& local, const EngineNeeds& needs,
                      const DirectParts& parts) {
  Opening out;
  out.local = local;
  if (!local.rdma) return out;
  probes::RdmaTransportOptions rdma;  // no clock of ours: this may outlive us
  rdma.device = local.device;
  rdma.port = local.port;
  rdma.gid_index = options.gid_index;
  rdma.prober_ports = needs.answer ? 1 : needs.ports;
  rdma.responder_ports = needs.ports;
  rdma.responder = needs.answer;
  rdma.max_payload_bytes = std::max<std::size_t>(rdma.max_payload_bytes, options.size_bytes);
  out.call.emplace([open = parts.open_rdma, rdma] { return open(rdma); });
  return out;
}

Opened finish_opening(Opening& opening, const EngineNeeds& needs, const Clock& clock, Nanos until) {
  const LocalPlace& local = opening.local;
  if (local.rdma) {
    auto opened = opening.call->wait(until - clock.monotonic_ns());
    if (!opened) {
      return gave_up("opening RDMA device " + local.device + " port " + std::to_string(local.port),
                     needs.open_within_ns);
    }
    return std::move(*opened);
  }
  probes::UdpTransportOptions udp;
  auto gid = model::Gid::parse(local.address);
  if (!gid) return gid.error();
  udp.local = *gid;
  udp.interface = local.netdev;
  udp.prober_ports.assign(needs.answer ? 1 : needs.ports, 0);
  udp.responder_ports.assign(needs.answer ? needs.ports : 1, 0);
  return probes::open_udp_transport(udp, clock);
}

// Whether UDP can stand in for an RDMA device that could not be opened: nobody asked for it, and it will not get better
// by itself. All else (a wrong GID, a port that is down, no answer) is said, not worked around.
bool udp_instead(const DirectOptions& options, const Error& error) {
  return options.transport == "auto" && options.device.empty() && !options.gid_index &&
         (error.kind == Error::Kind::Unsupported || error.kind == Error::Kind::Permission);
}

std::string instead_text(const Error& error) { return error.message() + "; measuring over UDP instead"; }

}  // namespace

Result<LocalPlace> choose_place(const DirectOptions& options, const model::Inventory& inventory,
                                const std::string& source) {
  if (options.transport == "udp") {
    if (options.device.empty() || !options.source.empty()) return udp_place(source, "--transport udp");
    return udp_on(options.device, source);
  }
  std::string why_not = "no RDMA device here";
  const model::RdmaDevice* best_device = nullptr;
  const model::RdmaPort* best_port = nullptr;
  bool named = false, numbered = false;
  for (const auto& device : inventory.devices) {
    if (!options.device.empty() && device.name != options.device) continue;
    named = true;
    for (const auto& port : device.ports) {
      if (options.device_port != 0 && port.number != options.device_port) continue;
      numbered = true;
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
    if (options.transport == "auto") {
      if (auto udp = udp_on(options.device, source)) return udp;
    }
    return make_error(Error::Kind::NotFound,
                      "device " + options.device + " does not exist here; RDMA devices: " + device_names(inventory));
  }
  if (options.device_port != 0 && !numbered && !inventory.devices.empty()) {
    const std::string port = "port " + std::to_string(options.device_port);
    if (!options.device.empty()) return make_error(Error::Kind::NotFound, options.device + " has no " + port);
    why_not = "no RDMA device here has a " + port;
  }
  if (best_port == nullptr) {
    if (options.transport == "rdma") {
      return make_error(Error::Kind::Unsupported, "cannot measure over RDMA: " + why_not);
    }
    return udp_place(source, why_not);
  }
  return rdma_place(options, *best_device, *best_port,
                    !options.device.empty()    ? "--device " + options.device
                    : owns(*best_port, source) ? "it owns " + source + ", the address packets to the peer leave from"
                                               : "the first active RDMA port");
}

std::string how_chosen(const LocalPlace& local) { return local.why + (local.gid.empty() ? "" : "; GID " + local.gid); }

DirectParts system_parts() {
  return {[](const std::string& sys_root, Nanos within_ns) {
            return host_inventory(sys_root, std::min(within_ns, kInventoryWait));
          },
          probes::open_rdma_transport, probes::source_address_for};
}

Result<std::size_t> Direct::add(const DirectOptions& options, const LocalPlace& local, const EngineNeeds& needs,
                                std::unique_ptr<probes::Transport> transport) {
  probes::EngineOptions engine;
  engine.host = own_host_name();
  engine.device = local.device;
  engine.hello_port = options.hello_port;
  engine.key = needs.key;
  engine.traffic_class = static_cast<std::uint8_t>(options.traffic_class & 0xfc);
  engine.timeout_ns = needs.timeout_ns;
  engine.payload_bytes = options.size_bytes;
  engine.max_probes_per_s = needs.probes_per_s * 1.5 + 10;
  engine.max_link_share = 0.05;  // an operator is looking
  engine.rate_bits_per_s = local.rate_bits_per_s;
  engine.answer = needs.answer;

  const model::TimestampRung rung = transport->rung();
  auto started = probes::Engine::start(engine, std::move(transport), clock_);
  if (!started) return started.error();
  Place place;
  place.local = local;
  place.rung = rung;
  place.engine = std::move(*started);
  const auto endpoint = place.engine->endpoint();
  place.local.address = endpoint.address;
  // The table changed between the two looks at it: rather nothing than what is not so.
  if (local.rdma && place.local.gid.find(endpoint.address) == std::string::npos) place.local.gid.clear();
  place.label = endpoint.transport + ' ' + local.device + (local.rdma ? " port " + std::to_string(local.port) : "") +
                ", " + endpoint.address;
  const std::size_t index = places_.size();
  place.engine->on_outcome([this, index](const probes::ProbeOutcome& outcome) { outcomes_.push({index, outcome}); });
  if (needs.ports > 1 && !needs.answer) place.engine->want_ports(needs.ports);
  places_.push_back(std::move(place));
  return index;
}

Result<std::unique_ptr<Direct>> Direct::open(const DirectOptions& options, const std::vector<HostAddress>& peers,
                                             const EngineNeeds& needs, const Clock& clock, const DirectParts& parts) {
  std::unique_ptr<Direct> direct(new Direct(clock));
  const Nanos until = clock.monotonic_ns() + needs.open_within_ns;
  model::Inventory inventory;
  if (options.transport != "udp") {
    auto read = parts.inventory(options.sys_root, needs.open_within_ns);
    if (!read) return read.error();
    inventory = std::move(*read);
  }
  std::vector<std::string> sources(peers.size());
  std::vector<Opening> openings;
  std::vector<std::size_t> opening_of(peers.size(), kNoPlace);
  direct->place_of_peer_.assign(peers.size(), kNoPlace);
  direct->failed_.resize(peers.size());
  const auto opening_for = [&](const LocalPlace& local) {
    for (std::size_t i = 0; i < openings.size(); ++i) {
      if (openings[i].local == local) return i;
    }
    openings.push_back(begin_opening(options, local, needs, parts));
    return openings.size() - 1;
  };
  const auto place_for = [&](std::size_t index) -> Result<std::size_t> {
    Opening& opening = openings[index];
    if (!opening.place) {
      auto transport = finish_opening(opening, needs, clock, until);
      opening.place = transport ? direct->add(options, opening.local, needs, std::move(*transport))
                                : Result<std::size_t>(transport.error());
      if (!*opening.place && opening.local.rdma && udp_instead(options, opening.place->error())) {
        direct->notes_.push_back(instead_text(opening.place->error()));
      }
    }
    return *opening.place;
  };
  for (std::size_t i = 0; i < peers.size(); ++i) {
    auto source = options.source.empty() ? parts.source_for(peers[i].address) : Result<std::string>(options.source);
    auto local = source ? choose_place(options, inventory, *source) : Result<LocalPlace>(source.error());
    if (!local) {
      direct->failed_[i] = local.error();
      continue;
    }
    sources[i] = *source;
    opening_of[i] = opening_for(*local);
  }
  std::vector<Error> errors;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (!direct->failed_[i]) {
      auto place = place_for(opening_of[i]);
      if (!place && openings[opening_of[i]].local.rdma && udp_instead(options, place.error())) {
        const std::string device = openings[opening_of[i]].local.device;
        place = place_for(opening_for(udp_place(sources[i], "RDMA device " + device + " cannot be used")));
      }
      if (place) {
        direct->place_of_peer_[i] = *place;
      } else {
        direct->failed_[i] = place.error();
      }
    }
    if (direct->failed_[i]) errors.push_back(*direct->failed_[i]);
  }
  if (direct->places_.empty()) return all_failed(errors);
  direct->note_unused(options);
  return direct;
}

Result<std::unique_ptr<Direct>> Direct::open_all(const DirectOptions& options, const EngineNeeds& needs,
                                                 const Clock& clock, const DirectParts& parts) {
  std::unique_ptr<Direct> direct(new Direct(clock));
  const Nanos until = clock.monotonic_ns() + needs.open_within_ns;
  std::vector<LocalPlace> wanted;
  if (options.transport != "udp") {
    auto read = parts.inventory(options.sys_root, needs.open_within_ns);
    if (!read) return read.error();
    const model::Inventory& inventory = *read;
    for (const auto& device : inventory.devices) {
      if (!options.device.empty() && device.name != options.device) continue;
      for (const auto& port : device.ports) {
        if (options.device_port != 0 && port.number != options.device_port) continue;
        if (!options.source.empty() && !owns(port, options.source)) continue;
        if (port.state == model::PortState::Active) {
          wanted.push_back(rdma_place(options, device, port, "active"));
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
  std::vector<Error> errors;
  bool instead = !wanted.empty();
  const auto open_wanted = [&] {
    std::vector<Opening> openings;
    for (const LocalPlace& local : wanted) openings.push_back(begin_opening(options, local, needs, parts));
    for (Opening& opening : openings) {
      auto transport = finish_opening(opening, needs, clock, until);
      const auto added = transport ? direct->add(options, opening.local, needs, std::move(*transport))
                                   : Result<std::size_t>(transport.error());
      if (added) continue;
      errors.push_back(added.error());
      instead = instead && udp_instead(options, added.error());
      direct->notes_.push_back(added.error().message());
    }
  };
  open_wanted();
  if (direct->places_.empty() && (wanted.empty() || instead)) {
    if (instead) direct->notes_.push_back("no RDMA device can be used: answering over UDP instead");
    wanted.clear();
    instead = false;
    const std::vector<LocalAddress> all = local_addresses();
    const bool only_loopback = std::all_of(all.begin(), all.end(), [](const auto& a) { return a.loopback; });
    for (const LocalAddress& a : all) {
      if (!options.source.empty() || (!options.device.empty() && a.interface != options.device)) continue;
      if (a.loopback && !only_loopback && options.device.empty()) continue;
      wanted.push_back(udp_place(a.address, "local address"));
    }
    if (!options.source.empty()) wanted.push_back(udp_place(options.source, "--source"));
    if (wanted.empty()) return make_error(Error::Kind::NotFound, "no local address to listen on");
    open_wanted();
  }
  if (direct->places_.empty()) return errors.front();
  direct->note_unused(options);
  return direct;
}

void Direct::note_unused(const DirectOptions& options) {
  const std::string given = options.rdma_only();
  const bool udp = std::any_of(places_.begin(), places_.end(), [](const Place& place) { return !place.local.rdma; });
  if (udp && !given.empty()) notes_.push_back(given + ": no meaning over UDP, which is used here");
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

Error all_failed(const std::vector<Error>& errors) {
  Error out = errors.front();
  std::string text;
  std::vector<std::string> said;
  for (const Error& error : errors) {
    const std::string message = error.message();
    if (std::find(said.begin(), said.end(), message) != said.end()) continue;
    said.push_back(message);
    text += (text.empty() ? "" : "; ") + message;
  }
  if (said.size() > 1) {  // each has its errno in words already
    out.context = text;
    out.error_number = 0;
  }
  return out;
}

std::optional<probes::PeerStatus> peer_status(const probes::Engine& engine, const std::string& to) {
  for (auto& peer : engine.peers()) {
    if (peer.to == to) return peer;
  }
  return std::nullopt;
}

}  // namespace weft::cli
