#include "lib/localise/fabric.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "lib/model/subject.h"

namespace weft::localise {
namespace {

constexpr std::size_t kMaxEndpoints = 16'384;
constexpr std::size_t kMaxNodes = 65'536;
constexpr std::size_t kMaxLinks = 131'072;
constexpr std::size_t kMaxTraces = 400'000;
constexpr std::size_t kMaxHops = 32;
constexpr std::size_t kMaxAliases = 64;
constexpr Nanos kTraceLife = 1'800 * kSecond;
const std::string kVirtualTag = "~";

// The /30 an IPv4 address lies in: the two ends of a point-to-point cable share it (RFC 3021 /31s do too).
std::optional<std::uint32_t> cable_subnet(const std::string& address) {
  std::uint32_t value = 0;
  const char* at = address.data();
  const char* const end = at + address.size();
  for (int i = 0; i < 4; ++i) {
    unsigned part = 0;
    const auto [next, error] = std::from_chars(at, end, part);
    if (error != std::errc() || part > 255) return std::nullopt;
    value = (value << 8) | part;
    at = next;
    if (i < 3 && (at == end || *at++ != '.')) return std::nullopt;
  }
  if (at != end) return std::nullopt;
  return value >> 2;
}

}  // namespace

Fabric::Fabric(Topology topology, bool paths_not_pinned)
    : topology_(std::move(topology)), paths_not_pinned_(paths_not_pinned) {
  for (const Link& link : topology_.links()) {
    for (const std::string& end : {link.a, link.b}) {
      if (end.find('/') != std::string::npos) {
        static_cast<void>(intern_endpoint(end));
      } else {
        static_cast<void>(intern_node(end));
      }
    }
    const auto a = node_ids_.find(link.a);
    const auto b = node_ids_.find(link.b);
    if (a == node_ids_.end() || b == node_ids_.end()) continue;
    neighbours_.resize(nodes_.size());
    for (const auto& [x, y] : {std::pair{a->second, b->second}, std::pair{b->second, a->second}}) {
      if (cables_[{x, y}]++ == 0) neighbours_[x].push_back(y);
    }
  }
  // Cables of the topology are links before any trace has crossed them: coverage counts them.
  for (const Link& link : topology_.links()) {
    const auto a = node_ids_.find(link.a);
    const auto b = node_ids_.find(link.b);
    if (a == node_ids_.end() || b == node_ids_.end()) continue;
    const std::string to_b = link.b_addresses.empty() ? "" : link.b_addresses.front();
    const std::string to_a = link.a_addresses.empty() ? "" : link.a_addresses.front();
    intern_link(a->second, b->second, false, to_b);
    intern_link(b->second, a->second, false, to_a);
  }
}

std::optional<NodeId> Fabric::intern_node(const std::string& name) {
  if (const auto found = node_ids_.find(name); found != node_ids_.end()) return found->second;
  if (nodes_.size() >= kMaxNodes) return std::nullopt;
  const auto id = static_cast<NodeId>(nodes_.size());
  nodes_.push_back(name);
  endpoint_of_node_.push_back(kNone);
  neighbours_.resize(nodes_.size());
  node_ids_.emplace(name, id);
  return id;
}

std::optional<EndpointId> Fabric::intern_endpoint(const std::string& name) {
  if (const auto found = endpoint_ids_.find(name); found != endpoint_ids_.end()) return found->second;
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos || endpoints_.size() >= kMaxEndpoints) return std::nullopt;
  EndpointName endpoint{name, name.substr(0, slash), name.substr(slash + 1), kNone};
  if (!model::valid_name(endpoint.host) || !model::valid_name(endpoint.device)) return std::nullopt;
  const auto node = intern_node(name);
  if (!node) return std::nullopt;
  endpoint.node = *node;
  const auto id = static_cast<EndpointId>(endpoints_.size());
  endpoint_of_node_[*node] = id;
  ++endpoints_of_host_[endpoint.host];
  endpoint_ids_.emplace(name, id);
  endpoints_.push_back(std::move(endpoint));
  return id;
}

std::optional<EndpointId> Fabric::find_endpoint(const std::string& name) const {
  const auto found = endpoint_ids_.find(name);
  if (found == endpoint_ids_.end()) return std::nullopt;
  return found->second;
}

