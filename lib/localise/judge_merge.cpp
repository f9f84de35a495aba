// One finding a root cause: both ways of a dead cable, all cables of a dead switch, both ways of a sick device.
#include <algorithm>
#include <cmath>

#include "lib/localise/judge.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

void absorb(Claim& into, const Claim& other) {
  into.tally.bad += other.tally.bad;
  into.tally.crossed += other.tally.crossed;
  into.tally.paths += other.tally.paths;
  into.tally.bad_paths += other.tally.bad_paths;
  into.tally.pairs.insert(other.tally.pairs.begin(), other.tally.pairs.end());
  into.tally.bad_pairs.insert(other.tally.bad_pairs.begin(), other.tally.bad_pairs.end());
  into.tally.victims.insert(other.tally.victims.begin(), other.tally.victims.end());
  into.pick.gain += other.pick.gain;
  into.since = std::min(into.since, other.since);
  into.zone.insert(other.zone.begin(), other.zone.end());
  for (const LinkId id : other.set) {
    if (std::find(into.set.begin(), into.set.end(), id) == into.set.end()) into.set.push_back(id);
  }
}

bool is_loss(const Claim& claim) {
  return claim.kind == model::FindingKind::LinkLoss || claim.kind == model::FindingKind::LinkDown;
}

}  // namespace

void Judge::make_rnic(Claim& claim) {
  const EndpointName& port = fabric_.endpoint(fabric_.link(claim.link).host_end);
  std::set<std::string> peers;
  std::set<std::string> bad;
  for (const auto& [a, b] : claim.tally.pairs) peers.insert(a == port.host ? b : a);
  for (const auto& [a, b] : claim.tally.bad_pairs) bad.insert(a == port.host ? b : a);
  const double ratio = claim.tally.crossed > 0 ? claim.tally.bad / claim.tally.crossed : 0;
  if (ratio <= 0.1 || bad.size() * 3 < peers.size() * 2) {
    claim.shape = Claim::Shape::Undirected;
    claim.subject = fabric_.undirected_subject(claim.link);
    claim.factor = 0.7;
    return;
  }
  claim.shape = Claim::Shape::Rnic;
  claim.kind = model::FindingKind::RnicUnreachable;
  claim.subject = model::rnic_subject(port.host, port.device);
  // With so few peers the mesh hardly tells who of two is sick.
  claim.factor = peers.size() <= 1 ? 0.5 : peers.size() == 2 ? 0.75 : 0.9;
  claim.note = "fails with " + std::to_string(bad.size()) + " of " + std::to_string(peers.size()) +
               " peers both ways while its host reports";
}

void Judge::merge_cables(std::vector<Claim>& claims) {
  for (std::size_t i = 0; i < claims.size(); ++i) {
    Claim& one = claims[i];
    if (one.shape == Claim::Shape::Rnic) make_rnic(one);
    if (!is_loss(one) || one.shape != Claim::Shape::Directed) continue;
    const auto reverse = fabric_.reverse(one.link);
    if (!reverse) continue;
    const auto other = std::find_if(claims.begin() + static_cast<std::ptrdiff_t>(i) + 1, claims.end(),
                                    [&](const Claim& c) { return c.link == *reverse && c.kind == one.kind; });
    if (other == claims.end() || other->shape != Claim::Shape::Directed) continue;
    const bool host_end = fabric_.link(one.link).host_end != kNone;
    if (one.kind == model::FindingKind::LinkLoss && !host_end) continue;  // two directions, each measured
    absorb(one, *other);
    if (one.kind == model::FindingKind::LinkDown) {
      one.shape = Claim::Shape::Undirected;
      one.subject = fabric_.undirected_subject(one.link);
    } else {
      make_rnic(one);
    }
    claims.erase(other);
  }
}

