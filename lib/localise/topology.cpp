#include "lib/localise/topology.h"

#include <algorithm>
#include <set>

#include "lib/base/config.h"
#include "lib/model/device.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

// Why `end` may not be an end of a link; empty when it may.
std::string why_not_an_end(const std::string& end, const std::set<std::string>& switches,
                           const std::set<std::string>& hosts) {
  const std::size_t slash = end.find('/');
  if (slash == std::string::npos) {
    if (switches.count(end) != 0) return "";
    if (hosts.count(end) != 0) return "'" + end + "' is a host; name its port, like " + end + "/mlx5_0";
    return "no switch is named '" + end + "'";
  }
  const std::string host = end.substr(0, slash);
  if (hosts.count(host) == 0) return "no host is named '" + host + "'";
  if (!model::valid_name(end.substr(slash + 1))) return "'" + end + "' is no HOST/DEVICE";
  return "";
}

}  // namespace

Result<Topology> Topology::parse(std::string_view toml, const std::string& file_name) {
  auto config = Config::parse(toml, file_name);
  if (!config) return config.error();
  Topology topology;
  ConfigTable root = config->root();
  topology.fabric_ = root.text("fabric");

  std::set<std::string> switches;
  std::set<std::string> hosts;
  for (ConfigTable& row : root.tables("switch")) {
    Switch entry{row.required_text("name"), row.choice("tier", "", {"", "leaf", "spine", "core"})};
    if (!entry.name.empty() && !model::valid_name(entry.name)) {
      row.reject("name", "'" + entry.name + "' is no valid name");
    } else if (!switches.insert(entry.name).second) {
      row.reject("name", "'" + entry.name + "' is named twice");
    }
    topology.tier_by_switch_[entry.name] = entry.tier;
    topology.switches_.push_back(std::move(entry));
  }
  for (ConfigTable& row : root.tables("host")) {
    std::string name = row.required_text("name");
    topology.places_[name] = {row.text("rail"), row.text("pod")};
    if (!name.empty() && !model::valid_name(name)) {
      row.reject("name", "'" + name + "' is no valid name");
    } else if (switches.count(name) != 0 || !hosts.insert(name).second) {
      row.reject("name", "'" + name + "' is named twice");
    }
    topology.hosts_.push_back(std::move(name));
  }
  for (ConfigTable& row : root.tables("link")) {
    Link link{row.required_text("a"), row.required_text("b"), row.texts("a_addresses"), row.texts("b_addresses")};
    bool good = !link.a.empty() && !link.b.empty();
    for (const auto& [key, end] : {std::pair{"a", &link.a}, std::pair{"b", &link.b}}) {
      const std::string why = end->empty() ? "" : why_not_an_end(*end, switches, hosts);
      if (!why.empty()) row.reject(key, why);
      good = good && why.empty();
    }
    if (good && link.a == link.b) {
      row.reject("b", "a link needs two different ends");
      good = false;
    }
    if (!good) continue;
    const std::size_t index = topology.links_.size();
    for (const auto& [key, node, addresses] : {std::tuple{"a_addresses", &link.a, &link.a_addresses},
                                               std::tuple{"b_addresses", &link.b, &link.b_addresses}}) {
      for (std::string& address : *addresses) {
        const auto parsed = model::Gid::parse_unicast(address);
        if (!parsed) {
          row.reject(key, parsed.error().context + "; write those of the interface, like 10.0.1.2 or fd00::2");
          continue;
        }
        address = parsed->to_string();  // as routers' answers are written: FD00:0::1 is fd00::1
        if (!topology.node_by_address_.emplace(address, *node).second) {
          row.reject(key, "address " + address + " is used twice");
        }
        topology.link_by_address_.emplace(address, index);
      }
    }
    for (const auto& [port, other] : {std::pair{&link.a, &link.b}, std::pair{&link.b, &link.a}}) {
      if (port->find('/') != std::string::npos) topology.leaves_by_port_[*port].push_back(*other);
    }
    topology.links_.push_back(std::move(link));
  }
  if (auto done = config->finish(); !done) return done.error();
  return topology;
}

std::optional<std::string> Topology::node_of(const std::string& address) const {
  const auto found = node_by_address_.find(address);
  if (found == node_by_address_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::size_t> Topology::link_of(const std::string& address) const {
  const auto found = link_by_address_.find(address);
  if (found == link_by_address_.end()) return std::nullopt;
  return found->second;
}

std::string Topology::tier_of(const std::string& node) const {
  const auto found = tier_by_switch_.find(node);
  return found == tier_by_switch_.end() ? "" : found->second;
}

HostPlace Topology::place_of(const std::string& host) const {
  const auto found = places_.find(host);
  return found == places_.end() ? HostPlace{} : found->second;
}

std::optional<std::string> Topology::leaf_of(const std::string& host_port) const {
  const auto found = leaves_by_port_.find(host_port);
  if (found == leaves_by_port_.end() || found->second.size() != 1) return std::nullopt;
  return found->second.front();
}

}  // namespace weft::localise
