#include "lib/localise/planner.h"

#include <algorithm>
#include <cmath>

namespace weft::localise {
namespace {

constexpr std::size_t kFullMesh = 16;  // endpoints
constexpr std::size_t kLeafPeers = 8;  // beyond a full mesh
constexpr std::size_t kOtherLeafPeers = 6;
constexpr std::size_t kPathsInterLeaf = 4;
constexpr std::size_t kPathsMost = 8;
constexpr double kPathRate = 3;  // probes/s
constexpr double kSameLeafRate = 10;
constexpr double kSameLeafShare = 0.3, kInterLeafShare = 0.6;  // of the budget; the rest is for links left over
constexpr std::uint32_t kPortsFirst = 8;
constexpr Nanos kRebuildEvery = 3 * kSecond;
constexpr Nanos kTracePatience = 10 * kSecond;  // then plan with the ports that are traced
constexpr Nanos kWantedFor = 10 * kSecond;
constexpr std::size_t kTracesAnAgent = 4;

double tenth(double rate) { return std::max(0.1, std::floor(rate * 10) / 10); }

bool same_family(const std::string& a, const std::string& b) {
  return (a.find(':') == std::string::npos) == (b.find(':') == std::string::npos);
}

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
  h *= 0xbf58476d1ce4e5b9ULL;
  return h ^ (h >> 31);
}

}  // namespace

std::vector<Planner::Port> Planner::ports(Nanos now) const {
  std::vector<Port> out;
  for (const auto& [name, host] : hosts_.all()) {
    const HostState state = hosts_.state(host, now);
    if (state == HostState::Stopped || state == HostState::NeverSeen) continue;
    for (const auto& [device, port] : host.endpoints) {
      // A device that is gone keeps its place in the plan: probing goes on when it is back, with nothing to wait for.
      if (!port.seen || port.offer.address.empty()) continue;
      const auto id = fabric_.find_endpoint(name + "/" + device);
      if (!id) continue;
      const auto leaf = fabric_.topology().leaf_of(name + "/" + device);
      out.push_back({*id, &port, leaf.value_or(""), 0});
    }
  }
  return out;
}

std::vector<EndpointId> Planner::targets_of(const std::vector<Port>& all, std::size_t index,
                                            const std::map<std::string, std::vector<std::size_t>>& groups) const {
  const Port& own = all[index];
  std::vector<EndpointId> out;
  const auto add = [&](const Port& other) {
    if (fabric_.endpoint(other.id).host == fabric_.endpoint(own.id).host) return false;
    if (other.state->offer.transport != own.state->offer.transport) return false;
    if (!same_family(other.state->offer.address, own.state->offer.address)) return false;
    if (std::find(out.begin(), out.end(), other.id) != out.end()) return false;
    out.push_back(other.id);
    return true;
  };
  if (all.size() <= kFullMesh) {
    for (const Port& other : all) add(other);
    return out;
  }
  const std::vector<std::size_t>& own_group = groups.at(own.group);
  // Fibonacci steps around the ring reach near and far ones, and stay when hosts come at the end.
  std::size_t step = 1;
  std::size_t before = 1;
  for (std::size_t tries = 0, found = 0; tries < own_group.size() && found < kLeafPeers; ++tries) {
    const std::size_t offset = own_group.size() <= 2 * kLeafPeers ? tries + 1 : step;
    if (add(all[own_group[(own.place + offset) % own_group.size()]])) ++found;
    if (own_group.size() > 2 * kLeafPeers) {
      const std::size_t next = step + before;
      before = step;
      step = next;
      if (step >= own_group.size()) break;
    }
  }
  if (groups.size() < 2) return out;
  std::vector<const std::vector<std::size_t>*> others;
  std::size_t own_at = 0;
  for (const auto& [name, members] : groups) {
    if (name == own.group) {
      own_at = others.size();
      continue;
    }
    others.push_back(&members);
  }
  // The hosts of a leaf take the other leaves in turn, so that together they meet all of them.
  for (std::size_t k = 0, found = 0; k < 4 * kOtherLeafPeers && found < kOtherLeafPeers; ++k) {
    const auto& group = *others[(own_at + own.place * kOtherLeafPeers + k) % others.size()];
    if (add(all[group[(own.place + k / others.size()) % group.size()]])) ++found;
  }
  return out;
}