bool Judge::nothing_crosses(NodeId node, Nanos now) const {
  std::set<LinkId> links;
  std::set<NodeId> neighbours;
  for (LinkId id = 0; id < std::min<std::size_t>(in_use_.size(), fabric_.link_count()); ++id) {
    const DirectedLink& link = fabric_.link(id);
    if (in_use_[id] == 0 || link.is_virtual || (link.from != node && link.to != node)) continue;
    links.insert(id);
    neighbours.insert(link.from == node ? link.to : link.from);
  }
  const auto ports =
      std::count_if(neighbours.begin(), neighbours.end(), [&](NodeId n) { return fabric_.is_endpoint(n); });
  // One host's cable alone would look the same, and so would one cable of a switch that joins two others.
  if (neighbours.size() < 3 || ports == 1) return false;
  const auto tallies = tally(evidence_, fabric_, Question::Loss, now, 2.2, false, links);
  return tallies.size() == links.size() && std::all_of(tallies.begin(), tallies.end(), [](const auto& row) {
           return row.second.crossed >= 2 && row.second.bad >= 0.98 * row.second.crossed;
         });
}

bool Judge::wait_for_reverse(const Claim& claim, const std::vector<Claim>& claims, Nanos now) const {
  const bool host_loss =
      claim.kind == model::FindingKind::LinkLoss && claim.link != kNone && fabric_.link(claim.link).host_end != kNone;
  if ((claim.kind != model::FindingKind::LinkDown && !host_loss) || claim.shape != Claim::Shape::Directed) return false;
  if (claim.tally.oldest_bad_age() >= 7 || active(claim.kind, claim.subject, now)) return false;
  const auto reverse = fabric_.reverse(claim.link);
  if (!reverse) return false;
  for (const Claim& other : claims) {
    if (std::find(other.set.begin(), other.set.end(), *reverse) != other.set.end()) return false;
  }
  if (host_loss) {
    // A sick device loses both ways, and the other way may only need more probes: until it is known to be clean.
    const auto tallies =
        tally(evidence_, fabric_, Question::Loss, now, std::min(7.0, claim.window_s), false, {*reverse});
    if (tallies.empty()) return false;
    const double bad = tallies.begin()->second.bad;
    return bad + 3 * std::sqrt(bad + 1) >= claim.pick.ratio * tallies.begin()->second.crossed;
  }
  const auto tallies = tally(evidence_, fabric_, Question::Loss, now, 2.2, false, {*reverse});
  return !tallies.empty() && tallies.begin()->second.bad >= 0.9 * tallies.begin()->second.crossed;
}

void Judge::merge_switches(std::vector<Claim>& claims, Nanos now) {
  // Links with traffic at each switch, and how many of them are blamed for loss.
  struct Tied {
    std::set<LinkId> in, out, blamed;
  };
  std::map<NodeId, Tied> at;
  for (const Claim& claim : claims) {
    if (!is_loss(claim)) continue;
    for (const LinkId id : claim.set) {
      if (fabric_.link(id).is_virtual) continue;
      for (const NodeId node : {fabric_.link(id).from, fabric_.link(id).to}) {
        if (!fabric_.is_endpoint(node)) at[node].blamed.insert(id);
      }
    }
  }
  for (LinkId id = 0; id < std::min<std::size_t>(in_use_.size(), fabric_.link_count()); ++id) {
    const DirectedLink& link = fabric_.link(id);
    if (in_use_[id] == 0 || link.is_virtual) continue;
    if (const auto to = at.find(link.to); to != at.end()) to->second.in.insert(id);
    if (const auto from = at.find(link.from); from != at.end()) from->second.out.insert(id);
  }
  for (const auto& [node, tied] : at) {
    const auto all_blamed = [&, &blamed = tied.blamed](const std::set<LinkId>& links) {
      return links.size() >= 2 && std::includes(blamed.begin(), blamed.end(), links.begin(), links.end());
    };
    const bool dead = std::any_of(claims.begin(), claims.end(),
                                  [&, &blamed = tied.blamed](const Claim& c) {
                                    return c.kind == model::FindingKind::LinkDown && blamed.count(c.link) != 0;
                                  }) &&
                      nothing_crosses(node, now);
    if (!all_blamed(tied.in) && !all_blamed(tied.out) && !dead) continue;
    std::vector<std::size_t> parts;
    for (std::size_t i = 0; i < claims.size(); ++i) {
      const bool touches = std::any_of(claims[i].set.begin(), claims[i].set.end(),
                                       [&, &blamed = tied.blamed](LinkId id) { return blamed.count(id) != 0; });
      if (is_loss(claims[i]) && touches) parts.push_back(i);
    }
    if (parts.empty() || (parts.size() < 2 && !dead)) continue;
    if (parts.size() == 1 && claims[parts.front()].shape == Claim::Shape::Switch) continue;
    Claim whole = claims[parts.front()];
    std::string names = fabric_.link_label(whole.link);
    bool down = whole.kind == model::FindingKind::LinkDown;
    for (std::size_t k = 1; k < parts.size(); ++k) {
      down = down && claims[parts[k]].kind == model::FindingKind::LinkDown;
      if (k < 8) names += ", " + fabric_.link_label(claims[parts[k]].link);
      absorb(whole, claims[parts[k]]);
    }
    whole.kind = down ? model::FindingKind::LinkDown : model::FindingKind::LinkLoss;
    whole.shape = Claim::Shape::Switch;
    whole.subject = model::switch_subject(fabric_.node_label(node));
    for (LinkId id = 0; id < fabric_.link_count(); ++id) {
      if (fabric_.link(id).from == node || fabric_.link(id).to == node) whole.zone.insert(id);
    }
    whole.note = "all its links that way are bad: " + names;
    for (std::size_t k = parts.size(); k-- > 0;) claims.erase(claims.begin() + static_cast<std::ptrdiff_t>(parts[k]));
    claims.push_back(std::move(whole));
    return merge_switches(claims, now);
  }
}

