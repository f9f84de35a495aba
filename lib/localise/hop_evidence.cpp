#include "lib/localise/hop_evidence.h"

#include <algorithm>
#include <cmath>

namespace weft::localise {
namespace {

constexpr std::size_t kMaxKeys = 20'000;
constexpr std::size_t kMaxReports = 64;
constexpr Nanos kMemory = 90 * kSecond;

double binomial(double bad, double good, double p) {
  p = std::clamp(p, 0.001, 0.995);
  return bad * std::log(p) + good * std::log1p(-p);
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
    out.sent = std::min<std::uint16_t>(hop.sent, 1000);
    out.answered = std::min(hop.answered, out.sent);
    out.ecn_capable = std::min(hop.ecn_capable, out.answered);
    out.ce = std::min(hop.ce, out.ecn_capable);
    if (hop.rtt_ns && *hop.rtt_ns >= 0 && out.answered > 0) out.rtt = std::min<Nanos>(*hop.rtt_ns, 10 * kSecond);
    counted = counted || out.sent > 0;
  }
  if (!counted) return;
  const Key key{from, to, trace.source_port};
  if (reports_.size() >= kMaxKeys && reports_.count(key) == 0) return;
  auto& reports = reports_[key];
  reports.push_back(std::move(report));
  if (reports.size() > kMaxReports) reports.pop_front();
}

void HopEvidence::expire(Nanos now) {
  for (auto it = reports_.begin(); it != reports_.end();) {
    while (!it->second.empty() && now - it->second.front().received > kMemory) it->second.pop_front();
    it = it->second.empty() ? reports_.erase(it) : std::next(it);
  }
}

std::optional<Separation> HopEvidence::separate(const Fabric& fabric, const std::vector<LinkId>& suspects,
                                                Trouble trouble, double ratio, double excess_ns, Nanos since) const {
  std::vector<double> score(suspects.size(), 0);
  double tries = 0;
  for (const auto& [key, reports] : reports_) {
    const Route* route = fabric.traced(key.from, key.to, key.port);
    if (route == nullptr || !route->full || route->routers == 0) continue;
    // The far end of link i is hop i; the last link ends at the host, where no hop answers.
    std::vector<std::size_t> place(suspects.size(), route->links.size());
    std::size_t here = 0;
    for (std::size_t s = 0; s < suspects.size(); ++s) {
      const auto at = std::find(route->links.begin(), route->links.end(), suspects[s]);
      if (at == route->links.end()) continue;
      place[s] = static_cast<std::size_t>(at - route->links.begin());
      ++here;
    }
    if (here != suspects.size() || here < 2) continue;
    for (std::size_t h = 0; h < route->routers; ++h) {
      double before_sent = 0;
      double before_answered = 0;
      double before_rtt = -1;
      for (const Report& report : reports) {
        if (h >= report.hops.size() || report.received > since) continue;
        before_sent += report.hops[h].sent;
        before_answered += report.hops[h].answered;
        if (report.hops[h].rtt >= 0) before_rtt = static_cast<double>(report.hops[h].rtt);
      }
      // How often the router is silent anyway; a few answers do not make it a reliable one.
      const double silent = std::clamp((2 + before_sent - before_answered) / (25 + before_sent), 0.05, 0.9);
      for (const Report& report : reports) {
        if (h >= report.hops.size() || report.received <= since) continue;
        const Hop& hop = report.hops[h];
        if (hop.sent == 0) continue;
        double least = before_rtt;
        for (const Hop& other : report.hops) {
          if (before_rtt < 0 && other.rtt >= 0 && (least < 0 || static_cast<double>(other.rtt) < least)) {
            least = static_cast<double>(other.rtt);
          }
        }
        for (std::size_t s = 0; s < suspects.size(); ++s) {
          const bool beyond = h >= place[s];
          switch (trouble) {
            case Trouble::Loss: {
              const double p = beyond ? 1 - (1 - silent) * (1 - ratio) : silent;
              score[s] += binomial(hop.sent - hop.answered, hop.answered, p);
              if (s == 0) tries += hop.sent;
              break;
            }
            case Trouble::Delay:
              if (hop.rtt < 0 || least < 0) break;
              // One median a report, however many answers: a slow router errs in all of them together.
              score[s] += std::log((static_cast<double>(hop.rtt) > least + excess_ns / 2) == beyond ? 0.9 : 0.1);
              if (s == 0) tries += hop.answered;
              break;
            case Trouble::Ce:
              score[s] += binomial(hop.ce, hop.ecn_capable - hop.ce, beyond ? ratio : 0.01);
              if (s == 0) tries += hop.ecn_capable;
              break;
          }
        }
      }
    }
  }
  if (tries <= 0 || suspects.size() < 2) return std::nullopt;
  std::size_t best = 0;
  for (std::size_t s = 1; s < score.size(); ++s) {
    if (score[s] > score[best]) best = s;
  }
  double second = -1e300;
  for (std::size_t s = 0; s < score.size(); ++s) {
    if (s != best) second = std::max(second, score[s]);
  }
  return Separation{suspects[best], score[best] - second, tries};
}

}  // namespace weft::localise