bool Fabric::adjacent(NodeId a, NodeId b) const { return cables_.count({a, b}) != 0; }

LinkId Fabric::intern_link(NodeId from, NodeId to, bool is_virtual, const std::string& to_address) {
  std::string tag;
  bool by_next_alone = false;
  if (is_virtual) {
    tag = kVirtualTag;
  } else if (const auto cables = cables_.find({from, to}); cables != cables_.end()) {
    if (cables->second > 1) {
      // Parallel cables: the inbound address tells which; without it, it is one of them.
      const auto index = topology_.link_of(to_address);
      if (!index) return intern_link(from, to, true, "");
      const Link& cable = topology_.links()[*index];
      const auto& addresses = cable.a == nodes_[to] ? cable.a_addresses : cable.b_addresses;
      tag = addresses.empty() ? to_address : addresses.front();
    }
  } else if (topology_.empty()) {
    by_next_alone = own_address_.count(from) == 0 && own_address_.count(to) == 0;
  }
  const auto key = std::tuple{by_next_alone ? kNone : from, to, tag};
  const auto found = link_ids_.find(key);
  if (found != link_ids_.end()) {
    DirectedLink& link = links_[found->second];
    if (link.from_aliases.size() < kMaxAliases && link.from_aliases.insert(from).second) {
      if (nodes_[from] < nodes_[link.from]) link.from = from;
    }
    return found->second;
  }
  if (links_.size() >= kMaxLinks) return kNone;
  DirectedLink link;
  link.from = from;
  link.to = to;
  link.is_virtual = is_virtual;
  link.tag = is_virtual ? "" : tag;
  link.from_aliases.insert(from);
  if (!is_virtual) {
    if (is_endpoint(to)) {
      link.host_end = endpoint_of_node_[to];
      link.towards_host = true;
    } else if (is_endpoint(from)) {
      link.host_end = endpoint_of_node_[from];
    }
  }
  const auto id = static_cast<LinkId>(links_.size());
  links_.push_back(std::move(link));
  link_ids_.emplace(key, id);
  return id;
}

std::optional<std::vector<NodeId>> Fabric::only_way(NodeId a, NodeId b, int between) const {
  // Depth first over switches, at most three of them, stopping at the second way found: several ways are no knowledge.
  constexpr int kMaxBetween = 3;
  constexpr int kMaxVisits = 20'000;
  for (int want = between < 0 ? 0 : between; want <= (between < 0 ? kMaxBetween : between); ++want) {
    if (want > kMaxBetween) return std::nullopt;
    int ways = 0;
    int visits = 0;
    std::vector<NodeId> trail;
    std::vector<NodeId> found;
    const auto walk = [&](const auto& self, NodeId at) -> void {
      if (ways > 1 || ++visits > kMaxVisits) return;
      if (static_cast<int>(trail.size()) == want) {
        if (!adjacent(at, b)) return;
        ++ways;
        found = trail;
        return;
      }
      for (const NodeId next : neighbours_[at]) {
        if (is_endpoint(next) || next == a || next == b) continue;
        if (std::find(trail.begin(), trail.end(), next) != trail.end()) continue;
        trail.push_back(next);
        self(self, next);
        trail.pop_back();
      }
    };
    walk(walk, a);
    if (visits > kMaxVisits) return std::nullopt;
    if (ways == 1) return found;
    if (ways > 1) return std::nullopt;
  }
  return std::nullopt;
}

void Fabric::connect(Route& route, NodeId to, int silent_between, const std::string& to_address) {
  const NodeId from = route.nodes.back();
  const auto push = [&](NodeId a, NodeId b, bool is_virtual, const std::string& address) {
    const LinkId id = intern_link(a, b, is_virtual, address);
    if (id == kNone) {
      route.full = false;
      return;
    }
    if (links_[id].is_virtual) route.full = false;
    route.links.push_back(id);
  };
  const bool known_to_topology = !neighbours_[from].empty() && !neighbours_[to].empty();
  if (known_to_topology) {
    if (silent_between <= 0 && adjacent(from, to)) {
      push(from, to, false, to_address);
    } else if (const auto way = only_way(from, to, silent_between == 0 ? -1 : silent_between)) {
      NodeId at = from;
      for (const NodeId next : *way) {
        push(at, next, false, "");
        route.nodes.push_back(next);
        at = next;
      }
      push(at, to, false, to_address);
    } else {
      push(from, to, true, "");
    }
  } else {
    push(from, to, silent_between != 0, to_address);
  }
  route.nodes.push_back(to);
}

