// From evidence to named links. Pure: everything comes in by calls that carry the time of receipt (monotonic ns of the
// aggregator); judge() says what is wrong now; no file, socket or clock is touched. Not thread safe: one owner.
// Order of blame: stale queue pair, host silent, host overloaded, RNIC (worst peeled first), then links by vote with
// peeling; loss, delay and CE apart. "Cannot measure" is never "healthy".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/localise/topology.h"
#include "lib/model/device.h"
#include "lib/model/finding.h"
#include "lib/model/path.h"
#include "lib/model/plan.h"

namespace weft::localise {

struct LocaliserConfig {
  Nanos window_ns = 20 * kSecond;  // evidence older than this is forgotten
  Nanos host_silent_after_ns = 3 * kSecond;
  double link_probes_per_s = 10;           // each directed link, at least
  double probes_per_s_per_endpoint = 100;  // planner's budget
  double loss_ratio_raise = 0.02, loss_ratio_clear = 0.005;
  double ce_ratio_raise = 0.05, ce_ratio_clear = 0.02;
  Nanos delay_floor_ns = 20 * kMicrosecond;  // a smaller excess over the siblings is never a finding
  double delay_spread_factor = 6;  // and it must exceed this many robust spreads (MAD) of the path's own noise
  unsigned ports_wanted_max = 32;
  // True where switches hash on the destination queue pair or spray: one port is not one path; claims stop at pairs.
  bool paths_not_pinned = false;
};

// One candidate now: a finding without id and times of its own life (the tracker adds them).
// since_ns is in the aggregator's monotonic clock here.
struct Verdict {
  model::Finding finding;
};

struct MeshCell {
  std::string from, to;            // "h1/rxe0"
  std::string from_leaf, to_leaf;  // the switch each hangs on; empty: not known
  std::uint64_t sent = 0, lost = 0, ce = 0, ecn_capable = 0;
  std::optional<Nanos> rtt_median_ns, rtt_p90_ns;
  unsigned paths = 0;
  std::string state;  // "ok" | "loss" | "late" | "ce" | "silent" | "unknown"
};

struct PathView {
  model::PathKey key;
  std::vector<std::string> forward, back;  // node names (or addresses) in order, ends included; empty: not traced
  std::uint64_t sent = 0, lost_forward = 0, lost_back = 0, lost_unknown = 0, ce_forward = 0, ce_back = 0;
  std::uint64_t ecn_forward = 0, ecn_back = 0;
  std::optional<Nanos> rtt_median_ns;
};

struct LinkView {
  std::string from, to;
  double probes_per_s = 0;  // both as part of the way out and of the way back
  std::uint64_t crossed = 0, lost = 0, ce = 0, ecn_capable = 0;
  bool covered = false;
};

struct HostView {
  std::string host;
  std::string state;          // "reporting" | "silent" | "stopped" | "restarting"
  std::string rail, pod;      // by the topology file; empty: not said
  Nanos last_contact_ns = 0;  // monotonic, of receipt
  std::optional<model::Inventory> inventory;
  std::optional<model::HostHealth> health;
};

struct Coverage {
  unsigned links = 0, covered = 0;  // directed
  unsigned agents_expected = 0, agents_reporting = 0;
  bool ready = false;                  // every known directed link and every host has evidence enough to judge
  std::vector<std::string> uncovered;  // link subjects, at most 64
};

class Localiser {
 public:
  static std::unique_ptr<Localiser> create(LocaliserConfig config, Topology topology);
  virtual ~Localiser() = default;

  virtual void on_contact(const std::string& host, Nanos received) = 0;  // any message of that agent
  virtual void on_start(const std::string& host, std::uint64_t agent_epoch, Nanos received) = 0;
  virtual void on_goodbye(const std::string& host, Nanos restart_allowance_ns, Nanos received) = 0;
  virtual void on_inventory(const model::Inventory& inventory, Nanos received) = 0;
  virtual void on_window(const model::PathWindow& window, Nanos received) = 0;
  virtual void on_trace(const model::PathTrace& trace, Nanos received) = 0;
  virtual void on_health(const std::string& host, const model::HostHealth& health, Nanos received) = 0;

  // Before any evidence: findings that stand from before a restart. What told a link from its rivals then is kept, for
  // evidence that began today may not tell them apart.
  virtual void resume(const std::vector<model::Finding>& active, Nanos now) = 0;
  // What is wrong now, one verdict a root cause, victims attached. Call about once a second.
  virtual std::vector<Verdict> judge(Nanos now) = 0;
  // Of what the last judge() did not blame although it had lately: identities (lib/detect) for which it saw too few
  // probes to say that they are well again. Bounded to a minute after the last word.
  virtual std::set<std::string> blind() const = 0;
  // A line for each element that the last judge() suspected, with its numbers and what became of it: for the debug log.
  // Bounded.
  virtual const std::vector<std::string>& suspicions() const = 0;
  // The plan of every known host; revisions rise only when a plan changes.
  virtual std::map<std::string, model::ProbePlan> plan(Nanos now) = 0;

  virtual std::vector<MeshCell> mesh(Nanos now) const = 0;
  virtual std::vector<PathView> paths(Nanos now) const = 0;
  virtual std::vector<LinkView> links(Nanos now) const = 0;
  virtual std::vector<HostView> hosts(Nanos now) const = 0;
  virtual Coverage coverage(Nanos now) const = 0;
  // Drops evidence windows (not traces, inventories or contacts).
  virtual void forget_evidence() = 0;
  // Windows, traces and names refused because a bound was reached or a value made no sense.
  virtual std::uint64_t dropped() const = 0;
};

}  // namespace weft::localise
