// The graph that evidence is laid on: endpoints, nodes, directed links, and the route of each (from, to, UDP ports).
// With a topology file, nodes are its switches and ports. Without one they are the addresses routers answer from, and a
// directed link is named `prev>next`:
//  - routers that answer from the inbound interface (icmp_errors_use_inbound_ifaddr) give the link by `next` alone; the
//    previous router then has one address for each way in, and the least of them stands in the name;
//  - routers that answer from one address of their own are told by adjacencies seen both ways round (a>b and b>a);
//    there `prev` and `next` together make the link.
// What a trace leaves open is filled from the topology where there is one way only; else a virtual link "somewhere
// between a and b" stands in: it takes blame, but a claim on it is a claim on the pair.
// Bounded; what is refused is counted. Not thread safe.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/base/clock.h"
#include "lib/localise/topology.h"
#include "lib/model/path.h"

namespace weft::localise {

using NodeId = std::uint32_t;
using LinkId = std::uint32_t;
using EndpointId = std::uint32_t;
inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// What chooses the way of a packet, besides its ends. The destination port is 0 where it is always the same (RoCE).
struct UdpPorts {
  std::uint16_t source = 0, destination = 0;
  auto operator<=>(const UdpPorts&) const = default;
};

struct EndpointName {
  std::string name;  // "h1/rxe0"
  std::string host, device;
  NodeId node = kNone;
};

struct DirectedLink {
  NodeId from = kNone, to = kNone;
  bool is_virtual = false;  // "somewhere between": no cable
  std::string tag;          // inbound address, where parallel cables must be told apart; else empty
  EndpointId host_end = kNone;
  bool towards_host = false;  // of a host's cable: the way in
  std::set<NodeId> from_aliases;
};

struct Route {
  std::vector<LinkId> links;      // in order
  std::vector<NodeId> nodes;      // ends included; a silent stretch is left out
  bool traced = false;            // from a trace, not from the topology alone
  bool full = false;              // no virtual link in it
  unsigned routers = 0;           // 0: unknown
  Nanos changed = 0;              // receive time of the trace that gave it another course; earlier evidence is unplaced
  Nanos received = 0;             // newest trace
  std::vector<std::string> hops;  // as told, silent ones empty
};

class Fabric {
 public:
  explicit Fabric(Topology topology, bool paths_not_pinned);

  // Interns "HOST/DEVICE"; nothing when it is no such name or the bound is reached.
  std::optional<EndpointId> intern_endpoint(const std::string& name);
  std::optional<EndpointId> find_endpoint(const std::string& name) const;
  const EndpointName& endpoint(EndpointId id) const { return endpoints_[id]; }
  std::size_t endpoint_count() const { return endpoints_.size(); }

  // False when refused.
  bool add_trace(const model::PathTrace& trace, Nanos received);
  // Traced, or as much as the topology leaves no choice about. The reference holds until the next non-const call.
  const Route& route(EndpointId from, EndpointId to, UdpPorts ports);
  // A trace with the very ports, or one whose destination port is the one that RoCE always has.
  const Route* traced(EndpointId from, EndpointId to, UdpPorts ports) const;
  // Rises when any route's course changes.
  std::uint64_t revision() const { return revision_; }
  void expire(Nanos now);

  std::size_t link_count() const { return links_.size(); }
  const DirectedLink& link(LinkId id) const { return links_[id]; }
  // The cable's other direction, when it is known.
  std::optional<LinkId> reverse(LinkId id) const;
  // Links that exist: named by the topology, or crossed by a route in use. No virtual ones.
  std::vector<LinkId> known_links() const;

  std::size_t node_count() const { return nodes_.size(); }
  // Switch name, address, or for a host's port HOST; HOST/DEVICE where one switch (or an unknown one) has several.
  std::string node_label(NodeId node) const;
  const std::string& node_name(NodeId node) const { return nodes_[node]; }
  std::string from_label(LinkId id) const;
  std::string to_label(LinkId id) const;
  // "s1>l2"
  std::string link_label(LinkId id) const { return from_label(id) + ">" + to_label(id); }
  std::string link_subject(LinkId id) const;
  // "link:l1-s1", ends in the topology's order.
  std::string undirected_subject(LinkId id) const;
  std::string tier(NodeId node) const { return topology_.tier_of(nodes_[node]); }
  bool is_endpoint(NodeId node) const { return node < endpoint_of_node_.size() && endpoint_of_node_[node] != kNone; }
  // The switch of a port: by topology, else the first router that its traces meet.
  std::optional<NodeId> leaf_of(EndpointId id) const;
  // Both on one switch: by topology, or a trace with one router. Nothing when unknown.
  std::optional<bool> same_leaf(EndpointId a, EndpointId b) const;
  const Topology& topology() const { return topology_; }
  // Number of parallel ways between the two leaves, by topology; 0 when unknown.
  unsigned parallel_ways(EndpointId from, EndpointId to) const;

 private:
  struct TraceKey {
    EndpointId from, to;
    UdpPorts ports;
    auto operator<=>(const TraceKey&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const TraceKey& k) const {
      std::uint64_t h = (std::uint64_t{k.from} << 32) ^ (std::uint64_t{k.to} << 16) ^ k.ports.source ^
                        (std::uint64_t{k.ports.destination} << 48);
      h ^= h >> 29;
      h *= 0xbf58476d1ce4e5b9ULL;
      return static_cast<std::size_t>(h ^ (h >> 32));
    }
  };

  std::optional<NodeId> intern_node(const std::string& name);
  // Of a cable, or virtual; kNone when the bound is reached.
  LinkId intern_link(NodeId from, NodeId to, bool is_virtual, const std::string& to_address);
  bool adjacent(NodeId a, NodeId b) const;
  // Nodes strictly between, when exactly one way of `between` switches (any number, the fewest, when negative).
  std::optional<std::vector<NodeId>> only_way(NodeId a, NodeId b, int between) const;
  void lay(Route& route, EndpointId from, EndpointId to, bool complete);
  void connect(Route& route, NodeId to, int silent_between, const std::string& to_address);
  void note_adjacencies(const Route& route);
  void relay_all();

  Topology topology_;
  bool paths_not_pinned_;
  std::vector<std::string> nodes_;
  std::unordered_map<std::string, NodeId> node_ids_;
  std::vector<EndpointId> endpoint_of_node_;
  std::vector<EndpointName> endpoints_;
  std::unordered_map<std::string, EndpointId> endpoint_ids_;
  std::map<std::string, unsigned> endpoints_of_host_;
  std::vector<DirectedLink> links_;
  std::map<std::tuple<NodeId, NodeId, std::string>, LinkId> link_ids_;
  std::vector<std::vector<NodeId>> neighbours_;           // by topology
  std::map<std::pair<NodeId, NodeId>, unsigned> cables_;  // by topology, both orders
  std::set<std::pair<NodeId, NodeId>> adjacencies_;       // by traces
  std::set<NodeId> own_address_;                          // routers that answer from one address of their own
  std::unordered_map<TraceKey, Route, KeyHash> traces_;
  std::unordered_map<TraceKey, Route, KeyHash> defaults_;  // port 0
  std::unordered_map<EndpointId, NodeId> first_router_;
  std::map<std::pair<EndpointId, EndpointId>, unsigned> routers_between_;
  std::uint64_t revision_ = 1;
};

}  // namespace weft::localise