std::uint16_t Planner::partner(const model::ProbeEndpoint& from, const model::ProbeEndpoint& to,
                               std::uint16_t prober_port) {
  const auto& theirs = to.responder_ports;
  return theirs.empty() ? std::uint16_t{0} : theirs[model::udp_partner(from.prober_ports, prober_port, theirs.size())];
}

Planner::PortsByWay Planner::ways(EndpointId from, EndpointId to, const std::vector<UdpPorts>& offered,
                                  std::size_t& traced) {
  PortsByWay out;
  for (const UdpPorts& ports : offered) {
    const Route* route = fabric_.traced(from, to, ports);
    if (route == nullptr || !route->full) continue;
    ++traced;
    out[route->links].push_back(ports.source);
  }
  return out;
}

std::vector<model::PlanPath> Planner::pair_up(const Port& from, const Port& to, const PortsByWay& out,
                                              std::size_t wanted, std::uint64_t turn) const {
  std::vector<model::PlanPath> paths;
  std::vector<const std::vector<std::uint16_t>*> outs;
  for (const auto& [links, list] : out) outs.push_back(&list);
  std::map<std::vector<LinkId>, unsigned> used;  // ways back
  for (std::size_t k = 0, misses = 0; paths.size() < wanted && misses < outs.size(); ++k) {
    const Route* best = nullptr;
    model::PlanPath path;
    for (const std::uint16_t port : *outs[(k + turn) % outs.size()]) {
      const std::uint16_t answering = partner(from.state->offer, to.state->offer, port);
      const bool taken =
          std::any_of(paths.begin(), paths.end(), [&](const auto& other) { return other.forward_port == port; });
      const Route* back = fabric_.traced(to.id, from.id, {answering, port});
      if (taken || back == nullptr || !back->full) continue;
      if (best != nullptr && used[back->links] >= used[best->links]) continue;
      best = back;
      path = {port, answering, 0};
    }
    misses = best == nullptr ? misses + 1 : 0;
    if (best == nullptr) continue;
    ++used[best->links];
    paths.push_back(path);
  }
  return paths;
}

std::uint64_t Planner::courses(EndpointId from, EndpointId to, const std::vector<model::PlanPath>& paths) const {
  std::uint64_t h = paths.size();
  for (const model::PlanPath& path : paths) {
    const Route* out = fabric_.traced(from, to, {path.forward_port, path.return_port});
    const Route* back = fabric_.traced(to, from, {path.return_port, path.forward_port});
    for (const Route* route : {out, back}) {
      if (route == nullptr) return 0;
      for (const LinkId id : route->links) h = mix(h, id + 1);
    }
  }
  return h;
}

