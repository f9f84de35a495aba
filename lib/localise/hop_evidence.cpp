#include "lib/localise/hop_evidence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace weft::localise {
namespace {

constexpr std::size_t kMaxKeys = 20'000;
constexpr std::size_t kMaxReports = 64;
constexpr Nanos kMemory = 90 * kSecond;
constexpr double kHabitSize = 400;  // probes remembered of a router, about

double binomial(double bad, double good, double p) {
  p = std::clamp(p, 0.001, 0.995);
  return bad * std::log(p) + good * std::log1p(-p);
}

// Beta(1 + bad, 1 + good) on points that lie denser near zero, where shares of loss and silence are.
class Belief {
 public:
  Belief(double bad, double good) {
    double highest = -1e300;
    for (std::size_t i = 0; i < kPoints; ++i) {
      const double root = (static_cast<double>(i) + 0.5) / kPoints;
      point_[i] = root * root;
      weight_[i] = bad * std::log(point_[i]) + good * std::log1p(-point_[i]) + std::log(root);
      highest = std::max(highest, weight_[i]);
    }
    double sum = 0;
    for (double& w : weight_) sum += w = std::exp(w - highest);
    for (double& w : weight_) w /= sum;
  }
  // The mean of f over the belief.
  template <typename F>
  double mean(F f) const {
    double out = 0;
    for (std::size_t i = 0; i < kPoints; ++i) {
      if (weight_[i] > 1e-9) out += weight_[i] * f(point_[i]);
    }
    return out;
  }

 private:
  static constexpr std::size_t kPoints = 96;
  std::array<double, kPoints> point_, weight_;
};

// log P(so many silent and answered | how silent the router is, and the loss on the way to it).
double log_likelihood(double silent, double answered, const Belief& habit, const Belief* loss) {
  const double n = silent + answered;
  const double p = std::clamp(silent / n, 0.001, 0.999);
  const double best = binomial(silent, answered, p);  // keeps the exponents near zero
  const auto at = [&](double share) { return std::exp(binomial(silent, answered, share) - best); };
  const double likelihood = habit.mean([&](double s) {
    return loss == nullptr ? at(s) : loss->mean([&](double r) { return at(1 - (1 - s) * (1 - r)); });
  });
  return best + std::log(std::max(likelihood, 1e-300));
}

}  // namespace

void HopEvidence::add(const model::PathTrace& trace, EndpointId from, EndpointId to, Nanos received) {
  Report report;
  report.received = received;
  bool counted = false;
  for (const model::TraceHop& hop : trace.hops) {
    if (hop.ttl == 0 || hop.ttl > 32) return;
    if (report.hops.size() < hop.ttl) report.hops.resize(hop.ttl);
    Hop& out = report.hops[hop.ttl - 1U];
    out.router = hop.address;
    out.sent = std::min<std::uint16_t>(hop.sent, 1000);
    out.answered = std::min(hop.answered, out.sent);
    out.ecn_capable = std::min(hop.ecn_capable, out.answered);
    out.ce = std::min(hop.ce, out.ecn_capable);
    if (hop.rtt_ns && *hop.rtt_ns >= 0 && out.answered > 0) out.rtt = std::min<Nanos>(*hop.rtt_ns, 10 * kSecond);
    counted = counted || out.sent > 0;
  }
  if (!counted) return;
  const Key key{from, to, {trace.source_port, trace.destination_port}};
  if (reports_.size() >= kMaxKeys && reports_.count(key) == 0) return;
  auto& reports = reports_[key];
  reports.push_back(std::move(report));
  if (reports.size() <= kMaxReports) return;
  absorb(reports.front());
  reports.pop_front();
}

void HopEvidence::absorb(const Report& report) {
  for (const Hop& hop : report.hops) {
    if (hop.suspected || hop.sent == 0 || hop.router.empty()) continue;
    if (habits_.size() >= kMaxKeys && habits_.count(hop.router) == 0) continue;
    Answers& habit = habits_[hop.router];
    habit.sent += hop.sent;
    habit.answered += hop.answered;
    if (habit.sent > kHabitSize) {
      habit.sent /= 2;
      habit.answered /= 2;
    }
  }
}

