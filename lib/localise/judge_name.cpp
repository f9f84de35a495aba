// What a blamed link is called: itself, its cable, or as much as the evidence can tell apart.
#include <algorithm>
#include <cmath>

#include "lib/localise/judge.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

// Links that only hop counts can tell apart are waited for this long before the claim is lowered.
constexpr Nanos kRivalPatience = 8 * kSecond;
constexpr Nanos kHopPatience = 16 * kSecond;  // while hop counts come
constexpr double kHopMargin = 5;

Trouble trouble_of(Question question) {
  switch (question) {
    case Question::LateToSiblings:
    case Question::LateToPast:
      return Trouble::Delay;
    case Question::Ce:
    case Question::Bleached:
      return Trouble::Ce;
    case Question::Loss:
      break;
  }
  return Trouble::Loss;
}

// Few losses leave the ratio open, and a ratio taken too high makes a few lucky answers weigh too much: Wilson's lower
// bound, 95 %.
double least_ratio(const Pick& pick) {
  if (pick.bad <= 0 || pick.ratio <= 0) return 0.01;
  constexpr double z = 1.64;
  const double n = pick.bad / pick.ratio;
  const double p = std::min(1.0, pick.ratio);
  const double middle = p + z * z / (2 * n);
  return std::max(0.01, (middle - z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n));
}

}  // namespace

bool Judge::name(Claim& claim, const Ballot& ballot, Nanos now) {
  const std::string own = fabric_.link_subject(claim.link);
  std::vector<LinkId> links{claim.link};
  bool pair_rival = false;
  for (const ElementId rival : claim.pick.rivals) {
    if (ballot.is_link(rival)) {
      links.push_back(rival);
    } else {
      pair_rival = true;
    }
  }
  const auto reverse = fabric_.reverse(claim.link);
  const bool host_end = fabric_.link(claim.link).host_end != kNone;
  claim.set = links;
  claim.zone.insert(links.begin(), links.end());
  claim.subject = own;
  for (const LinkId id : links) {
    const auto stands =
        wording_.find(std::string(model::finding_info(claim.kind).name) + " " + fabric_.link_subject(id));
    if (stands == wording_.end() || now - stands->second.last > kClaimStands) continue;
    claim.shape = stands->second.shape;
    claim.link = stands->second.link;
    claim.subject = stands->second.subject;
    claim.pick.margin = std::max(claim.pick.margin, stands->second.margin);
    claim.factor = stands->second.factor;
    claim.not_checked = stands->second.not_checked;
    claim.note = stands->second.note;
    return true;
  }

  // Both ways of one cable, and nothing else: the cable.
  const bool cable_only = links.size() > 1 && std::all_of(links.begin(), links.end(), [&](LinkId id) {
                            return id == claim.link || (reverse && id == *reverse);
                          });
  if (cable_only) {
    claim.shape = Claim::Shape::Undirected;
    claim.subject = fabric_.undirected_subject(claim.link);
    claim.pick.margin = std::max(claim.pick.margin, 5.0);
    say_unchecked(claim, "Direction: every probe that crosses the cable one way comes back over it.");
    if (claim.kind == model::FindingKind::LinkLoss && host_end) {
      claim.shape = Claim::Shape::Rnic;
    } else if (claim.kind == model::FindingKind::LinkLoss) {
      claim.factor = 0.7;
    }
    return true;
  }
  if (links.size() == 1 && !pair_rival) {
    waiting_.erase(own);
    return true;
  }

  bool hops_come = false;
  if (links.size() > 1) {
    wanted_traces_.insert(links.begin(), links.end());
    const auto verdict = hops_.separate(fabric_, links, trouble_of(claim.question), least_ratio(claim.pick),
                                        claim.tally.excess_median_ns(), claim.since - 2 * kSecond);
    hops_come = verdict.has_value();
    if (verdict && verdict->margin_nats >= kHopMargin) {
      claim.link = verdict->link;
      claim.set = {verdict->link};
      claim.subject = fabric_.link_subject(verdict->link);
      claim.pick.margin = verdict->margin_nats;
      claim.note = "told from links it shares all paths with by " + std::to_string(static_cast<int>(verdict->tries)) +
                   " probes that end at the routers between";
      waiting_.erase(own);
      return true;
    }
  }
  Nanos& since = waiting_.emplace(own, now).first->second;
  if (now - since < (hops_come ? kHopPatience : kRivalPatience)) return false;

  claim.factor = 0.7;
  std::string names;
  for (const LinkId id : links) names += (names.empty() ? "" : ", ") + fabric_.link_label(id);
  if (claim.tally.pairs.size() == 1) {
    const auto& hosts = *claim.tally.pairs.begin();
    claim.shape = Claim::Shape::Pair;
    claim.subject = model::pair_subject(hosts.first, hosts.second);
    say_unchecked(claim, "Which of " + names + " it is: only one host pair crosses them, always together.");
    return true;
  }
  // The switch that all suspects touch.
  std::set<NodeId> shared{fabric_.link(links.front()).from, fabric_.link(links.front()).to};
  for (const LinkId id : links) {
    std::erase_if(shared, [&](NodeId node) { return node != fabric_.link(id).from && node != fabric_.link(id).to; });
  }
  std::erase_if(shared, [&](NodeId node) { return fabric_.is_endpoint(node); });
  say_unchecked(claim, "Which of " + names +
                           " it is: every probed path crosses them together, and no probe that ends at a router "
                           "between them told them apart.");
  if (shared.size() == 1 && links.size() > 1) {
    claim.shape = Claim::Shape::Switch;
    claim.subject = model::switch_subject(fabric_.node_label(*shared.begin()));
  }
  return true;
}

}  // namespace weft::localise
