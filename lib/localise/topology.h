// The fabric as told by a topology file: switches, host ports, links, and the addresses that identify them.
// Everything works without one: then nodes are named by the addresses that routers answer from.
// Passive and immutable after parse; dual-homed hosts, rails and parallel links are plain links.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace weft::localise {

// What a topology file says of a host besides its cables. For people and exporters: which leaf a port is cabled to says
// what localising needs, and a host with a port on each of several rails has no one rail.
struct HostPlace {
  std::string rail, pod;  // empty: not said
};

struct Switch {
  std::string name;
  std::string tier;  // "leaf" | "spine" | "core" | ""
};

// An undirected cable between two ends. A host's end is "HOST/DEVICE", a switch's its name.
struct Link {
  std::string a, b;
  std::vector<std::string> a_addresses, b_addresses;  // of the interfaces at either end, as Gid::to_string()
};

class Topology {
 public:
  Topology() = default;
  // TOML: fabric = "x"; [[switch]] name, tier; [[host]] name, rail, pod; [[link]] a, b, a_addresses, b_addresses.
  // Unknown keys, duplicate names, links to unknown nodes, and addresses that are none or are used twice are errors
  // with line and column.
  static Result<Topology> parse(std::string_view toml, const std::string& file_name);

  bool empty() const { return links_.empty(); }
  const std::string& fabric() const { return fabric_; }
  const std::vector<Switch>& switches() const { return switches_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  const std::vector<Link>& links() const { return links_; }
  // Nothing said of a host that is not in the file.
  HostPlace place_of(const std::string& host) const;
  // Node ("s1", "h1/rxe0") that owns the address, asked for as Gid::to_string() writes it.
  std::optional<std::string> node_of(const std::string& address) const;
  // Index in links() of the cable that the address is an end of: tells parallel cables apart.
  std::optional<std::size_t> link_of(const std::string& address) const;
  // "leaf", "spine", ...; empty when unknown or a host.
  std::string tier_of(const std::string& node) const;
  // The switch a host port is cabled to; nothing when it is cabled to none, or to several (a bond).
  std::optional<std::string> leaf_of(const std::string& host_port) const;

 private:
  std::string fabric_;
  std::vector<Switch> switches_;
  std::vector<std::string> hosts_;
  std::map<std::string, HostPlace> places_;
  std::vector<Link> links_;
  std::map<std::string, std::string> node_by_address_;
  std::map<std::string, std::size_t> link_by_address_;
  std::map<std::string, std::string> tier_by_switch_;
  std::map<std::string, std::vector<std::string>> leaves_by_port_;
};

}  // namespace weft::localise