void HopEvidence::expire(Nanos now) {
  for (auto it = reports_.begin(); it != reports_.end();) {
    while (!it->second.empty() && now - it->second.front().received > kMemory) {
      absorb(it->second.front());
      it->second.pop_front();
    }
    it = it->second.empty() ? reports_.erase(it) : std::next(it);
  }
}

void HopEvidence::forget() {
  for (const auto& [key, reports] : reports_) {
    for (const Report& report : reports) absorb(report);
  }
  reports_.clear();
}

HopEvidence::Places HopEvidence::places(const Route& route, const std::vector<LinkId>& suspects) {
  // The far end of link i is hop i; the last link ends at the host, where no hop answers.
  Places out{std::vector<std::size_t>(suspects.size(), route.links.size()), 0};
  for (std::size_t s = 0; s < suspects.size(); ++s) {
    const auto at = std::find(route.links.begin(), route.links.end(), suspects[s]);
    if (at == route.links.end()) continue;
    out.place[s] = static_cast<std::size_t>(at - route.links.begin());
    ++out.here;
  }
  return out;
}

// How each router answers probes that crossed no suspect, or came before the trouble.
std::map<std::string, HopEvidence::Answers> HopEvidence::mark_and_measure(const Fabric& fabric,
                                                                          const std::vector<LinkId>& suspects,
                                                                          Nanos since) {
  std::map<std::string, Answers> out;
  for (auto& [key, reports] : reports_) {
    const Route* route = fabric.traced(key.from, key.to, key.ports);
    const Places at = route == nullptr ? Places{} : places(*route, suspects);
    const std::size_t first = at.place.empty() ? 0 : *std::min_element(at.place.begin(), at.place.end());
    for (Report& report : reports) {
      for (std::size_t h = 0; h < report.hops.size(); ++h) {
        Hop& hop = report.hops[h];
        if (hop.sent == 0 || hop.router.empty()) continue;
        if (report.received > since && (route == nullptr || h >= first)) {
          hop.suspected = true;
          continue;
        }
        if (hop.suspected) continue;
        out[hop.router].sent += hop.sent;
        out[hop.router].answered += hop.answered;
      }
    }
  }
  return out;
}

// Whether the router answered later than before the trouble, or, where that is not known, than the nearest of its
// report.
std::optional<bool> HopEvidence::late_at(const std::deque<Report>& reports, const Report& report, std::size_t hop,
                                         Nanos since, double excess_ns) {
  if (hop >= report.hops.size() || report.hops[hop].rtt < 0) return std::nullopt;
  std::vector<Nanos> before;
  for (const Report& other : reports) {
    if (other.received <= since && hop < other.hops.size() && other.hops[hop].rtt >= 0) {
      before.push_back(other.hops[hop].rtt);
    }
  }
  Nanos usual = -1;
  if (!before.empty()) {
    const auto middle = before.begin() + static_cast<std::ptrdiff_t>(before.size() / 2);
    std::nth_element(before.begin(), middle, before.end());
    usual = *middle;
  } else {
    usual = report.hops[hop].rtt;
    for (const Hop& other : report.hops) {
      if (other.rtt >= 0) usual = std::min(usual, other.rtt);
    }
  }
  return static_cast<double>(report.hops[hop].rtt) > static_cast<double>(usual) + excess_ns / 2;
}

// A host that runs late finds all routers late, and one second may be without the trouble. So a report counts only when
// the routers before all suspects were on time in it and those beyond all of them late.
bool HopEvidence::delay_fits(const std::deque<Report>& reports, const Report& report, const Route& route,
                             const Places& at, Nanos since, double excess_ns) {
  const std::size_t first = *std::min_element(at.place.begin(), at.place.end());
  const std::size_t last = *std::max_element(at.place.begin(), at.place.end());
  for (std::size_t h = 0; h < route.routers; ++h) {
    if (h >= first && h < last) continue;
    const auto late = late_at(reports, report, h, since, excess_ns);
    if (late && *late != (h >= last)) return false;
  }
  return true;
}

