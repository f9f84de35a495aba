#include "lib/detect/finding_tracker.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::detect {
namespace {

constexpr Nanos kUpdateQuiet = kSecond;
constexpr Nanos kRefreshEvery = 5 * kSecond;

// What a reader would act on differently, at once; numbers that merely move, now and then.
bool worth_storing(const model::Finding& before, const model::Finding& after, Nanos since_emitted) {
  if (since_emitted < kUpdateQuiet) return false;
  if (std::fabs(before.confidence - after.confidence) >= 0.05 || before.severity != after.severity ||
      before.victims != after.victims || before.not_checked != after.not_checked) {
    return true;
  }
  return since_emitted >= kRefreshEvery && (before.summary != after.summary || before.evidence != after.evidence);
}

}  // namespace

std::string identity(model::FindingKind kind, const std::string& subject) {
  return std::string(model::finding_info(kind).name) + " " + subject;
}

void FindingTracker::restore(const std::vector<model::Finding>& active, Nanos now_monotonic) {
  for (const model::Finding& finding : active) {
    if (!finding.active()) continue;
    // Ids end in a number: new ones go on above the highest restored, so that none is given twice.
    const std::size_t digits = finding.id.find_last_not_of("0123456789") + 1;
    const std::string tail = finding.id.substr(std::min(digits, finding.id.size()));
    if (!tail.empty() && tail.size() <= 18) next_id_ = std::max<std::uint64_t>(next_id_, std::stoull(tail) + 1);
    if (entries_.size() >= config_.max_active) {
      ++refused_;
      continue;
    }
    entries_.emplace(identity(finding.kind, finding.subject),
                     Entry{finding, finding, now_monotonic, now_monotonic, now_monotonic});
  }
}

std::vector<FindingChange> FindingTracker::step(const std::vector<model::Finding>& verdicts, Nanos now_monotonic,
                                                Nanos wall_now, const std::set<std::string>& blind) {
  std::vector<FindingChange> changes;
  const Nanos elapsed = stepped_ == 0 ? 0 : std::max<Nanos>(0, now_monotonic - stepped_);
  stepped_ = now_monotonic;
  for (auto& [key, entry] : entries_) {
    if (blind.count(key) != 0) {
      entry.last_support_monotonic = std::min(now_monotonic, entry.last_support_monotonic + elapsed);
    }
  }
  for (const model::Finding& verdict : verdicts) {
    const std::string key = identity(verdict.kind, verdict.subject);
    const Nanos age = std::max<Nanos>(0, now_monotonic - verdict.since_ns);
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
      if (entries_.size() >= config_.max_active) {
        ++refused_;
        continue;
      }
      Entry entry{verdict, {}, now_monotonic, now_monotonic, now_monotonic};
      // The wall clock keeps ids apart from those of an earlier run whose findings were not restored.
      entry.finding.id = "f" + std::to_string(wall_now / kMillisecond) + "-" + std::to_string(next_id_++);
      entry.finding.since_ns = wall_now - age;
      entry.finding.raised_ns = wall_now;
      entry.finding.last_seen_ns = wall_now;
      entry.finding.until_ns.reset();
      entry.finding.acknowledged = false;
      entry.emitted = entry.finding;
      changes.push_back({FindingChange::What::Raised, entry.finding});
      entries_.emplace(key, std::move(entry));
      continue;
    }
    Entry& entry = found->second;
    entry.last_support_monotonic = now_monotonic;
    model::Finding updated = verdict;
    updated.id = entry.finding.id;
    updated.since_ns = entry.finding.since_ns;
    updated.raised_ns = entry.finding.raised_ns;
    updated.last_seen_ns = wall_now;
    updated.until_ns.reset();
    updated.acknowledged = entry.finding.acknowledged;
    entry.finding = std::move(updated);
    if (!worth_storing(entry.emitted, entry.finding, now_monotonic - entry.last_emitted_monotonic)) continue;
    entry.emitted = entry.finding;
    entry.last_emitted_monotonic = now_monotonic;
    changes.push_back({FindingChange::What::Updated, entry.finding});
  }
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& entry = it->second;
    if (now_monotonic - entry.last_support_monotonic < config_.clear_after_ns ||
        now_monotonic - entry.raised_monotonic < config_.minimum_hold_ns) {
      ++it;
      continue;
    }
    entry.finding.until_ns = wall_now;
    changes.push_back({FindingChange::What::Cleared, std::move(entry.finding)});
    it = entries_.erase(it);
  }
  return changes;
}

std::vector<FindingChange> FindingTracker::clear_all(Nanos wall_now) {
  std::vector<FindingChange> changes;
  for (auto& [key, entry] : entries_) {
    entry.finding.until_ns = wall_now;
    changes.push_back({FindingChange::What::Cleared, std::move(entry.finding)});
  }
  entries_.clear();
  return changes;
}

bool FindingTracker::acknowledge(const std::string& id) {
  for (auto& [key, entry] : entries_) {
    if (entry.finding.id != id) continue;
    entry.finding.acknowledged = true;
    entry.emitted.acknowledged = true;
    return true;
  }
  return false;
}

std::vector<model::Finding> FindingTracker::active() const {
  std::vector<model::Finding> out;
  out.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) out.push_back(entry.finding);
  return out;
}

}  // namespace weft::detect
