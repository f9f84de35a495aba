// Tells watchers what changes from one snapshot to the next: findings raised, updated and cleared, and about once a
// second the status. Not thread safe: one thread, whoever publishes snapshots, calls look().
#pragma once

#include <map>
#include <string>
#include <utility>

#include "aggregator/state/snapshot.h"
#include "lib/http/event_stream.h"

namespace weft::aggregator {

class EventFeed {
 public:
  EventFeed(http::EventStream& events, std::string version) : events_(events), version_(std::move(version)) {}

  // Compares with the one before. The first tells nothing: what stands then, watchers read from /api/v1/findings.
  // A finding's changes are told at once when somebody acknowledged it or its severity is another, and otherwise, as
  // when it hits more, at most every 5 s; its evidence, which changes all the time, is read from the finding.
  void look(const Snapshot& snapshot);

 private:
  struct Known {
    std::string essence;
    bool acknowledged = false;
    model::Severity severity = model::Severity::Info;
    Nanos told_ns = 0;
  };
  void tell(const char* type, const model::Finding& finding);

  http::EventStream& events_;
  const std::string version_;
  std::map<std::string, Known> known_;  // by id: those active
  bool first_ = true;
  Nanos status_told_ns_ = 0;
};

}  // namespace weft::aggregator