std::optional<Separation> HopEvidence::separate(const Fabric& fabric, const std::vector<LinkId>& suspects,
                                                Trouble trouble, Share share, double excess_ns, Nanos since) {
  if (suspects.size() < 2 || (trouble == Trouble::Delay && excess_ns <= 0)) return std::nullopt;
  const auto now_answers = mark_and_measure(fabric, suspects, since);
  const auto habit_of = [&](const std::string& router) {
    Answers out;
    for (const std::map<std::string, Answers>* from : {&std::as_const(habits_), &now_answers}) {
      if (const auto found = from->find(router); found != from->end()) {
        out.sent += found->second.sent;
        out.answered += found->second.answered;
      }
    }
    return out;
  };

  const double ratio = share.crossed > 0 ? share.bad / share.crossed : 0;
  std::vector<double> score(suspects.size(), 0);
  double tries = 0, answered = 0;
  std::map<std::pair<std::string, std::vector<bool>>, Answers> tallies;  // by router and the suspects crossed
  for (const auto& [key, reports] : reports_) {
    const Route* route = fabric.traced(key.from, key.to, key.ports);
    if (route == nullptr || !route->full || route->routers == 0) continue;
    const Places at = places(*route, suspects);
    if (at.here != suspects.size()) continue;
    for (std::size_t h = 0; h < route->routers; ++h) {
      std::vector<bool> beyond(suspects.size());
      for (std::size_t s = 0; s < suspects.size(); ++s) beyond[s] = h >= at.place[s];
      // Before all suspects or beyond all of them: it does not tell them apart.
      if (std::count(beyond.begin(), beyond.end(), true) % static_cast<std::ptrdiff_t>(suspects.size()) == 0) continue;
      for (const Report& report : reports) {
        if (h >= report.hops.size() || report.received <= since) continue;
        const Hop& hop = report.hops[h];
        if (hop.sent == 0) continue;
        switch (trouble) {
          case Trouble::Loss: {
            Answers& tally = tallies[{hop.router, beyond}];
            tally.sent += hop.sent;
            tally.answered += hop.answered;
            break;
          }
          case Trouble::Delay: {
            const auto late = late_at(reports, report, h, since, excess_ns);
            if (!late || !delay_fits(reports, report, *route, at, since, excess_ns)) break;
            // One median a report, however many answers: a slow router errs in all of them together.
            for (std::size_t s = 0; s < suspects.size(); ++s) score[s] += std::log(*late == beyond[s] ? 0.9 : 0.1);
            tries += hop.answered;
            answered += hop.answered;
            break;
          }
          case Trouble::Ce:
            for (std::size_t s = 0; s < suspects.size(); ++s) {
              score[s] += binomial(hop.ce, hop.ecn_capable - hop.ce, beyond[s] ? ratio : 0.01);
            }
            tries += hop.ecn_capable;
            answered += hop.ecn_capable;
            break;
        }
      }
    }
  }
  const Belief loss(share.bad, std::max(0.0, share.crossed - share.bad));
  for (const auto& [where, tally] : tallies) {
    const Answers habit = habit_of(where.first);
    if (habit.sent > 0) {
      const double usual = (0.5 + habit.silent()) / (10 + habit.sent);
      const double worst = 1 - (1 - usual) * (1 - std::min(0.95, 1.5 * ratio));
      const double most = tally.sent * worst;
      if (tally.silent() > most + 3 * std::sqrt(most * (1 - worst)) + 1) continue;
    }
    const Belief silence(habit.silent(), habit.answered);
    const double before = log_likelihood(tally.silent(), tally.answered, silence, nullptr);
    const double beyond = log_likelihood(tally.silent(), tally.answered, silence, &loss);
    for (std::size_t s = 0; s < suspects.size(); ++s) score[s] += where.second[s] ? beyond : before;
    tries += tally.sent;
    answered += tally.answered;
  }
  if (tries <= 0) return std::nullopt;
  const auto best = static_cast<std::size_t>(std::max_element(score.begin(), score.end()) - score.begin());
  double second = -1e300;
  for (std::size_t s = 0; s < score.size(); ++s) {
    if (s != best) second = std::max(second, score[s]);
  }
  return Separation{suspects[best], score[best] - second, tries, answered};
}

}  // namespace weft::localise
