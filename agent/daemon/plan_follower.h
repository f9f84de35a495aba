// What to probe now: the aggregator's last plan, kept while it is away; the configuration's own list until there was
// one. Pure, main loop only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/plan.h"

namespace weft::agent {

class PlanFollower {
 public:
  explicit PlanFollower(std::vector<model::PlanTarget> configured) : configured_(std::move(configured)) {}

  // True when something to probe changed.
  bool set_plan(model::ProbePlan plan);
  bool set_configured(std::vector<model::PlanTarget> configured);
  // The aggregator is no longer configured: back to the own list.
  bool forget_plan();

  // By local device. A target that names no device goes out from each of devices.
  std::map<std::string, std::vector<model::PlanTarget>> targets(const std::vector<std::string>& devices) const;
  const std::vector<model::PlanTrace>& suspects() const {
    static const std::vector<model::PlanTrace> kNone;
    return plan_ ? plan_->traces : kNone;
  }
  unsigned ports_wanted() const { return plan_ ? plan_->ports_wanted : 0; }
  std::uint64_t revision() const { return plan_ ? plan_->revision : 0; }

 private:
  std::vector<model::PlanTarget> configured_;
  std::optional<model::ProbePlan> plan_;
};

}  // namespace weft::agent
