#include "lib/localise/ballot.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/localise/delay.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

// An element that explains one pair or one path only must explain more than a link does: most faults are links'.
constexpr double kPairHandicap = 4;
constexpr double kPathHandicap = 6;
constexpr double kVirtualHandicap = 1;

struct Sums {
  double ok = 0, out = 0, back = 0, unknown = 0;
  double total() const { return ok + out + back + unknown; }
  double lost() const { return out + back + unknown; }
};

// A probe that was answered after its timeout was late, not lost.
void forgive_late(Sums& sums, double late) {
  const double forgiven = std::min(late, sums.lost());
  if (forgiven <= 0) return;
  const double from_unknown = std::min(forgiven, sums.unknown);
  sums.unknown -= from_unknown;
  const double known = sums.out + sums.back;
  const double rest = forgiven - from_unknown;
  if (rest > 0 && known > 0) {
    sums.out -= rest * sums.out / known;
    sums.back -= rest * sums.back / known;
  }
  sums.ok += forgiven;
}

Sums of_bucket(const Bucket& b, Question question, bool way_out) {
  Sums sums;
  switch (question) {
    case Question::Loss:
      sums = {double(b.acked), double(b.lost_out), double(b.lost_back), double(b.lost_unknown)};
      break;
    case Question::LateToSiblings:
    case Question::LateToPast: {
      if (!b.judged_delay || b.rtt() < 0) break;
      const bool late = question == Question::LateToSiblings ? b.late_to_siblings : b.late_to_past;
      sums.ok = late ? 0 : 1;
      sums.unknown = late ? 1 : 0;
      break;
    }
    case Question::Ce:
      if (way_out) {
        sums = {double(b.ecn_out - b.ce_out), double(b.ce_out), 0, 0};
      } else {
        sums = {double(b.ecn_back - b.ce_back), 0, double(b.ce_back), 0};
      }
      break;
    case Question::Bleached:
      if (way_out) {
        sums = {double(b.ecn_out), double(b.bleached_out), 0, 0};
      } else {
        sums = {double(b.ecn_back), 0, double(b.bleached_back), 0};
      }
      break;
  }
  return sums;
}

bool one_way(Question question) { return question == Question::Ce || question == Question::Bleached; }

bool counts(const Path& path, unsigned index, Question question) {
  switch (question) {
    case Question::Loss:
      return (path.usable >> index & 1U) != 0;
    case Question::LateToSiblings:
    case Question::LateToPast:
      return (path.usable_delay >> index & 1U) != 0;
    case Question::Ce:
    case Question::Bleached:
      return true;  // what arrived, arrived: no end's pause makes a mark
  }
  return true;
}

template <typename Use>
void each_bucket(const Path& path, Question question, Nanos oldest, Nanos placed, const Use& use) {
  for (unsigned i = 0; i < kSlots; ++i) {
    const Bucket& bucket = path.ring[i];
    if (bucket.slot < 0 || bucket.received <= oldest || bucket.received < placed) continue;
    if (counts(path, i, question)) use(bucket);
  }
}

Sums of_path(const Path& path, Question question, bool way_out, Nanos now, double window_s, Nanos placed,
             bool long_memory) {
  Sums sums;
  double late = 0;
  const Nanos oldest = now - static_cast<Nanos>(window_s * 1e9);
  each_bucket(path, question, long_memory ? now - 21 * kSecond : oldest, placed, [&](const Bucket& bucket) {
    const Sums more = of_bucket(bucket, question, way_out);
    sums.ok += more.ok;
    sums.out += more.out;
    sums.back += more.back;
    sums.unknown += more.unknown;
    if (question == Question::Loss) late += bucket.late;
  });
  if (question == Question::Loss) forgive_late(sums, late);
  if (long_memory) {
    for (const LongBucket& past : path.past) {
      if (past.slot < 0 || past.slot * kLongSlotSeconds * kSecond < std::max(oldest, placed)) continue;
      const double lost = past.lost_unknown + past.lost_out + past.lost_back;
      sums.ok += std::max(0.0, past.sent - lost);
      sums.out += past.lost_out;
      sums.back += past.lost_back;
      sums.unknown += past.lost_unknown;
    }
  }
  return sums;
}

}  // namespace

unsigned Tally::bad_seconds() const {
  return static_cast<unsigned>(std::count_if(bad_by_age.begin(), bad_by_age.end(), [](double x) { return x > 0; }));
}

