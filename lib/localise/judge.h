// The order of blame, once a second: hosts that were not there or not on time, devices and ports that are gone, then
// links by vote. Loss over 2, 5 and 20 s (a fault shows in the shortest window that holds enough of it) and, for what
// is grey, over 5 minutes; delay over 4 and 10 s; CE over 3 and 10 s.
//
// Only seconds count in which both ends of a path have since shown that they were alive and on time: a host that stops
// takes its evidence with it before its silence is known.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/localise/claim.h"
#include "lib/localise/evidence.h"
#include "lib/localise/fabric.h"
#include "lib/localise/hop_evidence.h"
#include "lib/localise/host_book.h"
#include "lib/localise/localiser.h"

namespace weft::localise {

// A claim without support stands this long for thresholds and names; the finding itself lives with the tracker.
inline constexpr Nanos kClaimStands = 6 * kSecond;

class Judge {
 public:
  Judge(const LocaliserConfig& config, Fabric& fabric, HostBook& hosts, Evidence& evidence, HopEvidence& hops)
      : config_(config), fabric_(fabric), hosts_(hosts), evidence_(evidence), hops_(hops) {}

  std::vector<Verdict> judge(Nanos now);
  // Links that hop counts would tell apart, while anything is suspected: the planner has their paths traced.
  const std::set<LinkId>& wanted_traces() const { return wanted_traces_; }
  // Paths that some verdict of the last judge() covers, for views.
  bool is_late(LinkId link) const { return late_links_.count(link) != 0; }
  // See Localiser::blind().
  const std::set<std::string>& blind() const { return blind_; }
  // See Localiser::suspicions().
  const std::vector<std::string>& suspicions() const { return suspicions_; }
  void forget();
  void resume(const std::vector<model::Finding>& active, Nanos now);

 private:
  struct Window {
    double seconds;
    bool long_memory;
  };
  struct Memory {
    Nanos since = 0, last = 0;
  };
  // How a claim on a link was worded: kept while it stands, for a better wording would be a second finding.
  struct Wording {
    Claim::Shape shape;
    Question question;
    model::FindingKind kind;
    LinkId link;
    std::string subject;
    Nanos supported, last;  // last also moves while nothing can be said
    double margin, factor;  // of what told it from its rivals
    std::vector<std::string> not_checked;
    std::string note;
  };

  void judge_hosts(Nanos now, std::vector<Verdict>& out);
  void judge_devices(Nanos now, std::vector<Verdict>& out);
  void place_routes();
  void mark_usable(Nanos now);
  void graduate(Nanos now);
  std::vector<Claim> ask(Question question, const Window& window, Nanos now);
  // Says no, or fills in kind and times.
  bool accept(Claim& claim, const Window& window, Nanos now);
  bool accept_loss(Claim& claim, const Window& window, Nanos now, bool active);
  // False when the rivals are not told apart yet.
  bool name(Claim& claim, const Ballot& ballot, Nanos now);
  void merge(std::vector<Claim>& claims, Nanos now);
  // Gives claims of loss the name of the case they belong to, and drops what a case leaves behind.
  void settle_cases(std::vector<Claim>& claims, Nanos now);
  void merge_cables(std::vector<Claim>& claims);
  void merge_switches(std::vector<Claim>& claims, Nanos now);
  // True when no probe of the last two seconds crossed the switch, of several cables that lead there.
  bool nothing_crosses(NodeId node, Nanos now) const;
  // The other way of the cable dies, or at a device loses, too, but is not blamed yet: its name would change in a
  // second.
  bool wait_for_reverse(const Claim& claim, const std::vector<Claim>& claims, Nanos now) const;
  void add_pair_claims(const Ballot& ballot, const std::vector<Pick>& picks, Nanos now, std::vector<Claim>& claims);
  void make_rnic(Claim& claim);
  std::string clean_sibling(const Claim& claim, Nanos now);
  bool active(model::FindingKind kind, const std::string& subject, Nanos now) const;
  Nanos remember(model::FindingKind kind, const std::string& subject, Nanos since, Nanos now);
  std::vector<std::string> peers_of(EndpointId endpoint) const;
  void common_seconds(Nanos now);
  void note_blind(Nanos now);

  const LocaliserConfig& config_;
  Fabric& fabric_;
  HostBook& hosts_;
  Evidence& evidence_;
  HopEvidence& hops_;
  std::map<std::string, Memory> memory_;       // by kind and subject
  std::map<std::string, Nanos> down_;          // link subject -> last time it was down
  std::map<std::string, Nanos> contaminated_;  // link subject -> last time a short window blamed it
  // A root cause that stands: its evidence changes shape as it comes, stays and goes, its name does not.
  struct Case {
    model::FindingKind kind;
    Claim::Shape shape;
    LinkId link;
    std::string subject;
    std::set<std::string> zone;  // link subjects
    Nanos last;
  };
  std::vector<Case> cases_;                 // of loss
  std::map<std::string, Wording> wording_;  // by kind and link subject
  struct Told {
    Nanos until;
    double margin;
  };
  std::map<std::string, Told> told_before_;  // by kind and link subject: what was named before a restart
  struct Waiting {
    Nanos since;  // its rivals are not told apart
    Nanos onset;  // first evidence of the trouble
  };
  std::map<std::string, Waiting> waiting_;  // by link subject
  std::set<LinkId> wanted_traces_, late_links_;
  std::set<std::string> blind_;
  std::vector<std::string> suspicions_;
  std::set<std::int64_t> common_seconds_;  // in which nearly every pair lost: no place in the fabric
  unsigned common_run_ = 0;
  std::vector<char> in_use_;  // by link: crossed by counted probes of late
  std::uint64_t placed_revision_ = 0;
  Nanos last_judge_ = 0, resumed_ = 0, expired_ = 0;
};

}  // namespace weft::localise