const Planner::Chosen& Planner::choose(const Port& from, const Port& to, bool same_leaf, std::size_t wanted, bool small,
                                       Nanos now) {
  Chosen& chosen = chosen_[{from.id, to.id}];
  const auto& out_ports = from.state->offer.prober_ports;
  const auto& back_ports = to.state->offer.responder_ports;
  std::size_t out_traced = 0;
  std::size_t back_traced = 0;
  const bool in_pairs = paired(from.state->offer);
  std::vector<UdpPorts> out_offered;
  std::vector<UdpPorts> back_offered;
  for (const std::uint16_t port : out_ports) {
    out_offered.push_back({port, destination(from.state->offer, to.state->offer, port)});
    if (in_pairs) back_offered.push_back({out_offered.back().destination, port});
  }
  if (!in_pairs) {
    for (const std::uint16_t port : back_ports) back_offered.push_back({port, 0});
  }
  const PortsByWay out = ways(from.id, to.id, out_offered, out_traced);
  const PortsByWay back = ways(to.id, from.id, back_offered, back_traced);
  if (chosen.first_trace == 0 && out_traced + back_traced > 0) chosen.first_trace = now;
  chosen.complete = out_traced == out_offered.size() && back_traced == back_offered.size();
  const auto fewest = [](const PortsByWay& by_way) {
    std::size_t least = by_way.empty() ? 0 : 1000;
    for (const auto& [links, list] : by_way) least = std::min(least, list.size());
    return least;
  };
  chosen.fewest_out = fewest(out);
  chosen.fewest_back = fewest(back);
  const auto offered = [](const std::vector<std::uint16_t>& ports, std::uint16_t port) {
    return std::find(ports.begin(), ports.end(), port) != ports.end();
  };
  const auto all_offered = [&] {
    return std::all_of(chosen.paths.begin(), chosen.paths.end(), [&](const model::PlanPath& path) {
      return offered(out_ports, path.forward_port) && offered(back_ports, path.return_port);
    });
  };
  const bool enough = chosen.complete || (chosen.first_trace != 0 && now - chosen.first_trace >= kTracePatience);
  if (out.empty() || back.empty() || !enough || config_.paths_not_pinned) {
    settling_ = settling_ || !config_.paths_not_pinned;
    // Ports that were chosen and are still offered keep their paths while a trace is missing. Those of a weftd that
    // ended must go at once: their traces live on, and ways back are traced only of probes that arrive.
    const bool stands =
        !chosen.paths.empty() && all_offered() && courses(from.id, to.id, chosen.paths) == chosen.courses;
    if (!stands) chosen.paths.clear();
    chosen.ways_out = out.size();
    chosen.ways_back = back.size();
    if (chosen.paths.empty()) return chosen;
  }
  if (!same_leaf && small) wanted = std::clamp(2 * out.size(), wanted, kPathsMost);
  const bool valid = chosen.paths.size() >= wanted && chosen.ways_out == out.size() &&
                     chosen.ways_back == back.size() && all_offered() &&
                     courses(from.id, to.id, chosen.paths) == chosen.courses;
  if (valid || out.empty() || back.empty()) return chosen;

  std::vector<const std::vector<std::uint16_t>*> outs;
  std::vector<const std::vector<std::uint16_t>*> backs;
  for (const auto& [links, list] : out) outs.push_back(&list);
  for (const auto& [links, list] : back) backs.push_back(&list);
  // Large fabrics spread the pairs over the parallel ways; small ones meet all ways with each pair.
  const std::uint64_t turn = small ? 0 : mix(mix(7, from.id), to.id);
  chosen.paths.clear();
  if (in_pairs) chosen.paths = pair_up(from, to, out, wanted, turn);
  for (std::size_t k = 0; k < wanted && !in_pairs; ++k) {
    const std::size_t lap = k / outs.size();
    const auto& out_list = *outs[(k + turn) % outs.size()];
    const auto& back_list = *backs[(k + lap + turn / 64) % backs.size()];
    model::PlanPath path{out_list[lap % out_list.size()], back_list[k / backs.size() % back_list.size()], 0};
    if (std::find(chosen.paths.begin(), chosen.paths.end(), path) == chosen.paths.end()) chosen.paths.push_back(path);
  }
  chosen.ways_out = out.size();
  chosen.ways_back = back.size();
  chosen.courses = courses(from.id, to.id, chosen.paths);
  return chosen;
}

