#include "agent/daemon/plan_follower.h"

namespace weft::agent {

bool PlanFollower::set_plan(model::ProbePlan plan) {
  const bool changed = !plan_ || plan_->targets != plan.targets || plan_->ports_wanted != plan.ports_wanted ||
                       plan_->traces != plan.traces;
  plan_ = std::move(plan);
  return changed;
}

bool PlanFollower::set_configured(std::vector<model::PlanTarget> configured) {
  const bool changed = configured != configured_;
  configured_ = std::move(configured);
  return changed && !plan_;
}

bool PlanFollower::forget_plan() {
  const bool had = plan_.has_value();
  plan_.reset();
  return had;
}

std::map<std::string, std::vector<model::PlanTarget>> PlanFollower::targets(
    const std::vector<std::string>& devices) const {
  std::map<std::string, std::vector<model::PlanTarget>> out;
  for (const model::PlanTarget& target : plan_ ? plan_->targets : configured_) {
    if (!target.from_device.empty()) {
      out[target.from_device].push_back(target);
      continue;
    }
    for (const std::string& device : devices) {
      out[device].push_back(target);
      out[device].back().from_device = device;
    }
  }
  return out;
}

}  // namespace weft::agent
