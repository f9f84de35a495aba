#include "aggregator/export/event_feed.h"

#include <algorithm>
#include <utility>

#include "aggregator/export/api_json.h"

namespace weft::aggregator {
namespace {

constexpr Nanos kUpdateInterval = 5 * kSecond;
constexpr Nanos kStatusInterval = kSecond;

}  // namespace

void EventFeed::tell(const char* type, const model::Finding& finding) { events_.publish(type, finding_json(finding)); }

void EventFeed::look(const Snapshot& snapshot) {
  const Nanos now = snapshot.monotonic_ns;
  std::map<std::string, Known> standing;
  for (const model::Finding& finding : snapshot.active) {
    Known next{finding_essence(finding), finding.acknowledged, finding.severity, now};
    const auto before = known_.find(finding.id);
    if (before == known_.end()) {
      if (!first_) tell("finding_raised", finding);
    } else if (before->second.essence != next.essence) {
      const Known& known = before->second;
      const bool at_once = known.acknowledged != next.acknowledged || known.severity != next.severity;
      if (at_once || now - known.told_ns >= kUpdateInterval) {
        tell("finding_updated", finding);
      } else {
        next = known;
      }
    } else {
      next.told_ns = before->second.told_ns;
    }
    standing.emplace(finding.id, std::move(next));
  }
  for (const auto& before : known_) {
    const std::string& id = before.first;
    if (standing.count(id) != 0) continue;
    const auto& cleared = *snapshot.cleared;
    const auto it = std::find_if(cleared.begin(), cleared.end(), [&](const auto& finding) { return finding.id == id; });
    if (it != cleared.end()) tell("finding_cleared", *it);
  }
  known_ = std::move(standing);
  if (first_ || now - status_told_ns_ >= kStatusInterval) {
    events_.set_state("status", status_json(snapshot, version_));
    status_told_ns_ = now;
  }
  first_ = false;
}

}  // namespace weft::aggregator