void Planner::cover_links(std::map<EndpointId, std::map<EndpointId, std::vector<model::PlanPath>>>& table,
                          const std::map<EndpointId, const EndpointState*>& states) {
  std::vector<double> rate(fabric_.link_count(), 0);
  std::map<EndpointId, double> spent;
  const auto count = [&](EndpointId from, EndpointId to, const model::PlanPath& path) {
    const Route* out = fabric_.traced(from, to, {path.forward_port, path.return_port});
    const Route* back = fabric_.traced(to, from, {path.return_port, path.forward_port});
    for (const Route* route : {out, back}) {
      if (route == nullptr) continue;
      for (const LinkId id : route->links) rate[id] += path.probes_per_s;
    }
  };
  for (const auto& [from, targets] : table) {
    for (const auto& [to, paths] : targets) {
      for (const model::PlanPath& path : paths) {
        spent[from] += path.probes_per_s;
        count(from, to, path);
      }
    }
  }
  std::vector<char> thin(fabric_.link_count(), 0);
  bool any = false;
  for (const LinkId id : fabric_.known_links()) {
    thin[id] = rate[id] < config_.link_probes_per_s ? 1 : 0;
    any = any || thin[id] != 0;
  }
  if (!any) return;
  struct Option {
    EndpointId from, to;
    std::uint16_t port, answering;
  };
  std::map<LinkId, std::vector<Option>> options;
  for (const auto& [from, targets] : table) {
    for (const auto& [to, paths] : targets) {
      if (paths.empty() || paths.front().return_port == 0) continue;
      const model::ProbeEndpoint& own = states.at(from)->offer;
      for (const std::uint16_t port : own.prober_ports) {
        const std::uint16_t other = destination(own, states.at(to)->offer, port);
        const Route* route = fabric_.traced(from, to, {port, other});
        if (route == nullptr || !route->full) continue;
        const std::uint16_t answering = other != 0 ? other : paths.front().return_port;
        for (const LinkId id : route->links) {
          if (thin[id] != 0 && options[id].size() < 256) options[id].push_back({from, to, port, answering});
        }
      }
    }
  }
  for (const auto& [id, list] : options) {
    for (const Option& option : list) {
      if (rate[id] >= config_.link_probes_per_s) break;
      const double left = config_.probes_per_s_per_endpoint - spent[option.from];
      if (left < 1) continue;
      std::vector<model::PlanPath>& paths = table[option.from][option.to];
      const double add = tenth(std::min({kPathRate, left, config_.link_probes_per_s - rate[id] + 0.1}));
      model::PlanPath path{option.port, option.answering, add};
      const bool there = std::any_of(paths.begin(), paths.end(), [&](const model::PlanPath& p) {
        return p.forward_port == path.forward_port && p.return_port == path.return_port;
      });
      if (there) continue;
      paths.push_back(path);
      spent[option.from] += add;
      count(option.from, option.to, path);
    }
  }
}

std::vector<model::PlanTrace> Planner::traces_for(EndpointId from,
                                                  const std::map<EndpointId, std::vector<model::PlanPath>>& targets,
                                                  const std::map<EndpointId, const EndpointState*>& states) const {
  std::vector<model::PlanTrace> out;
  if (wanted_.empty()) return out;
  // One port of each target first, then second ones.
  for (std::size_t round = 0; round < kTracesAnAgent && out.size() < kTracesAnAgent; ++round) {
    for (const auto& [to, paths] : targets) {
      std::size_t found = 0;
      const model::ProbeEndpoint& own = states.at(from)->offer;
      for (const std::uint16_t port : own.prober_ports) {
        const std::uint16_t other = destination(own, states.at(to)->offer, port);
        const Route* route = fabric_.traced(from, to, {port, other});
        if (route == nullptr || !route->full) continue;
        const auto suspects =
            std::count_if(route->links.begin(), route->links.end(), [&](LinkId id) { return wanted_.count(id) != 0; });
        if (suspects < 2 || found++ != round) continue;
        out.push_back(
            {fabric_.endpoint(from).device, fabric_.endpoint(to).name, states.at(to)->offer.address, port, 5, other});
        break;
      }
      if (out.size() >= kTracesAnAgent) break;
    }
  }
  return out;
}

