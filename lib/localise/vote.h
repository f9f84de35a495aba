// Who is to blame: a vote by likelihood over the elements that paths cross. Pure.
//
// Each observation is a path in a window: how many probes came through, how many were lost on the way out, on the way
// back, or in an unknown direction. Every element e has a loss ratio p_e, nearly all of them 0; a probe survives when
// all elements of its way and a base loss p0 let it pass. The gain of an element is the log likelihood (nats) that
// blaming it, at its best ratio, adds to what is blamed already. The element with the largest gain is peeled first,
// what it explains no longer counts for others, and so on until no gain passes the threshold: busy links with a little
// base loss never pass, and a clean path exonerates what it crosses. (007's vote with peeling, NSDI'18, normalised by
// traffic, and Flock's greedy likelihood search, arXiv 2305.03348.)
#pragma once

#include <cstdint>
#include <vector>

namespace weft::localise {

using ElementId = std::uint32_t;

struct Crossing {
  ElementId element = 0;
  enum class Way : std::uint8_t { Out, Back, Both } way = Way::Out;
};

struct Observation {
  std::vector<Crossing> crossings;
  double ok = 0;
  double lost_out = 0, lost_back = 0, lost_unknown = 0;
  std::uint32_t tag = 0;  // the caller's
  double lost() const { return lost_out + lost_back + lost_unknown; }
};

struct VoteConfig {
  double base_ratio = 0.001;  // of loss that needs no culprit
  double threshold_nats = 12;
  double rival_nats = 5;  // an element that explains the same this nearly as well is a rival
  std::size_t max_picks = 64;
};

struct Pick {
  ElementId element = 0;
  double ratio = 0;    // p_e
  double gain = 0;     // nats, beside the other picks
  double margin = 0;   // to the best element that explains the same; gain when there is none
  double bad = 0;      // losses put down to it
  double crossed = 0;  // probes that crossed it, or tried to
  std::vector<ElementId> rivals;
};

// handicap: nats an element must bring more than others (indexed by element; missing ones have none).
// ok_by_element: probes that came through, summed over all paths that cross the element, lossy or not.
// Only observations with losses need be given. Elements are < ok_by_element.size().
std::vector<Pick> vote(const std::vector<Observation>& lossy, const std::vector<double>& ok_by_element,
                       const std::vector<double>& handicap, const VoteConfig& config);

}  // namespace weft::localise
