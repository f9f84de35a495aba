// How much evidence a blame needs, by question and window.
#include "lib/localise/judge.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

constexpr double kDownRatio = 0.98;
constexpr double kDownProbes = 8;
// A dead host port may yet turn out a gone device, a downed port or a silent host: their word comes within this time.
// And a dead switch shows in all its links by then.
constexpr int kDownPatience_s = 3;
constexpr double kTooClean = 9;     // nats; see Tally::clean_surprise()
constexpr double kStaleLosses = 7;  // so many losses missing that the trouble is over
constexpr double kOldLosses = 2;    // from before the last 20 s

}  // namespace

bool Judge::accept_loss(Claim& claim, const Window& window, Nanos now, bool was_active) {
  const Tally& t = claim.tally;
  const std::string subject = fabric_.link_subject(claim.link);
  const bool host_end = fabric_.link(claim.link).host_end != kNone;
  if (window.long_memory) {
    // Grey loss: certain, spread out, and small.
    if (claim.pick.ratio < config_.loss_ratio_clear || claim.pick.bad < 8) return false;
    return true;
  }
  const int oldest = t.oldest_bad_age();
  // The newest two seconds that say anything.
  double newest_crossed = 0;
  double newest_bad = 0;
  unsigned newest = 0;
  for (std::size_t age = 0; age < kSlots && newest < 2; ++age) {
    if (t.crossed_by_age[age] <= 0) continue;
    newest_crossed += t.crossed_by_age[age];
    newest_bad += t.bad_by_age[age];
    ++newest;
  }
  const double fresh = newest_crossed > 0 ? newest_bad / newest_crossed : 0;
  const bool down = fresh >= kDownRatio && newest == 2 && newest_crossed >= kDownProbes;
  const auto was_down = down_.find(subject);
  if (down) {
    if (oldest < kDownPatience_s) return false;
    claim.kind = model::FindingKind::LinkDown;
    down_[subject] = now;
    return true;
  }
  // A link that dies or comes back passes through seconds of half loss: that is no link_loss.
  if (fresh >= 0.5 && oldest < 4 && !was_active) return false;
  if (host_end && oldest < kDownPatience_s && !was_active) return false;
  if (was_down != down_.end() && now - was_down->second < 10 * kSecond) return false;
  return claim.pick.ratio >= (was_active ? config_.loss_ratio_clear : config_.loss_ratio_raise);
}

bool Judge::accept(Claim& claim, const Window& window, Nanos now) {
  const Tally& t = claim.tally;
  const bool was_active = active(claim.kind, fabric_.link_subject(claim.link), now);
  if (t.paths < 2 || t.bad_paths < 2) return false;
  if (t.pairs.size() >= 2 && t.bad_pairs.size() < 2) return false;
  if (claim.pick.bad < (was_active ? 3 : 4)) return false;
  // One bad second may be anything; only much evidence from many hosts is enough at once.
  const bool plain = claim.pick.gain >= 40 && t.bad_pairs.size() >= 3 && fabric_.link(claim.link).host_end == kNone;
  if (!window.long_memory) {
    const unsigned needed = claim.question == Question::LateToPast                 ? 6
                            : claim.question == Question::LateToSiblings && !plain ? 3
                                                                                   : 2;
    if (t.bad_seconds() < needed) return false;
    double crossed_since = 0;
    for (int age = 0; age < t.newest_bad_age(); ++age) crossed_since += t.crossed_by_age[static_cast<std::size_t>(age)];
    if (crossed_since * claim.pick.ratio >= kStaleLosses) return false;
  } else {
    // What began just now is for the windows of seconds, which wait to see what becomes of it.
    if (t.bad - t.bad_recently() < kOldLosses) return false;
    // No loss in the last 20 s where several were due: over.
    if (t.newest_bad_age() < 0 && t.crossed / window.seconds * 20 * claim.pick.ratio >= kStaleLosses) return false;
  }
  // Bad paths whose way is not known yet speak for every link that all paths share, until they are traced. Without such
  // paths it is a link that is sick for some flows only, as a bundle with one bad member is.
  if (claim.question == Question::Loss && t.bad_unplaced > 0 && t.clean_surprise(claim.pick.ratio) > kTooClean) {
    return false;
  }
  // A host adds delay of its own, in its kernel too, and at its own cable nothing tells the two apart.
  const bool of_delay = claim.question == Question::LateToSiblings || claim.question == Question::LateToPast;
  if (of_delay && fabric_.link(claim.link).host_end != kNone &&
      t.excess_median_ns() < 2 * static_cast<double>(config_.delay_floor_ns)) {
    return false;
  }
  switch (claim.question) {
    case Question::Loss:
      return accept_loss(claim, window, now, was_active);
    case Question::LateToSiblings:
      return claim.pick.ratio >= (was_active ? 0.3 : 0.5);
    case Question::LateToPast:
      return claim.pick.ratio >= (was_active ? 0.5 : 0.8);
    case Question::Ce:
      return claim.pick.ratio >= (was_active ? config_.ce_ratio_clear : config_.ce_ratio_raise);
    case Question::Bleached:
      return claim.pick.ratio >= 0.5;
  }
  return false;
}

}  // namespace weft::localise