void Planner::rebuild(Nanos now) {
  settling_ = false;
  std::vector<Port> all = ports(now);
  std::map<std::string, std::vector<std::size_t>> groups;
  std::map<EndpointId, const EndpointState*> states;
  std::map<EndpointId, std::size_t> index_of;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto& group = groups[all[i].group];
    all[i].place = group.size();
    group.push_back(i);
    states[all[i].id] = all[i].state;
    index_of[all[i].id] = i;
  }
  const bool small = all.size() <= kFullMesh;
  std::map<EndpointId, std::map<EndpointId, std::vector<model::PlanPath>>> table;
  std::set<std::pair<EndpointId, EndpointId>> pairs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Port& from = all[i];
    const std::vector<EndpointId> targets = targets_of(all, i, groups);
    std::size_t near = 0;
    for (const EndpointId to : targets) near += fabric_.same_leaf(from.id, to).value_or(false) ? 1 : 0;
    const std::size_t far = targets.size() - near;
    const double budget = config_.probes_per_s_per_endpoint;
    for (const EndpointId to : targets) {
      pairs.emplace(from.id, to);
      const bool same_leaf = fabric_.same_leaf(from.id, to).value_or(false);
      const Chosen& chosen = choose(from, all[index_of.at(to)], same_leaf, same_leaf ? 2 : kPathsInterLeaf, small, now);
      std::vector<model::PlanPath> paths = chosen.paths;
      const std::size_t count = paths.empty() ? (same_leaf ? 2 : kPathsInterLeaf) : paths.size();
      const double most = same_leaf ? std::min(kSameLeafRate, kSameLeafShare * budget / double(near))
                                    : std::min(kPathRate * double(count), kInterLeafShare * budget / double(far));
      for (model::PlanPath& path : paths) path.probes_per_s = tenth(most / double(count));
      if (paths.empty()) {
        paths.push_back({0, 0, tenth(most / 2)});
      } else if (fabric_.parallel_ways(from.id, to) > chosen.ways_out && small) {
        paths.push_back({0, 0, 1});  // a parallel way that no traced port takes yet
      }
      table[from.id][to] = std::move(paths);

      // Hosts open more ports while some way between two of them has fewer than three.
      const auto grow = [&](const Port& port, std::size_t offered, std::size_t seen_ways, std::size_t fewest) {
        const std::size_t expected = std::max<std::size_t>(seen_ways, fabric_.parallel_ways(from.id, to));
        if (same_leaf || expected < 2 || expected > 8 || !chosen.complete) return;
        if (seen_ways >= expected && fewest >= 3) return;
        std::uint32_t& wanted = ports_wanted_.emplace(fabric_.endpoint(port.id).host, kPortsFirst).first->second;
        if (offered >= wanted) wanted = std::min<std::uint32_t>(config_.ports_wanted_max, 2 * wanted);
      };
      grow(from, from.state->offer.prober_ports.size(), chosen.ways_out, chosen.fewest_out);
      const Port& other = all[index_of.at(to)];
      grow(other, other.state->offer.responder_ports.size(), chosen.ways_back, chosen.fewest_back);
    }
  }
  std::erase_if(chosen_, [&](const auto& row) { return pairs.count(row.first) == 0; });
  cover_links(table, states);

  std::map<std::string, model::ProbePlan> fresh;
  for (const auto& [name, host] : hosts_.all()) {
    if (hosts_.state(host, now) == HostState::NeverSeen || !host.inventory) continue;
    model::ProbePlan& plan = fresh[name];
    plan.ports_wanted = std::min(config_.ports_wanted_max, ports_wanted_.emplace(name, kPortsFirst).first->second);
  }
  for (const auto& [from, targets] : table) {
    const EndpointName& own = fabric_.endpoint(from);
    model::ProbePlan& plan = fresh[own.host];
    for (const auto& [to, paths] : targets) {
      const model::ProbeEndpoint& offer = states.at(to)->offer;
      plan.targets.push_back({own.device, fabric_.endpoint(to).name, offer.address, offer.hello_port, paths});
    }
    for (model::PlanTrace& trace : traces_for(from, targets, states)) plan.traces.push_back(std::move(trace));
  }
  for (auto& [name, plan] : fresh) {
    const auto before = plans_.find(name);
    if (before == plans_.end()) {
      // Above those of an aggregator that ran before on this machine, so that agents take it for news.
      plan.revision = static_cast<std::uint64_t>(std::max<Nanos>(1, now / kMillisecond));
      continue;
    }
    plan.revision = before->second.revision;
    if (!(plan == before->second)) ++plan.revision;
  }
  plans_ = std::move(fresh);
}

const std::map<std::string, model::ProbePlan>& Planner::plan(Nanos now, const std::set<LinkId>& wanted_traces) {
  for (const LinkId id : wanted_traces) wanted_[id] = now;
  std::erase_if(wanted_, [&](const auto& row) { return now - row.second > kWantedFor; });
  std::set<LinkId> wanted;
  for (const auto& [id, at] : wanted_) wanted.insert(id);
  const bool asked = wanted != seen_wanted_;
  const bool hosts_changed = hosts_.revision() != seen_hosts_;
  const bool traces_changed = fabric_.revision() != seen_fabric_ || settling_;
  if (!asked && !hosts_changed && !(traces_changed && now - built_ >= kRebuildEvery)) return plans_;
  if (!asked && built_ != 0 && now - built_ < kSecond) return plans_;
  seen_wanted_ = std::move(wanted);
  seen_hosts_ = hosts_.revision();
  seen_fabric_ = fabric_.revision();
  built_ = now;
  rebuild(now);
  return plans_;
}

}  // namespace weft::localise
