// What a blamed link is called: itself, its cable, or as much as the evidence can tell apart.
#include <algorithm>
#include <cmath>

#include "lib/localise/judge.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

// Links that only hop counts can tell apart are waited for this long before the claim is lowered.
constexpr Nanos kRivalPatience = 8 * kSecond;
constexpr Nanos kHopPatience = 20 * kSecond;  // while hop counts come
constexpr Nanos kToldBefore = 120 * kSecond;
constexpr std::size_t kMaxToldBefore = 1000;
constexpr Nanos kFirstImpression = 15 * kSecond;
// What names a link at once, and what does when patience ends: 20 to 1, and the confidence says so.
constexpr double kHopMargin = 5, kLateHopMargin = 3;

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

}  // namespace

void Judge::resume(const std::vector<model::Finding>& active, Nanos now) {
  for (const model::Finding& finding : active) {
    if (!finding.subject.starts_with("link:") || told_before_.size() >= kMaxToldBefore) continue;
    for (const auto& evidence : finding.evidence) {
      if (evidence.name != "margin") continue;
      told_before_[std::string(model::finding_info(finding.kind).name) + " " + finding.subject] = {now + kToldBefore,
                                                                                                   evidence.value};
    }
  }
}

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

  for (const LinkId id : links) {
    const std::string subject = fabric_.link_subject(id);
    const auto before = told_before_.find(std::string(model::finding_info(claim.kind).name) + " " + subject);
    if (links.size() == 1 || before == told_before_.end() || now > before->second.until) continue;
    claim.link = id;
    claim.set = {id};
    claim.subject = subject;
    claim.pick.margin = before->second.margin;
    claim.note = "told from links it shares all paths with before the aggregator restarted";
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

  // Whichever of them came first in the vote.
  Nanos waits_since = waiting_.emplace(own, now).first->second;
  for (const LinkId id : links) {
    if (const auto at = waiting_.find(fabric_.link_subject(id)); at != waiting_.end()) {
      waits_since = std::min(waits_since, at->second);
    }
  }
  bool patient = now - waits_since < kRivalPatience;
  if (links.size() > 1) {
    wanted_traces_.insert(links.begin(), links.end());
    // Routers that answer once a second need all of the trouble, not this window of it; and its share of loss likewise,
    // for a window that began before it has less. But five minutes back there is also all that is known of how routers
    // answer on good days. Whoever only just began to listen has not seen good days.
    const bool long_memory = claim.window_s > kSlots;
    Nanos since = (long_memory ? waits_since : std::min(claim.since, waits_since)) - 2 * kSecond;
    if (waits_since - resumed_ < kFirstImpression) since = std::min(since, resumed_ - kFirstImpression);
    Share share{claim.pick.bad, claim.pick.ratio > 0 ? claim.pick.bad / claim.pick.ratio : 0};
    const double recent_s = std::clamp(static_cast<double>(now - waits_since) / 1e9 + 2, 2.2, double(kSlots));
    const auto recent = tally(evidence_, fabric_, claim.question, now, recent_s, false, {claim.link});
    if (const auto it = recent.find(claim.link); it != recent.end() && it->second.bad >= share.bad / 2) {
      share = {it->second.bad, it->second.crossed};
    }
    const auto verdict =
        hops_.separate(fabric_, links, trouble_of(claim.question), share, claim.tally.excess_median_ns(), since);
    if (verdict) patient = now - waits_since < kHopPatience;
    if (verdict && verdict->margin_nats >= (patient ? kHopMargin : kLateHopMargin)) {
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
  if (patient) return false;

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