// Writes route.links and route.nodes from route.hops.
void Fabric::lay(Route& route, EndpointId from, EndpointId to, bool complete) {
  route.links.clear();
  route.nodes.assign(1, endpoints_[from].node);
  route.full = true;
  const NodeId end = endpoints_[to].node;
  int silent = 0;
  bool first_known = false;
  if (!paths_not_pinned_) {
    for (const std::string& address : route.hops) {
      if (address.empty()) {
        ++silent;
        continue;
      }
      const auto named = topology_.node_of(address);
      const auto node = intern_node(named ? *named : address);
      if (!node || *node == end) continue;
      connect(route, *node, silent, address);
      silent = 0;
      first_known = true;
    }
  }
  // How many routers the silent tail has is known only when the trace says that it is complete.
  int tail = complete && route.routers > 0 && !paths_not_pinned_ ? silent : -1;
  // A port cabled to one switch fixes the first and the last router, whatever the trace saw.
  if (!first_known) {
    const auto leaf = topology_.leaf_of(endpoints_[from].name);
    const auto id = leaf ? node_ids_.find(*leaf) : node_ids_.end();
    if (id != node_ids_.end()) {
      connect(route, id->second, 0, "");
      if (tail > 0) --tail;
    }
  }
  const auto last = topology_.leaf_of(endpoints_[to].name);
  const auto last_id = last ? node_ids_.find(*last) : node_ids_.end();
  if (last_id != node_ids_.end() && route.nodes.back() != last_id->second && tail != 0) {
    connect(route, last_id->second, tail > 0 ? tail - 1 : -1, "");
    tail = 0;
  }
  connect(route, end, tail, "");
  if (paths_not_pinned_) route.traced = false;
}

void Fabric::note_adjacencies(const Route& route) {
  std::string previous;
  bool fresh = false;
  for (const std::string& hop : route.hops) {
    if (!previous.empty() && !hop.empty()) {
      const auto a = node_ids_.find(previous);
      const auto b = node_ids_.find(hop);
      if (a != node_ids_.end() && b != node_ids_.end() && adjacencies_.size() < kMaxLinks) {
        adjacencies_.emplace(a->second, b->second);
        if (adjacencies_.count({b->second, a->second}) != 0) {
          fresh = own_address_.insert(a->second).second || fresh;
          fresh = own_address_.insert(b->second).second || fresh;
        }
      }
    }
    previous = hop;
  }
  if (fresh) relay_all();
}

void Fabric::relay_all() {
  links_.clear();
  link_ids_.clear();
  defaults_.clear();
  for (auto& [key, route] : traces_) lay(route, key.from, key.to, route.routers != 0);
  ++revision_;
}

