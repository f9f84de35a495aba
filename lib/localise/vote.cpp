#include "lib/localise/vote.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <unordered_map>

namespace weft::localise {
namespace {

constexpr double kMaxRatio = 0.9995;
constexpr int kRefinements = 6;

struct Member {
  std::uint32_t observation;
  Crossing::Way way;
};

struct Estimate {
  double ratio = 0, gain = 0, bad = 0, crossed = 0;
};

class Model {
 public:
  Model(const std::vector<Observation>& lossy, const std::vector<double>& ok, const std::vector<double>& handicap,
        double base)
      : lossy_(lossy), ok_(ok), handicap_(handicap), members_(ok.size()) {
    out_.assign(lossy.size(), base);
    back_.assign(lossy.size(), base);
    for (std::uint32_t i = 0; i < lossy.size(); ++i) {
      for (const Crossing& crossing : lossy[i].crossings) members_[crossing.element].push_back({i, crossing.way});
    }
  }

  const std::vector<Member>& members(ElementId e) const { return members_[e]; }

  // Best ratio of e beside what is blamed now, and what blaming it gains.
  Estimate estimate(ElementId e) const {
    Estimate best;
    double lost = 0;
    double lost_out = 0;
    double lost_back = 0;
    for (const Member& m : members_[e]) {
      const Observation& o = lossy_[m.observation];
      lost += o.lost_unknown;
      if (m.way != Crossing::Way::Back) lost_out += o.lost_out;
      if (m.way != Crossing::Way::Out) lost_back += o.lost_back;
      // What died on the way out never tried the way back.
      if (m.way == Crossing::Way::Out) best.crossed += o.lost_back;
    }
    lost += lost_out + lost_back;
    best.crossed += ok_[e] + lost;
    if (lost <= 0 || best.crossed <= 0) return best;
    const double known = lost_out + lost_back;
    const double share = known > 0 ? lost_out / known : 0.5;  // of a both-ways element

    double p = std::min(kMaxRatio, lost / best.crossed);
    for (int round = 0; round < kRefinements; ++round) {
      double put_down = 0;
      for (const Member& m : members_[e]) put_down += put_down_to(m, p, share);
      p = std::clamp(put_down / best.crossed, 0.0, kMaxRatio);
      best.bad = put_down;
    }
    if (p <= 0) return best;
    best.ratio = p;
    best.gain = ok_[e] * std::log1p(-p) - handicap(e);
    for (const Member& m : members_[e]) best.gain += gain_of(m, p, share);
    return best;
  }

  // Adds (or, with undo, takes away) the blame of e at a ratio.
  void blame(ElementId e, double p, bool undo = false) {
    double lost_out = 0;
    double lost_back = 0;
    for (const Member& m : members_[e]) {
      lost_out += lossy_[m.observation].lost_out;
      lost_back += lossy_[m.observation].lost_back;
    }
    const double share = lost_out + lost_back > 0 ? lost_out / (lost_out + lost_back) : 0.5;
    for (const Member& m : members_[e]) {
      const double out = part(m.way, true, p, share);
      const double back = part(m.way, false, p, share);
      double& q_out = out_[m.observation];
      double& q_back = back_[m.observation];
      if (undo) {
        q_out = std::max(0.0, 1 - (1 - q_out) / (1 - out));
        q_back = std::max(0.0, 1 - (1 - q_back) / (1 - back));
      } else {
        q_out = 1 - (1 - q_out) * (1 - out);
        q_back = 1 - (1 - q_back) * (1 - back);
      }
    }
  }

 private:
  double handicap(ElementId e) const { return e < handicap_.size() ? handicap_[e] : 0; }

  static double part(Crossing::Way way, bool out, double p, double share) {
    switch (way) {
      case Crossing::Way::Out:
        return out ? p : 0;
      case Crossing::Way::Back:
        return out ? 0 : p;
      case Crossing::Way::Both:
        return out ? std::min(kMaxRatio, p * share) : std::min(kMaxRatio, p * (1 - share));
    }
    return 0;
  }

  double put_down_to(const Member& m, double p, double share) const {
    const Observation& o = lossy_[m.observation];
    const double out = part(m.way, true, p, share);
    const double back = part(m.way, false, p, share);
    const double q_out = 1 - (1 - out_[m.observation]) * (1 - out);
    const double q_back = 1 - (1 - back_[m.observation]) * (1 - back);
    const double q_any = 1 - (1 - q_out) * (1 - q_back);
    double sum = 0;
    if (out > 0) sum += o.lost_out * out / q_out + o.lost_unknown * out / q_any;
    if (back > 0) sum += o.lost_back * back / q_back + o.lost_unknown * back / q_any;
    return std::min(sum, o.lost());
  }

