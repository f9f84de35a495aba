// What a blamed link is called: itself, its cable, or as much as the evidence can tell apart.
#include <algorithm>
#include <cmath>

#include "lib/localise/judge.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

// Links that only hop counts can tell apart are waited for this long before the claim is lowered.
constexpr Nanos kRivalPatience = 8 * kSecond;
constexpr Nanos kHopPatience = 20 * kSecond;   // while hop counts come
constexpr Nanos kLastPatience = 30 * kSecond;  // for less of them
constexpr Nanos kToldBefore = 120 * kSecond;
constexpr std::size_t kMaxToldBefore = 1000;
constexpr double kOnsetWindow_s = 20;
constexpr Nanos kFirstImpression = 15 * kSecond;
// What names a link at once, and what does after long patience: 20 to 1, and the confidence says so.
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

// Where in the tally's seconds the trouble began: the split that makes them likeliest, little before it, more since.
struct Onset {
  int seconds = 0;  // ago
  Share share;      // since then
  bool whole_window = false;
};

Onset onset_of(const Tally& tally) {
  constexpr double kLittle = 0.003;
  const auto likelihood = [&](double bad, double crossed) {
    const double p = std::clamp(crossed > 0 ? bad / crossed : 0.0, kLittle, 0.999);
    return bad * std::log(p) + (crossed - bad) * std::log1p(-p);
  };
  Onset best;
  double best_likelihood = -1e300;
  Share since;
  int oldest = 0;
  for (unsigned age = 0; age < kSlots; ++age) {
    if (tally.crossed_by_age[age] <= 0) continue;
    oldest = static_cast<int>(age) + 1;
    since.bad += tally.bad_by_age[age];
    since.crossed += tally.crossed_by_age[age];
    Share before;
    for (unsigned older = age + 1; older < kSlots; ++older) {
      before.bad += tally.bad_by_age[older];
      before.crossed += tally.crossed_by_age[older];
    }
    const bool rises = before.bad * since.crossed <= since.bad * before.crossed;
    const double here = likelihood(since.bad, since.crossed) + likelihood(before.bad, before.crossed);
    if (!rises || here <= best_likelihood) continue;
    best_likelihood = here;
    best = {oldest, since, false};
  }
  best.whole_window = best.seconds == oldest;
  return best;
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

  Waiting waits = waiting_.emplace(own, Waiting{now, now}).first->second;
  for (const LinkId id : links) {  // whichever of them came first in the vote
    const auto at = waiting_.find(fabric_.link_subject(id));
    if (at == waiting_.end()) continue;
    waits.since = std::min(waits.since, at->second.since);
    waits.onset = std::min(waits.onset, at->second.onset);
  }
  bool patient = now - waits.since < kRivalPatience;
  if (links.size() > 1) {
    wanted_traces_.insert(links.begin(), links.end());
    // Routers that answer once a second need all of the trouble, not this window of it, and nothing from before it.
    Share share{claim.pick.bad, claim.pick.ratio > 0 ? claim.pick.bad / claim.pick.ratio : 0};
    const auto recent = tally(evidence_, fabric_, claim.question, now, kOnsetWindow_s, false, {claim.link});
    if (const auto it = recent.find(claim.link); it != recent.end() && it->second.bad >= share.bad / 2) {
      const Onset onset = onset_of(it->second);
      const Nanos at = now - onset.seconds * kSecond;
      waits.onset = onset.whole_window ? std::min(waits.onset, at) : at;
      share = onset.share;
    }
    waiting_[own] = waits;
    Nanos since = waits.onset;
    // Whoever only just began to listen has not seen good days.
    if (since - resumed_ < kFirstImpression) since = std::min(since, resumed_ - kFirstImpression);
    claim.hops =
        hops_.separate(fabric_, links, trouble_of(claim.question), share, claim.tally.excess_median_ns(), since);
    const auto& verdict = claim.hops;
    const double enough = now - waits.since < kHopPatience ? kHopMargin : kLateHopMargin;
    if (verdict) patient = now - waits.since < kLastPatience;
    if (verdict && verdict->margin_nats >= enough) {
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