bool Fabric::add_trace(const model::PathTrace& trace, Nanos received) {
  const auto from = intern_endpoint(trace.from);
  const auto to = intern_endpoint(trace.to);
  if (!from || !to || *from == *to || trace.hops.size() > kMaxHops) return false;
  // Hops by hop limit, silent ones between; the order of the list is not trusted.
  std::vector<model::TraceHop> sorted = trace.hops;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.ttl < b.ttl; });
  Route route;
  std::set<std::string> seen;
  for (const model::TraceHop& hop : sorted) {
    if (hop.ttl == 0 || hop.ttl > kMaxHops || hop.ttl < route.hops.size() + 1) return false;
    if (!hop.address.empty() && (!model::valid_name(hop.address) || !seen.insert(hop.address).second)) return false;
    route.hops.resize(hop.ttl - 1U);
    route.hops.push_back(hop.address);
  }
  const bool complete = trace.complete && !route.hops.empty();
  route.traced = true;
  route.routers = complete ? static_cast<unsigned>(route.hops.size()) : 0;
  route.received = received;
  const TraceKey key{*from, *to, {trace.source_port, trace.destination_port}};
  const auto found = traces_.find(key);
  if (found == traces_.end() && traces_.size() >= kMaxTraces) return false;
  if (seen.empty() && found != traces_.end()) return true;  // all silent: no news

  if (found != traces_.end()) {
    // Silence is no news: where old and new agree as far as both answered, keep the union of what they told.
    const std::vector<std::string>& old = found->second.hops;
    bool agree = !(complete && found->second.routers != 0 && found->second.routers != route.routers);
    for (std::size_t i = 0; i < std::min(old.size(), route.hops.size()); ++i) {
      agree = agree && (old[i].empty() || route.hops[i].empty() || old[i] == route.hops[i]);
    }
    if (agree) {
      route.hops.resize(std::max(old.size(), route.hops.size()));
      for (std::size_t i = 0; i < old.size(); ++i) {
        if (route.hops[i].empty()) route.hops[i] = old[i];
      }
      if (route.routers == 0) route.routers = found->second.routers;
      if (route.routers != 0 && route.routers < route.hops.size()) route.hops.resize(route.routers);
      route.changed = found->second.changed;
      if (route.hops == old && route.routers == found->second.routers) {
        found->second.received = received;
        return true;
      }
    } else {
      route.changed = received;
    }
  }
  for (const std::string& hop : route.hops) {
    if (hop.empty()) continue;
    const auto named = topology_.node_of(hop);
    if (!intern_node(named ? *named : hop)) return false;
  }
  if (topology_.empty()) note_adjacencies(route);
  lay(route, *from, *to, route.routers != 0);
  if (!paths_not_pinned_ && !route.hops.empty() && !route.hops.front().empty() && route.nodes.size() > 1) {
    first_router_[*from] = route.nodes[1];
  }
  if (route.routers != 0) routers_between_[{*from, *to}] = route.routers;
  traces_.insert_or_assign(key, std::move(route));
  ++revision_;
  return true;
}

const Route* Fabric::traced(EndpointId from, EndpointId to, UdpPorts ports) const {
  auto found = traces_.find({from, to, ports});
  if (found == traces_.end() && ports.destination != 0) found = traces_.find({from, to, {ports.source, 0}});
  return found == traces_.end() ? nullptr : &found->second;
}

const Route& Fabric::route(EndpointId from, EndpointId to, UdpPorts ports) {
  if (const Route* found = traced(from, to, ports)) return *found;
  const TraceKey key{from, to, {}};
  if (const auto found = defaults_.find(key); found != defaults_.end()) return found->second;
  Route route;
  lay(route, from, to, false);
  return defaults_.emplace(key, std::move(route)).first->second;
}

void Fabric::expire(Nanos now) {
  const auto gone = std::erase_if(traces_, [&](const auto& row) { return now - row.second.received > kTraceLife; });
  if (gone != 0) ++revision_;
}

std::optional<LinkId> Fabric::reverse(LinkId id) const {
  const DirectedLink& link = links_[id];
  if (link.is_virtual) return std::nullopt;
  if (!topology_.empty() || own_address_.count(link.from) != 0 || own_address_.count(link.to) != 0) {
    for (auto it = link_ids_.lower_bound({link.to, link.from, ""});
         it != link_ids_.end() && std::get<0>(it->first) == link.to && std::get<1>(it->first) == link.from; ++it) {
      const DirectedLink& other = links_[it->second];
      if (other.is_virtual) continue;
      if (link.tag.empty() || topology_.link_of(other.tag) == topology_.link_of(link.tag)) return it->second;
    }
    return std::nullopt;
  }
  const auto subnet = cable_subnet(nodes_[link.to]);
  for (LinkId other = 0; other < links_.size(); ++other) {
    const DirectedLink& candidate = links_[other];
    if (other == id || candidate.is_virtual) continue;
    if (link.host_end != kNone) {
      if (candidate.host_end == link.host_end && candidate.towards_host != link.towards_host) return other;
    } else if (subnet && candidate.host_end == kNone && candidate.to != link.to &&
               cable_subnet(nodes_[candidate.to]) == subnet) {
      return other;
    }
  }
  return std::nullopt;
}

std::vector<LinkId> Fabric::known_links() const {
  std::vector<char> known(links_.size(), 0);
  if (!topology_.empty()) {
    for (LinkId id = 0; id < links_.size(); ++id) {
      known[id] = !links_[id].is_virtual && adjacent(links_[id].from, links_[id].to) ? 1 : 0;
    }
  }
  for (const auto& [key, route] : traces_) {
    for (const LinkId id : route.links) known[id] = links_[id].is_virtual ? 0 : 1;
  }
  std::vector<LinkId> out;
  for (LinkId id = 0; id < links_.size(); ++id) {
    if (known[id] != 0) out.push_back(id);
  }
  return out;
}