  double gain_of(const Member& m, double p, double share) const {
    const Observation& o = lossy_[m.observation];
    const double was_out = std::max(1e-12, out_[m.observation]);
    const double was_back = std::max(1e-12, back_[m.observation]);
    const double out = part(m.way, true, p, share);
    const double back = part(m.way, false, p, share);
    const double q_out = 1 - (1 - was_out) * (1 - out);
    const double q_back = 1 - (1 - was_back) * (1 - back);
    double gain = 0;
    if (o.lost_out > 0) gain += o.lost_out * std::log(q_out / was_out);
    if (o.lost_back > 0) gain += o.lost_back * (std::log(q_back / was_back) + std::log1p(-out));
    if (o.lost_unknown > 0) {
      gain += o.lost_unknown * std::log((1 - (1 - q_out) * (1 - q_back)) / (1 - (1 - was_out) * (1 - was_back)));
    }
    // What came through counts by ok_by_element as 1 - p; a both-ways element splits p over the ways.
    if (m.way == Crossing::Way::Both) gain += o.ok * (std::log1p(-out) + std::log1p(-back) - std::log1p(-p));
    return gain;
  }

  const std::vector<Observation>& lossy_;
  const std::vector<double>& ok_;
  const std::vector<double>& handicap_;
  std::vector<std::vector<Member>> members_;
  std::vector<double> out_, back_;  // loss ratio each way that is explained already
};

}  // namespace

std::vector<Pick> vote(const std::vector<Observation>& lossy, const std::vector<double>& ok_by_element,
                       const std::vector<double>& handicap, const VoteConfig& config) {
  std::vector<Pick> picks;
  if (lossy.empty()) return picks;
  Model model(lossy, ok_by_element, handicap, config.base_ratio);

  // Gains only shrink as blame is given, so a stale gain is an upper bound: re-estimate the top until it stays on top.
  struct Candidate {
    double gain;
    ElementId element;
    std::size_t picks_seen;
    bool operator<(const Candidate& other) const {
      return gain != other.gain ? gain < other.gain : element > other.element;
    }
  };
  std::priority_queue<Candidate> queue;
  for (ElementId e = 0; e < ok_by_element.size(); ++e) {
    if (model.members(e).empty()) continue;
    const double gain = model.estimate(e).gain;
    if (gain >= config.threshold_nats) queue.push({gain, e, 0});
  }
  while (!queue.empty() && picks.size() < config.max_picks) {
    Candidate top = queue.top();
    queue.pop();
    if (top.picks_seen != picks.size()) {
      top.gain = model.estimate(top.element).gain;
      top.picks_seen = picks.size();
      if (top.gain >= config.threshold_nats) queue.push(top);
      continue;
    }
    const Estimate e = model.estimate(top.element);
    picks.push_back({top.element, e.ratio, e.gain, e.gain, e.bad, e.crossed, {}});
    model.blame(top.element, e.ratio);
  }

  // Fit each pick again beside the others, the weakest first: an early pick that later ones explain better falls away.
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = picks.size(); i-- > 0;) {
      model.blame(picks[i].element, picks[i].ratio, true);
      const Estimate e = model.estimate(picks[i].element);
      if (e.gain < config.threshold_nats) {
        picks.erase(picks.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      picks[i].ratio = e.ratio;
      picks[i].gain = e.gain;
      picks[i].bad = e.bad;
      picks[i].crossed = e.crossed;
      model.blame(picks[i].element, e.ratio);
    }
  }

  // Rivals: without the pick, who else would explain its losses?
  for (Pick& pick : picks) {
    std::unordered_map<ElementId, double> with;
    for (const Member& m : model.members(pick.element)) {
      for (const Crossing& crossing : lossy[m.observation].crossings) with.emplace(crossing.element, 0);
    }
    for (auto& [element, gain] : with) gain = model.estimate(element).gain;
    model.blame(pick.element, pick.ratio, true);
    pick.margin = pick.gain;
    for (const auto& [element, gain_with] : with) {
      if (element == pick.element) continue;
      const bool also_picked =
          std::any_of(picks.begin(), picks.end(), [&, &other = element](const Pick& p) { return p.element == other; });
      if (also_picked) continue;
      const double alone = model.estimate(element).gain;
      if (alone <= 0 || gain_with > alone / 2) continue;  // explains something else
      pick.margin = std::min(pick.margin, std::max(0.0, pick.gain - alone));
      if (alone >= pick.gain - config.rival_nats) pick.rivals.push_back(element);
    }
    std::sort(pick.rivals.begin(), pick.rivals.end());
    model.blame(pick.element, pick.ratio);
  }
  return picks;
}

}  // namespace weft::localise
