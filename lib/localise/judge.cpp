#include "lib/localise/judge.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lib/localise/delay.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

constexpr double kBlindWindow_s = 10, kBlindBelow = 16;  // probes (of delay: a path's seconds) that crossed
constexpr Nanos kBlindAtMost = 60 * kSecond;
constexpr std::size_t kMaxSuspicions = 64;
constexpr Nanos kSinceStands = 10 * kSecond;  // without support; the tracker keeps what stands longer

// Which questions have anything bad in their evidence: a healthy fabric is judged in one pass.
std::array<bool, 5> anything_bad(const Evidence& evidence) {
  std::uint64_t loss = 0;
  std::uint64_t ce = 0;
  std::uint64_t bleached = 0;
  bool siblings = false;
  bool past = false;
  for (const Path& path : evidence.paths()) {
    for (const Bucket& b : path.ring) {
      if (b.slot < 0) continue;
      loss += static_cast<std::uint64_t>(b.lost_unknown) + b.lost_out + b.lost_back;
      ce += static_cast<std::uint64_t>(b.ce_out) + b.ce_back;
      bleached += static_cast<std::uint64_t>(b.bleached_out) + b.bleached_back;
      siblings = siblings || b.late_to_siblings;
      past = past || b.late_to_past;
    }
    for (const LongBucket& b : path.past) loss += static_cast<std::uint64_t>(b.lost_unknown) + b.lost_out + b.lost_back;
  }
  return {loss > 0, siblings, past, ce > 0, bleached > 0};
}

}  // namespace

bool Judge::active(model::FindingKind kind, const std::string& subject, Nanos now) const {
  const auto found = memory_.find(std::string(model::finding_info(kind).name) + " " + subject);
  return found != memory_.end() && now - found->second.last <= kClaimStands;
}

Nanos Judge::remember(model::FindingKind kind, const std::string& subject, Nanos since, Nanos now) {
  Memory& memory = memory_[std::string(model::finding_info(kind).name) + " " + subject];
  if (memory.last == 0 || now - memory.last > kSinceStands) memory.since = since;
  memory.since = std::min(memory.since, since);
  memory.last = now;
  return memory.since;
}

void Judge::forget() {
  down_.clear();
  contaminated_.clear();
  waiting_.clear();
  told_before_.clear();
  wording_.clear();
  cases_.clear();
  memory_.clear();
  wanted_traces_.clear();
  late_links_.clear();
  blind_.clear();
  common_seconds_.clear();
  common_run_ = 0;
}

void Judge::place_routes() {
  const bool all = placed_revision_ != fabric_.revision();
  for (Path& path : evidence_.paths()) {
    if (!all && path.out != nullptr) continue;
    path.out = &fabric_.route(path.from, path.to, path.ports_out());
    path.back = &fabric_.route(path.to, path.from, path.ports_back());
  }
  placed_revision_ = fabric_.revision();
}

void Judge::mark_usable(Nanos now) {
  struct End {
    bool reporting = false;
    Nanos confirmed = 0;
    const Host* host = nullptr;
    const EndpointState* port = nullptr;
  };
  std::vector<End> ends(fabric_.endpoint_count());
  for (EndpointId id = 0; id < ends.size(); ++id) {
    const EndpointName& name = fabric_.endpoint(id);
    const Host* host = hosts_.find(name.host);
    if (host == nullptr) continue;
    End& end = ends[id];
    end.host = host;
    end.reporting = hosts_.state(*host, now) == HostState::Reporting;
    end.confirmed = hosts_.confirmed_until(*host);
    const auto port = host->endpoints.find(name.device);
    if (port != host->endpoints.end()) end.port = &port->second;
  }
  const auto good = [](const End& end, Nanos at, bool delay) {
    if (!end.reporting || at > end.confirmed) return false;
    for (const Span& span : delay ? end.host->delay_taint : end.host->loss_taint) {
      if (span.holds(at)) return false;
    }
    if (delay) {
      for (const Span& span : end.host->loss_taint) {
        if (span.holds(at)) return false;
      }
    }
    return end.port == nullptr || !end.port->tainted(at);
  };
  const auto in_doubt = [](const End& end, Nanos at) {
    return std::any_of(end.host->delay_doubt.begin(), end.host->delay_doubt.end(),
                       [&](const Span& span) { return span.holds(at); });
  };
  for (Path& path : evidence_.paths()) {
    path.usable = 0;
    path.usable_delay = 0;
    const End& from = ends[path.from];
    const End& to = ends[path.to];
    if (from.host == nullptr || to.host == nullptr) continue;
    for (unsigned i = 0; i < kSlots; ++i) {
      Bucket& bucket = path.ring[i];
      if (bucket.slot < 0 || now - bucket.received > 24 * kSecond) continue;
      bucket.doubtful = in_doubt(from, bucket.received) || in_doubt(to, bucket.received);
      if (!good(from, bucket.received, false) || !good(to, bucket.received, false)) continue;
      if (common_seconds_.count(bucket.slot) == 0) path.usable |= 1U << i;
      if (good(from, bucket.received, true) && good(to, bucket.received, true)) path.usable_delay |= 1U << i;
    }
  }
}

