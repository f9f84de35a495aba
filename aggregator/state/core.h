// Judging: feeds the localiser, keeps the life of findings, stores their changes before it publishes them, answers
// streams. Owns the localiser, the tracker and all sessions; everything reaches it as messages. One thread calls
// handle() and tick(); snapshot() may be called from any.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "aggregator/messages.h"
#include "aggregator/state/sessions.h"
#include "aggregator/state/snapshot.h"
#include "aggregator/store/store.h"
#include "lib/base/clock.h"
#include "lib/detect/finding_tracker.h"
#include "lib/localise/localiser.h"

namespace weft::aggregator {

struct CoreConfig {
  std::string fabric;
  detect::TrackerConfig tracker;
  std::size_t max_agents = 4096;
  std::size_t cleared_kept = 1000;
  std::size_t agent_findings_max = 64;  // of one agent
  // After this process was away, so long an agent may take to come back before silence says anything.
  Nanos return_allowance_ns = 30 * kSecond;
  std::chrono::milliseconds save_wait{500};
};

class Core {
 public:
  using MakeLocaliser =
      std::function<std::unique_ptr<localise::Localiser>(localise::LocaliserConfig, localise::Topology)>;

  Core(CoreConfig config, MakeLocaliser make, localise::LocaliserConfig localiser, localise::Topology topology,
       Store& store, const MessageQueue& queue, const Clock& clock);

  // Once, before anything else: what a former process knew.
  void restore(const Recovered& recovered);
  void handle(Message&& message);
  // So many streams found no room at ingest.
  void turned_away(std::uint64_t streams);
  // The configuration was read again and is bad. Until a Reload comes.
  void config_rejected() { config_rejected_ = true; }
  // Judges, pushes plans that changed, publishes a snapshot. About once a second.
  void tick();
  // Ends every stream; agents come back to the next process.
  void stop();
  std::shared_ptr<const Snapshot> snapshot() const;

 private:
  void on(Opened& message);
  void on(Arrived& message);
  void on(Left& message);
  void on(Closed& message);
  void on(Stored& message);
  void on(AcknowledgeFinding& message);
  void on(ClearFindings& message);
  void on(Reload& message);

  void refuse(const Link& link, const std::string& reason, const std::string& text);
  // Keeps a fact about an agent that did not come in a batch.
  void note(Session& session, const std::string& key, std::optional<std::string> record, Nanos wall_ns);
  // Gives one record to the localiser or the agent's findings.
  void feed(const std::string& agent, const wire::Record& record, Nanos received);
  bool take_agent_finding(const std::string& agent, const model::Finding& finding, Nanos received);
  void feed_evidence(const Recovered& recovered);
  void excuse_awaited(Nanos now);
  void excuse_held_up(Nanos now);
  Nanos to_monotonic(Nanos wall_ns) const;
  std::vector<model::Finding> verdicts(Nanos now);
  void apply(std::vector<detect::FindingChange> changes);
  void push_plans(Nanos now);
  void end_streams_that_must_send_again();
  void publish(Nanos now, double judge_seconds);

  const CoreConfig config_;
  const MakeLocaliser make_;
  std::unique_ptr<localise::Localiser> localiser_;
  detect::FindingTracker tracker_;
  Sessions sessions_;
  Store& store_;
  const MessageQueue& queue_;
  const Clock& clock_;
  const Nanos started_wall_ns_;
  const Nanos started_monotonic_ns_;

  // (agent) -> (kind and subject) -> what it says of itself; since_ns monotonic of receipt
  std::map<std::string, std::map<std::string, model::Finding>> agent_findings_;
  // Known before a restart and not back yet: their silence is this process's own until the allowance has passed.
  std::set<std::string> awaited_;
  std::deque<model::Finding> cleared_;  // newest first
  std::shared_ptr<const std::vector<model::Finding>> cleared_shared_;
  std::shared_ptr<const Snapshot::Views> views_;
  Nanos views_made_ns_ = 0, views_cost_ns_ = 0;
  std::uint64_t store_generation_ = 0;
  Counters counters_;
  bool config_rejected_ = false;
  bool crowded_ = false;  // streams were turned away when it was last asked

  mutable std::mutex snapshot_mutex_;
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace weft::aggregator
