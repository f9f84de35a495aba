// The life of findings: raised fast, cleared slowly, sticky, one per root cause. Pure: verdicts and times in, changes
// out. Identity of a finding is (kind, subject). Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/model/finding.h"

namespace weft::detect {

// How a finding is known to the tracker: "link_loss link:s1>l2".
std::string identity(model::FindingKind kind, const std::string& subject);

struct TrackerConfig {
  Nanos clear_after_ns = 15 * kSecond;   // this long without support before a finding clears
  Nanos minimum_hold_ns = 10 * kSecond;  // never cleared sooner after being raised
  std::size_t max_active = 4096;         // further verdicts are counted, not kept
};

struct FindingChange {
  enum class What { Raised, Updated, Cleared } what;
  model::Finding finding;  // wall clock times
};

class FindingTracker {
 public:
  explicit FindingTracker(TrackerConfig config) : config_(config) {}

  // Findings that were active before a restart; they keep their id and since.
  void restore(const std::vector<model::Finding>& active, Nanos now_monotonic);
  // verdicts: what is wrong now, since_ns monotonic. wall_now is the wall clock at now. Updated is emitted when
  // severity, victims, not_checked or confidence (by 0.05) changed, or other numbers did and 5 s have passed; at most
  // once a second a finding. Raised ones get a new id. blind: identities of findings about which nothing can be said
  // now, good or bad; the time to clearing stands still for them.
  std::vector<FindingChange> step(const std::vector<model::Finding>& verdicts, Nanos now_monotonic, Nanos wall_now,
                                  const std::set<std::string>& blind = {});
  // Clears all without waiting (operator's word).
  std::vector<FindingChange> clear_all(Nanos wall_now);
  // The operator has seen it; kept through updates and restarts. False when no active finding has that id.
  bool acknowledge(const std::string& id);
  // With the newest numbers, also those too small a change to have been emitted.
  std::vector<model::Finding> active() const;
  std::uint64_t refused() const { return refused_; }

 private:
  struct Entry {
    model::Finding finding;
    model::Finding emitted;  // as last given out
    Nanos raised_monotonic = 0;
    Nanos last_support_monotonic = 0;
    Nanos last_emitted_monotonic = 0;
  };
  TrackerConfig config_;
  std::map<std::string, Entry> entries_;  // by kind and subject
  Nanos stepped_ = 0;                     // monotonic time of the last step
  std::uint64_t next_id_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace weft::detect