double Tally::clean_surprise(double ratio) const {
  double expected = 1e-9;
  double clean = 0;
  for (const auto& [size, number] : paths_by_size) expected += number * std::pow(1 - std::min(ratio, 0.999), size);
  for (const auto& [size, number] : clean_by_size) clean += number;
  // Chernoff's bound of a Poisson count.
  return clean <= expected ? 0 : clean * std::log(clean / expected) - (clean - expected);
}

double Tally::bad_recently() const { return std::accumulate(bad_by_age.begin(), bad_by_age.end(), 0.0); }

int Tally::oldest_bad_age() const {
  for (int age = kSlots - 1; age >= 0; --age) {
    if (bad_by_age[static_cast<std::size_t>(age)] > 0) return age;
  }
  return -1;
}

int Tally::newest_bad_age() const {
  for (int age = 0; age < static_cast<int>(kSlots); ++age) {
    if (bad_by_age[static_cast<std::size_t>(age)] > 0) return age;
  }
  return -1;
}

double Tally::excess_median_ns() const {
  if (excess_ns.empty()) return 0;
  std::vector<double> copy = excess_ns;
  const auto middle = copy.begin() + static_cast<std::ptrdiff_t>(copy.size() / 2);
  std::nth_element(copy.begin(), middle, copy.end());
  return *middle;
}

Ballot make_ballot(const Evidence& evidence, const Fabric& fabric, Question question, Nanos now, double window_s,
                   bool long_memory) {
  Ballot ballot;
  ballot.question = question;
  ballot.window_s = window_s;
  const auto& paths = evidence.paths();
  ballot.links = static_cast<std::uint32_t>(fabric.link_count());
  ballot.pairs = static_cast<std::uint32_t>(evidence.pair_count());
  ballot.paths = static_cast<std::uint32_t>(paths.size());
  const std::size_t elements = std::size_t{ballot.links} + ballot.pairs + ballot.paths;
  ballot.ok.assign(elements, 0);
  ballot.bad.assign(elements, 0);
  ballot.handicap.assign(elements, 0);
  ballot.crossing_paths.assign(ballot.links, 0);
  for (LinkId id = 0; id < ballot.links; ++id) {
    if (fabric.link(id).is_virtual) ballot.handicap[id] = kVirtualHandicap;
  }
  std::fill(ballot.handicap.begin() + ballot.links, ballot.handicap.begin() + ballot.links + ballot.pairs,
            kPairHandicap);
  std::fill(ballot.handicap.begin() + ballot.links + ballot.pairs, ballot.handicap.end(), kPathHandicap);

  for (std::uint32_t i = 0; i < paths.size(); ++i) {
    const Path& path = paths[i];
    const Route* const out = path.out;
    const Route* const back = path.back;
    const Nanos placed = path.placed();
    for (const bool way_out : {true, false}) {
      if (!way_out && !one_way(question)) continue;
      const Sums sums = of_path(path, question, way_out, now, window_s, placed, long_memory);
      if (sums.total() <= 0) continue;
      Observation observation;
      const bool lossy = sums.lost() > 0;
      const ElementId pair = ballot.links + path.pair;
      const ElementId single = ballot.links + ballot.pairs + i;
      const auto add = [&](ElementId e, Crossing::Way way) {
        ballot.ok[e] += sums.ok;
        if (!lossy) return;
        observation.crossings.push_back({e, way});
        ballot.bad[e] +=
            sums.unknown + (way != Crossing::Way::Back ? sums.out : 0) + (way != Crossing::Way::Out ? sums.back : 0);
      };
      if (!one_way(question) || way_out) {
        for (const LinkId id : out->links) {
          add(id, Crossing::Way::Out);
          ++ballot.crossing_paths[id];
        }
      }
      if (!one_way(question) || !way_out) {
        for (const LinkId id : back->links) {
          add(id, Crossing::Way::Back);
          ++ballot.crossing_paths[id];
        }
      }
      add(pair, Crossing::Way::Both);
      add(single, Crossing::Way::Both);
      if (!lossy) continue;
      observation.ok = sums.ok;
      observation.lost_out = sums.out;
      observation.lost_back = sums.back;
      observation.lost_unknown = sums.unknown;
      observation.tag = i;
      ballot.lossy.push_back(std::move(observation));
    }
  }
  return ballot;
}

