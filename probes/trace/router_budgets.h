// How often each router may be asked. Routers answer few ICMP errors, and how few is learned by a trial: a dozen
// packets in a row, once in a while, while nothing is suspected. A router that answers them (nearly) all is asked more
// often from then on; every other one stays below Linux's default of one answer a second to each source, 6 in a burst.
// Bounded; not thread safe.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "lib/base/clock.h"

namespace weft::probes {

struct TokenBucket {
  double tokens = 0;
  Nanos last = 0;  // 0: never used, full
  double& refill(Nanos now, double rate_per_s, double burst);
};

struct RouterLimits {
  double rate_per_s = 0.9, burst = 5;                  // below Linux's 1/s and 6
  double willing_rate_per_s = 20, willing_burst = 10;  // of a router that passed its trial
  unsigned trial_packets = 10;                         // more than Linux answers in a burst; 0: no trials
  unsigned trial_forgiven = 1;                         // answers that may be missing
  Nanos trial_again_ns = 600 * kSecond;
};

class RouterBudgets {
 public:
  explicit RouterBudgets(RouterLimits limits) : limits_(limits) {}

  double tokens(const std::string& router, Nanos now);
  // Negative amounts give back.
  void take(const std::string& router, double amount, Nanos now);
  // It did not answer: most likely at its limit.
  void spent(const std::string& router, Nanos now);
  // Until there are that many tokens; nothing when never.
  std::optional<Nanos> wait(const std::string& router, double tokens, Nanos now);
  bool willing(const std::string& router) const;

  // The router to try next.
  std::optional<std::string> trial_due(Nanos now) const;
  // When trial_due() will name one; nothing when no trial is ahead.
  std::optional<Nanos> next_trial(Nanos now) const;
  void tried(const std::string& router, unsigned answered, Nanos now);
  void skip_trial(const std::string& router, Nanos now) { router_at(router, now).tried_at = now; }
  unsigned trial_packets() const { return limits_.trial_packets; }

 private:
  struct Router {
    TokenBucket bucket;
    bool willing = false;
    Nanos tried_at = 0;  // 0: never
  };
  Router& router_at(const std::string& name, Nanos now);
  double rate(const Router& r) const { return r.willing ? limits_.willing_rate_per_s : limits_.rate_per_s; }
  double burst(const Router& r) const { return r.willing ? limits_.willing_burst : limits_.burst; }
  Nanos trial_at(const Router& r) const;

  RouterLimits limits_;
  std::map<std::string, Router> routers_;
};

}  // namespace weft::probes