void Judge::merge(std::vector<Claim>& claims, Nanos now) {
  merge_cables(claims);
  merge_switches(claims, now);
  // Paths with a silent router may cross a link that is blamed already; alone, they wait for their next trace. Such
  // paths have nothing in common but the cable of the host they lead to.
  const auto unplaced = [&](const Claim& claim) {
    if (config_.paths_not_pinned || claim.link == kNone) return false;
    const DirectedLink& way = fabric_.link(claim.link);
    const bool cable = way.host_end != kNone;
    if (cable ? 2 * claim.tally.bad_unplaced < claim.tally.bad : !way.is_virtual) return false;
    if (!cable && claim.tally.oldest_bad_age() < 8) return true;
    return std::any_of(claims.begin(), claims.end(), [&](const Claim& other) {
      if (other.link == kNone || other.kind != claim.kind) return false;
      const DirectedLink& link = fabric_.link(other.link);
      if (link.is_virtual || link.host_end != kNone) return false;
      return cable ? link.to == way.from || link.from == way.to : link.to == way.to || link.from == way.from;
    });
  };
  std::vector<Claim> kept;
  for (const Claim& claim : claims) {
    if (!unplaced(claim) && !wait_for_reverse(claim, claims, now)) kept.push_back(claim);
  }
  claims = std::move(kept);
}

void Judge::settle_cases(std::vector<Claim>& claims, Nanos now) {
  constexpr Nanos kCaseLife = 25 * kSecond;  // longer than the longest window that a past fault stays in
  std::erase_if(cases_, [&](const Case& c) { return now - c.last > kCaseLife; });
  std::vector<Claim> kept;
  for (Claim& claim : claims) {
    std::set<std::string> zone;
    for (const LinkId id : claim.set) zone.insert(fabric_.link_subject(id));
    const auto holds = [&](const Case& c) {
      return !zone.empty() && std::includes(c.zone.begin(), c.zone.end(), zone.begin(), zone.end());
    };
    auto stands = std::find_if(cases_.begin(), cases_.end(),
                               [&](const Case& c) { return c.subject == claim.subject && c.kind == claim.kind; });
    if (stands == cases_.end()) stands = std::find_if(cases_.begin(), cases_.end(), holds);
    // A lossy link that dies is news; a dead one that now merely loses is on its way back.
    const bool worse = stands != cases_.end() && claim.kind == model::FindingKind::LinkDown &&
                       stands->kind != model::FindingKind::LinkDown;
    if (stands == cases_.end() || worse) {
      for (const LinkId id : claim.zone) {
        zone.insert(fabric_.link_subject(id));
        const auto reverse = claim.kind == model::FindingKind::LinkDown ? fabric_.reverse(id) : std::nullopt;
        if (reverse) zone.insert(fabric_.link_subject(*reverse));
      }
      if (claim.shape != Claim::Shape::Pair) {
        cases_.push_back({claim.kind, claim.shape, claim.link, claim.subject, std::move(zone), now});
      }
      kept.push_back(std::move(claim));
      continue;
    }
    if (claim.kind != stands->kind) continue;
    stands->last = now;
    claim.shape = stands->shape;
    claim.subject = stands->subject;
    const auto same = std::find_if(kept.begin(), kept.end(), [&](const Claim& other) {
      return other.subject == claim.subject && other.kind == claim.kind;
    });
    if (same != kept.end()) {
      absorb(*same, claim);
    } else {
      kept.push_back(std::move(claim));
    }
  }
  claims = std::move(kept);
}