// Seconds in which every path of nearly every pair lost probes have their cause outside of the fabric's links; when it
// goes on for ten of them, it is a state of the fabric after all.
void Judge::common_seconds(Nanos now) {
  const std::int64_t now_slot = now / kSecond;
  while (!common_seconds_.empty() && *common_seconds_.begin() < now_slot - 30) {
    common_seconds_.erase(common_seconds_.begin());
  }
  const std::int64_t slot = now_slot - 1;
  std::size_t pairs = 0;
  std::size_t hit = 0;
  for (const auto& members : evidence_.by_pair()) {
    bool any = false;
    bool all = true;
    for (const std::uint32_t i : members) {
      const Bucket& b = evidence_.paths()[i].ring[static_cast<std::size_t>(slot) % kSlots];
      if (b.slot != slot || b.sent == 0) continue;
      any = true;
      all = all && b.lost_unknown + b.lost_out + b.lost_back > 0;
    }
    if (!any) continue;
    ++pairs;
    if (all) ++hit;
  }
  if (pairs >= 6 && hit * 100 >= pairs * 95) {
    if (++common_run_ <= 10) common_seconds_.insert(slot);
  } else if (pairs > 0) {
    common_run_ = 0;
  }
}

void Judge::graduate(Nanos now) {
  const std::int64_t now_slot = now / kSecond;
  std::vector<char> dirty(fabric_.link_count(), 0);
  for (LinkId id = 0; id < dirty.size() && !contaminated_.empty(); ++id) {
    dirty[id] = contaminated_.count(fabric_.link_subject(id)) != 0 ? 1 : 0;
  }
  for (Path& path : evidence_.paths()) {
    for (unsigned i = 0; i < kSlots; ++i) {
      Bucket& bucket = path.ring[i];
      if (bucket.slot < 0 || bucket.graduated || bucket.slot >= now_slot - 20) continue;
      bucket.graduated = true;
      if (!usable_at(path, i)) continue;
      bool clean = true;
      if (!contaminated_.empty()) {
        for (const Route* route : {path.out, path.back}) {
          for (const LinkId id : route->links) clean = clean && dirty[id] == 0;
        }
      }
      if (!clean) continue;
      const std::int64_t slot = bucket.slot / kLongSlotSeconds;
      LongBucket& past = path.past[static_cast<std::size_t>(slot) % kLongSlots];
      if (past.slot != slot) past = LongBucket{slot, 0, 0, 0, 0};
      past.sent += bucket.sent;
      std::uint32_t late = bucket.late;
      const auto settle = [&](std::uint16_t& to, std::uint32_t lost) {
        const std::uint32_t forgiven = std::min(late, lost);
        late -= forgiven;
        to = static_cast<std::uint16_t>(std::min<std::uint32_t>(60'000, to + lost - forgiven));
      };
      settle(past.lost_unknown, bucket.lost_unknown);
      settle(past.lost_out, bucket.lost_out);
      settle(past.lost_back, bucket.lost_back);
    }
  }
}

std::vector<Claim> Judge::ask(Question question, const Window& window, Nanos now) {
  std::vector<Claim> claims;
  const Ballot ballot = make_ballot(evidence_, fabric_, question, now, window.seconds, window.long_memory);
  if (ballot.lossy.empty()) return claims;

  VoteConfig vote_config;
  double least = 0.001;
  double most = 0.02;
  if (question == Question::LateToSiblings || question == Question::LateToPast) {
    least = 0.05;
    most = 0.3;
  } else if (question != Question::Loss) {
    least = 0.01;
    most = 0.05;
  }
  std::size_t in_use = 0;
  for (LinkId id = 0; id < ballot.links; ++id) in_use += ballot.ok[id] + ballot.bad[id] > 0 ? 1 : 0;
  // The window of minutes sees a dying link at once, while the short ones wait to see whether it is dead: there the
  // worst suspect stays in, or such a link would first be called lossy.
  vote_config.base_ratio = base_ratio(ballot, least, most, !window.long_memory);
  if (question == Question::Loss && !window.long_memory) {
    in_use_.assign(ballot.links, 0);
    for (LinkId id = 0; id < ballot.links; ++id) in_use_[id] = ballot.ok[id] + ballot.bad[id] > 0 ? 1 : 0;
  }
  vote_config.threshold_nats = 10 + std::log(1.0 + static_cast<double>(in_use));

  const std::vector<Pick> picks = vote(ballot.lossy, ballot.ok, ballot.handicap, vote_config);
  std::set<LinkId> picked;
  for (const Pick& pick : picks) {
    if (ballot.is_link(pick.element)) picked.insert(pick.element);
  }
  const auto tallies = tally(evidence_, fabric_, question, now, window.seconds, window.long_memory, picked);
  for (const Pick& pick : picks) {
    const auto numbers = tallies.find(pick.element);
    if (!ballot.is_link(pick.element) || numbers == tallies.end()) continue;
    Claim claim;
    claim.question = question;
    claim.kind = question == Question::Loss       ? model::FindingKind::LinkLoss
                 : question == Question::Ce       ? model::FindingKind::LinkEcn
                 : question == Question::Bleached ? model::FindingKind::CannotMeasure
                                                  : model::FindingKind::LinkDelay;
    claim.link = pick.element;
    claim.pick = pick;
    claim.tally = numbers->second;
    const int oldest = claim.tally.oldest_bad_age();
    claim.window_s =
        window.long_memory ? window.seconds : std::max(1.0, std::min(window.seconds, static_cast<double>(oldest) + 1));
    claim.since = now - static_cast<Nanos>(claim.window_s * 1e9);
    if (claim.pick.rivals.empty()) waiting_.erase(fabric_.link_subject(claim.link));
    // Hop counts take a second or two: ask for them at the first suspicion.
    for (const ElementId rival : pick.rivals) {
      if (ballot.is_link(rival)) {
        wanted_traces_.insert(rival);
        wanted_traces_.insert(claim.link);
      }
    }
    const auto suspect = [&](const char* outcome) {
      if (suspicions_.size() < kMaxSuspicions) {
        suspicions_.push_back(describe(claim, fabric_, window.seconds) + ": " + outcome);
      }
    };
    if (!accept(claim, window, now)) {
      suspect("evidence does not suffice");
      continue;
    }
    if (!name(claim, ballot, now)) {
      suspect("not told from its rivals");
      continue;
    }
    suspect("blamed");
    if (fabric_.link(claim.link).is_virtual) {
      claim.factor = 0.7;
      say_unchecked(claim, "Which link it is: the way between " + fabric_.from_label(claim.link) + " and " +
                               fabric_.to_label(claim.link) + " is not known.");
    }
    if (fabric_.link(claim.link).host_end != kNone) {
      say_unchecked(claim, "The host's RDMA device and its cable cannot be told apart by probes alone.");
    }
    std::set<std::string> hosts;
    for (const auto& [a, b] : claim.tally.pairs) {
      hosts.insert(a);
      hosts.insert(b);
    }
    if (hosts.size() <= 2) claim.factor = std::min(claim.factor, 0.8);
    claims.push_back(std::move(claim));
  }
  if (question == Question::Loss && !window.long_memory && window.seconds >= 20) {
    add_pair_claims(ballot, picks, now, claims);
  }
  return claims;
}

std::string Judge::clean_sibling(const Claim& claim, Nanos now) {
  if (claim.shape != Claim::Shape::Directed || fabric_.link(claim.link).is_virtual) return "";
  const DirectedLink& link = fabric_.link(claim.link);
  if (link.host_end != kNone) return "";
  // Another way into the same switch, or else out of the same one, that carries probes and is fine.
  std::set<LinkId> others;
  for (LinkId id = 0; id < fabric_.link_count() && others.size() < 8; ++id) {
    const DirectedLink& other = fabric_.link(id);
    if (id == claim.link || other.is_virtual || other.host_end != kNone) continue;
    if (other.to == link.to && other.from != link.from) others.insert(id);
  }
  const double window = std::min(20.0, std::max(claim.window_s, 1.0));
  for (const auto& [id, t] : tally(evidence_, fabric_, claim.question, now, window, false, others)) {
    if (t.crossed < 10 || t.bad / t.crossed > 0.005) continue;
    const std::string tier = fabric_.tier(fabric_.link(id).from);
    return "sibling " + (tier.empty() ? std::string("router") : tier) + " " + fabric_.from_label(id) + " is clean";
  }
  return "";
}

std::vector<Verdict> Judge::judge(Nanos now) {
  std::vector<Verdict> out;
  // Whoever did not judge for a while did not read either: silence counts from now.
  if (now - last_judge_ > 2 * kSecond) resumed_ = now;
  last_judge_ = now;
  wanted_traces_.clear();
  suspicions_.clear();
  late_links_.clear();
  evidence_.expire(now);
  if (now - expired_ > 30 * kSecond) {
    fabric_.expire(now);
    hops_.expire(now);
    expired_ = now;
  }
  hosts_.review(now);
  judge_hosts(now, out);
  judge_devices(now, out);
  common_seconds(now);
  place_routes();
  mark_usable(now);
  classify_delay(evidence_, {config_.delay_floor_ns, config_.delay_spread_factor}, now);
  for (auto* times : {&down_, &contaminated_}) {
    std::erase_if(*times, [&](const auto& row) { return now - row.second > 45 * kSecond; });
  }
  std::erase_if(wording_, [&](const auto& row) { return now - row.second.last > 60 * kSecond; });
  std::erase_if(waiting_, [&](const auto& row) { return now - row.second.since > 60 * kSecond; });
  std::erase_if(memory_, [&](const auto& row) { return now - row.second.last > 120 * kSecond; });
  graduate(now);

  struct Round {
    Question question;
    std::vector<Window> windows;
  };
  const double full = static_cast<double>(config_.window_ns) / 1e9;
  const std::vector<Round> rounds{
      {Question::Loss, {{2.2, false}, {5, false}, {full, false}, {300, true}}},
      {Question::LateToSiblings, {{4, false}, {10, false}}},
      {Question::LateToPast, {{10, false}}},
      {Question::Ce, {{3, false}, {10, false}}},
      {Question::Bleached, {{10, false}}},
  };
  const std::array<bool, 5> bad = anything_bad(evidence_);
  std::vector<Claim> all;
  for (const Round& round : rounds) {
    if (!bad[static_cast<std::size_t>(round.question)]) continue;
    // On a fabric where a port is no path, siblings of one pair share all their ways.
    if (round.question == Question::LateToSiblings && config_.paths_not_pinned) continue;
    std::vector<Claim> claims;
    for (const Window& window : round.windows) {
      for (Claim& claim : ask(round.question, window, now)) {
        const auto same = std::find_if(claims.begin(), claims.end(), [&](const Claim& other) {
          return other.subject == claim.subject || other.zone.count(claim.link) != 0 ||
                 claim.zone.count(other.link) != 0;
        });
        if (same == claims.end()) {
          claims.push_back(std::move(claim));
        } else if (same->kind == claim.kind && same->subject == claim.subject && claim.pick.gain > same->pick.gain) {
          *same = std::move(claim);
        }
      }
    }
    merge(claims, now);
    if (round.question == Question::Loss) settle_cases(claims, now);
    std::move(claims.begin(), claims.end(), std::back_inserter(all));
  }

  std::set<std::string> told;  // a dead or missing port tells of its cable by itself
  for (const Verdict& verdict : out) told.insert(verdict.finding.subject);
  std::set<LinkId> dead;
  for (const Claim& claim : all) {
    if (claim.kind == model::FindingKind::LinkDown) dead.insert(claim.set.begin(), claim.set.end());
  }
  for (Claim& claim : all) {
    if (told.count(claim.subject) != 0) continue;
    if (claim.kind != model::FindingKind::LinkDown && dead.count(claim.link) != 0) continue;
    if (claim.question == Question::LateToPast && std::any_of(all.begin(), all.end(), [&](const Claim& other) {
          return other.question == Question::LateToSiblings;
        })) {
      continue;  // the siblings' word comes first
    }
    for (const LinkId id : claim.question == Question::Loss ? claim.zone : std::set<LinkId>{}) {
      contaminated_[fabric_.link_subject(id)] = now;
    }
    for (const LinkId id : claim.set) {
      if (claim.kind == model::FindingKind::LinkDelay) late_links_.insert(id);
    }
    if (told.insert(claim.subject + " " + std::string(model::finding_info(claim.kind).name)).second) {
      claim.since = remember(claim.kind, claim.subject, claim.since, now);
      // Thresholds for staying go by the link, however the claim is worded.
      for (const LinkId id : claim.set) {
        const std::string link = fabric_.link_subject(id);
        remember(claim.kind, link, claim.since, now);
        wording_[std::string(model::finding_info(claim.kind).name) + " " + link] = {
            claim.shape, claim.question,    claim.kind,   claim.link,        claim.subject, now,
            now,         claim.pick.margin, claim.factor, claim.not_checked, claim.note};
      }
      out.push_back({to_finding(claim, fabric_, clean_sibling(claim, now))});
    }
  }
  note_blind(now);
  return out;
}

void Judge::note_blind(Nanos now) {
  blind_.clear();
  for (auto& [key, wording] : wording_) {
    if (wording.supported == now || now - wording.supported > kBlindAtMost) continue;
    const auto numbers = tally(evidence_, fabric_, wording.question, now, kBlindWindow_s, false, {wording.link});
    const auto it = numbers.find(wording.link);
    if (it != numbers.end() && it->second.crossed >= kBlindBelow) continue;
    blind_.insert(std::string(model::finding_info(wording.kind).name) + " " + wording.subject);
    wording.last = now;
  }
}

}  // namespace weft::localise
