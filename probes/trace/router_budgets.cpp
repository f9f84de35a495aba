#include "probes/trace/router_budgets.h"

#include <algorithm>

namespace weft::probes {
namespace {

constexpr std::size_t kMaxRouters = 4096;
constexpr Nanos kIdle = 60 * kSecond;

}  // namespace

double& TokenBucket::refill(Nanos now, double rate_per_s, double burst) {
  if (last == 0) {
    tokens = burst;
    last = now;
  }
  const double gained = static_cast<double>(std::max<Nanos>(0, now - last)) * 1e-9 * rate_per_s;
  tokens = std::min(burst, tokens + gained);
  last = now;
  return tokens;
}

RouterBudgets::Router& RouterBudgets::router_at(const std::string& name, Nanos now) {
  if (routers_.size() >= kMaxRouters && !routers_.contains(name)) {
    std::erase_if(routers_, [&](const auto& r) { return r.second.bucket.last + kIdle < now; });
    if (routers_.size() >= kMaxRouters) routers_.erase(routers_.begin());
  }
  Router& r = routers_.try_emplace(name).first->second;
  r.bucket.refill(now, rate(r), burst(r));
  return r;
}

double RouterBudgets::tokens(const std::string& name, Nanos now) { return router_at(name, now).bucket.tokens; }

void RouterBudgets::take(const std::string& name, double amount, Nanos now) {
  router_at(name, now).bucket.tokens -= amount;
}

void RouterBudgets::spent(const std::string& name, Nanos now) {
  double& tokens = router_at(name, now).bucket.tokens;
  tokens = std::min(tokens, 0.0);
}

std::optional<Nanos> RouterBudgets::wait(const std::string& name, double tokens, Nanos now) {
  const Router& r = router_at(name, now);
  if (r.bucket.tokens >= tokens) return 0;
  if (rate(r) <= 0 || burst(r) < tokens) return std::nullopt;
  return static_cast<Nanos>((tokens - r.bucket.tokens) / rate(r) * 1e9) + 1;
}

bool RouterBudgets::willing(const std::string& name) const {
  const auto it = routers_.find(name);
  return it != routers_.end() && it->second.willing;
}

Nanos RouterBudgets::trial_at(const Router& r) const {
  return r.tried_at == 0 ? r.bucket.last : r.tried_at + limits_.trial_again_ns;
}

std::optional<std::string> RouterBudgets::trial_due(Nanos now) const {
  if (limits_.trial_packets == 0) return std::nullopt;
  for (const auto& [name, r] : routers_) {
    if (trial_at(r) <= now) return name;
  }
  return std::nullopt;
}

std::optional<Nanos> RouterBudgets::next_trial(Nanos now) const {
  if (limits_.trial_packets == 0) return std::nullopt;
  std::optional<Nanos> at;
  for (const auto& [name, r] : routers_) at = std::min(at.value_or(trial_at(r)), trial_at(r));
  if (at) at = std::max(*at, now);
  return at;
}

void RouterBudgets::tried(const std::string& name, unsigned answered, Nanos now) {
  Router& r = router_at(name, now);
  r.tried_at = now;
  r.willing = answered + limits_.trial_forgiven >= limits_.trial_packets;
  // What it would not answer has used up its answers for a while.
  if (!r.willing) r.bucket.tokens = std::min(r.bucket.tokens, 0.0);
}

}  // namespace weft::probes