// Loss that belongs to one host pair and to no link: a filter, a route, a bad entry for one destination.
void Judge::add_pair_claims(const Ballot& ballot, const std::vector<Pick>& picks, Nanos now,
                            std::vector<Claim>& claims) {
  for (const Pick& pick : picks) {
    if (!ballot.is_pair(pick.element) || pick.bad < 10 || pick.ratio < 0.05) continue;
    Claim claim;
    claim.pick = pick;
    claim.shape = Claim::Shape::Pair;
    const std::int64_t now_slot = now / kSecond;
    double forward = 0;
    double backward = 0;
    std::pair<std::string, std::string> hosts;
    bool explained = false;
    for (const std::uint32_t i : evidence_.by_pair()[pick.element - ballot.links]) {
      const Path& path = evidence_.paths()[i];
      const std::string& from = fabric_.endpoint(path.from).host;
      const std::string& to = fabric_.endpoint(path.to).host;
      hosts = std::minmax(from, to);
      double bad = 0;
      for (unsigned k = 0; k < kSlots; ++k) {
        const Bucket& b = path.ring[k];
        if (b.slot < 0 || !usable_at(path, k) || now - b.received > config_.window_ns) continue;
        const double lost = double(b.lost_out) + b.lost_back + b.lost_unknown;
        const auto age = static_cast<std::size_t>(std::clamp<std::int64_t>(now_slot - b.slot, 0, kSlots - 1));
        claim.tally.crossed += b.acked + lost;
        claim.tally.crossed_by_age[age] += b.acked + lost;
        claim.tally.bad_by_age[age] += lost;
        bad += lost;
        (from == hosts.first ? forward : backward) += b.lost_out;
        (from == hosts.first ? backward : forward) += b.lost_back;
      }
      claim.tally.bad += bad;
      // What a blamed link did to the pair, or left in its window, is not the pair's.
      for (const Route* route : {path.out, path.back}) {
        for (const LinkId id : route->links) {
          explained = explained || (bad > 0 && contaminated_.count(fabric_.link_subject(id)) != 0);
        }
      }
      ++claim.tally.paths;
      if (bad > 0) ++claim.tally.bad_paths;
    }
    if (claim.tally.bad_seconds() < 5 || claim.tally.bad_paths < 2 || claim.tally.newest_bad_age() > 3) continue;
    if (hosts.first == hosts.second || explained) continue;
    claim.tally.pairs.insert(hosts);
    claim.tally.bad_pairs.insert(hosts);
    const bool swap = backward > 4 * forward;
    claim.subject =
        swap ? model::pair_subject(hosts.second, hosts.first) : model::pair_subject(hosts.first, hosts.second);
    claim.tally.victims.insert(claim.subject);
    claim.window_s = std::min(ballot.window_s, claim.tally.oldest_bad_age() + 1.0);
    claim.since = now - static_cast<Nanos>(claim.window_s * 1e9);
    claim.factor = 0.8;
    claim.note = "every link between them is clean for other pairs: a filter, route or table entry for this pair";
    claims.push_back(std::move(claim));
  }
}

}  // namespace weft::localise