std::map<LinkId, Tally> tally(const Evidence& evidence, const Fabric& fabric, Question question, Nanos now,
                              double window_s, bool long_memory, const std::set<LinkId>& links) {
  std::map<LinkId, Tally> out;
  if (links.empty()) return out;
  const std::int64_t now_slot = now / kSecond;
  for (const Path& path : evidence.paths()) {
    const Nanos placed = path.placed();
    const std::string& from_host = fabric.endpoint(path.from).host;
    const std::string& to_host = fabric.endpoint(path.to).host;
    for (const bool way_out : {true, false}) {
      const Route& route = way_out ? *path.out : *path.back;
      for (const LinkId id : route.links) {
        if (links.count(id) == 0) continue;
        const Sums sums = of_path(path, question, way_out, now, window_s, placed, long_memory);
        const double bad = sums.unknown + (way_out ? sums.out : sums.back);
        // What died on the way out never tried the way back.
        const double crossed = sums.total() - (way_out || one_way(question) ? 0 : sums.out);
        if (crossed <= 0) continue;
        Tally& t = out[id];
        t.crossed += crossed;
        t.bad += bad;
        const bool unplaced = std::any_of(route.links.begin(), route.links.end(),
                                          [&](LinkId on_way) { return fabric.link(on_way).is_virtual; });
        if (unplaced) t.bad_unplaced += bad;
        ++t.paths;
        const auto size = static_cast<unsigned>(std::lround(crossed));
        ++t.paths_by_size[size];
        if (bad <= 0) ++t.clean_by_size[size];
        t.pairs.insert(std::minmax(from_host, to_host));
        if (bad > 0) {
          ++t.bad_paths;
          t.bad_pairs.insert(std::minmax(from_host, to_host));
          t.victims.insert(way_out ? model::pair_subject(from_host, to_host) : model::pair_subject(to_host, from_host));
        }
        each_bucket(path, question, now - static_cast<Nanos>(std::min(window_s, 22.0) * 1e9), placed,
                    [&](const Bucket& bucket) {
                      const auto age = static_cast<std::size_t>(
                          std::clamp<std::int64_t>(now_slot - bucket.slot, 0, std::int64_t{kSlots} - 1));
                      Sums s = of_bucket(bucket, question, way_out);
                      if (question == Question::Loss) forgive_late(s, bucket.late);
                      const double b = s.unknown + (way_out ? s.out : s.back);
                      t.crossed_by_age[age] += s.total() - (way_out || one_way(question) ? 0 : s.out);
                      t.bad_by_age[age] += b;
                      if (b > 0 && (question == Question::LateToSiblings || question == Question::LateToPast) &&
                          t.excess_ns.size() < 512) {
                        t.excess_ns.push_back(bucket.late_by_ns);
                      }
                    });
      }
    }
  }
  return out;
}

double base_ratio(const Ballot& ballot, double least, double most, bool without_worst) {
  VoteConfig config;
  config.base_ratio = least;
  config.threshold_nats = 0;
  config.max_picks = 1;
  std::vector<Pick> worst;
  if (without_worst) worst = vote(ballot.lossy, ballot.ok, ballot.handicap, config);
  std::vector<double> bad = ballot.bad;
  for (const Pick& pick : worst) {
    double lost = 0;
    const auto crosses = [&](const Observation& o) {
      return std::any_of(o.crossings.begin(), o.crossings.end(),
                         [&](const Crossing& c) { return c.element == pick.element; });
    };
    for (const Observation& o : ballot.lossy) lost += crosses(o) ? o.lost() : 0;
    const double share = lost > 0 ? std::min(1.0, pick.bad / lost) : 0;
    for (const Observation& o : ballot.lossy) {
      if (!crosses(o)) continue;
      for (const Crossing& c : o.crossings) {
        const double here = o.lost_unknown + (c.way != Crossing::Way::Back ? o.lost_out : 0) +
                            (c.way != Crossing::Way::Out ? o.lost_back : 0);
        bad[c.element] = std::max(0.0, bad[c.element] - share * here);
      }
    }
  }
  std::vector<double> ratios;
  for (LinkId id = 0; id < ballot.links; ++id) {
    const double crossed = ballot.ok[id] + ballot.bad[id];
    if (crossed >= 10) ratios.push_back(bad[id] / crossed);
  }
  if (ratios.size() < 8) return least;
  const auto at = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 4);
  std::nth_element(ratios.begin(), at, ratios.end());
  return std::clamp(2 * *at, least, most);
}

}  // namespace weft::localise
