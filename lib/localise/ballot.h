// Lays the evidence on the graph for one kind of trouble and one window: what the vote takes, and afterwards, for the
// elements it picked, the numbers a person wants to see.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/localise/evidence.h"
#include "lib/localise/fabric.h"
#include "lib/localise/vote.h"

namespace weft::localise {

enum class Question : std::uint8_t { Loss, LateToSiblings, LateToPast, Ce, Bleached };

// Element numbers: links, then pairs, then paths.
struct Ballot {
  Question question = Question::Loss;
  double window_s = 0;
  std::uint32_t links = 0, pairs = 0, paths = 0;
  std::vector<Observation> lossy;
  std::vector<double> ok;                     // by element
  std::vector<double> bad;                    // by element, from lossy ones
  std::vector<double> handicap;               // by element
  std::vector<std::uint32_t> crossing_paths;  // by link: paths with any evidence
  bool is_link(ElementId e) const { return e < links; }
  bool is_pair(ElementId e) const { return e >= links && e < links + pairs; }
};

struct Tally {
  double crossed = 0, bad = 0;
  double bad_unplaced = 0;  // of paths whose way between the switches is not known
  unsigned paths = 0, bad_paths = 0;
  std::set<std::pair<std::string, std::string>> pairs, bad_pairs;  // hosts, in order of name
  std::set<std::string> victims;                                   // pair subjects in the direction of traffic
  std::array<double, kSlots> crossed_by_age{}, bad_by_age{};       // whole seconds back
  std::vector<double> excess_ns;                                   // of late seconds
  std::map<unsigned, unsigned> clean_by_size;  // paths without anything bad, by what crossed of each
  std::map<unsigned, unsigned> paths_by_size;  // all of them
  unsigned bad_seconds() const;
  int oldest_bad_age() const;  // -1: none
  int newest_bad_age() const;
  double excess_median_ns() const;
  // How surprising it is, in nats, that so many paths are clean when each crossing goes bad with this ratio: a sick
  // link is sick for all that cross it.
  double clean_surprise(double ratio) const;
  double bad_recently() const;  // in the last 20 s or so, which are told by age
};

// The paths' routes are set. long_memory: the five minutes' slots as well (Loss only).
Ballot make_ballot(const Evidence& evidence, const Fabric& fabric, Question question, Nanos now, double window_s,
                   bool long_memory);

// Numbers of the given links, over the same window (long_memory: by_age holds the last seconds only).
std::map<LinkId, Tally> tally(const Evidence& evidence, const Fabric& fabric, Question question, Nanos now,
                              double window_s, bool long_memory, const std::set<LinkId>& links);

// What all links have a little of needs no culprit: twice the lower quartile of their ratios, within bounds.
// without_worst: of what the worst suspect does not explain. On a small fabric one sick link is on a quarter of all
// ways, and would hide behind itself.
double base_ratio(const Ballot& ballot, double least, double most, bool without_worst);

}  // namespace weft::localise