std::string Fabric::node_label(NodeId node) const {
  if (!is_endpoint(node)) return nodes_[node];
  const EndpointName& port = endpoints_[endpoint_of_node_[node]];
  const auto leaf = topology_.leaf_of(port.name);
  if (!leaf) {
    const auto count = endpoints_of_host_.find(port.host);
    return count != endpoints_of_host_.end() && count->second > 1 ? port.name : port.host;
  }
  unsigned on_leaf = 0;
  if (const auto id = node_ids_.find(*leaf); id != node_ids_.end()) {
    for (const NodeId other : neighbours_[id->second]) {
      if (is_endpoint(other) && endpoints_[endpoint_of_node_[other]].host == port.host) ++on_leaf;
    }
  }
  return on_leaf > 1 ? port.name : port.host;
}

std::string Fabric::from_label(LinkId id) const { return node_label(links_[id].from); }

std::string Fabric::to_label(LinkId id) const {
  const DirectedLink& link = links_[id];
  return link.tag.empty() ? node_label(link.to) : node_label(link.to) + "%" + link.tag;
}

std::string Fabric::link_subject(LinkId id) const {
  const DirectedLink& link = links_[id];
  if (link.is_virtual) return model::pair_subject(from_label(id), to_label(id));
  return model::link_subject(from_label(id), to_label(id));
}

std::string Fabric::undirected_subject(LinkId id) const {
  const DirectedLink& link = links_[id];
  std::string a = node_label(link.from);
  std::string b = node_label(link.to);
  bool swap = false;
  if (link.host_end != kNone) {
    swap = link.towards_host;
  } else if (topology_.empty()) {
    // Without a topology each end is best named by the address that traffic comes in by.
    if (const auto other = reverse(id); other && own_address_.count(link.from) == 0) a = nodes_[links_[*other].to];
    swap = b < a;
  } else {
    for (const Link& cable : topology_.links()) {
      if (cable.a == nodes_[link.from] && cable.b == nodes_[link.to]) break;
      if (cable.a == nodes_[link.to] && cable.b == nodes_[link.from]) {
        swap = true;
        break;
      }
    }
  }
  if (swap) std::swap(a, b);
  if (!link.tag.empty()) {
    const auto index = topology_.link_of(link.tag);
    const Link* cable = index ? &topology_.links()[*index] : nullptr;
    b += "%" + (cable != nullptr && !cable->b_addresses.empty() ? cable->b_addresses.front() : link.tag);
  }
  return model::undirected_link_subject(a, b);
}

std::optional<NodeId> Fabric::leaf_of(EndpointId id) const {
  if (const auto leaf = topology_.leaf_of(endpoints_[id].name)) {
    if (const auto node = node_ids_.find(*leaf); node != node_ids_.end()) return node->second;
  }
  const auto found = first_router_.find(id);
  if (found == first_router_.end()) return std::nullopt;
  return found->second;
}

std::optional<bool> Fabric::same_leaf(EndpointId a, EndpointId b) const {
  const auto leaf_a = topology_.leaf_of(endpoints_[a].name);
  const auto leaf_b = topology_.leaf_of(endpoints_[b].name);
  if (leaf_a && leaf_b) return *leaf_a == *leaf_b;
  for (const auto& key : {std::pair{a, b}, std::pair{b, a}}) {
    const auto found = routers_between_.find(key);
    if (found != routers_between_.end()) return found->second == 1;
  }
  return std::nullopt;
}

unsigned Fabric::parallel_ways(EndpointId from, EndpointId to) const {
  const auto a = topology_.leaf_of(endpoints_[from].name);
  const auto b = topology_.leaf_of(endpoints_[to].name);
  if (!a || !b || *a == *b) return 0;
  const auto a_id = node_ids_.find(*a);
  const auto b_id = node_ids_.find(*b);
  if (a_id == node_ids_.end() || b_id == node_ids_.end()) return 0;
  unsigned ways = 0;
  for (const NodeId middle : neighbours_[a_id->second]) {
    if (!is_endpoint(middle) && adjacent(middle, b_id->second)) ++ways;
  }
  return ways;
}

}  // namespace weft::localise
