// A link (or what could not be told from it) that the vote blames, and how it becomes a finding.
//
// Confidence = (1 - exp(-gain/10)) * (0.5 + 0.5 * (1 - exp(-margin/5))) * k, at most 0.99. Gain and margin are the
// vote's nats: how much better the evidence is explained with the blame than without, and than by the next suspect. k
// is 0.7 where the claim is lowered to a pair, a switch or an unknown direction of a partial loss, 0.8 where only two
// hosts share the evidence, else 1.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/localise/ballot.h"
#include "lib/localise/fabric.h"
#include "lib/localise/hop_evidence.h"
#include "lib/localise/vote.h"
#include "lib/model/finding.h"

namespace weft::localise {

struct Claim {
  enum class Shape { Directed, Undirected, Switch, Pair, Rnic };
  model::FindingKind kind = model::FindingKind::LinkLoss;
  Question question = Question::Loss;
  Shape shape = Shape::Directed;
  LinkId link = kNone;
  std::vector<LinkId> set;  // all that the claim covers
  std::set<LinkId> zone;    // and what cannot be told from it: later claims in here are this one
  std::string subject;
  Pick pick;
  Tally tally;
  double window_s = 0;  // of the numbers
  Nanos since = 0;
  double factor = 1;               // k
  std::optional<Separation> hops;  // what hop counts say of it and its rivals
  std::vector<std::string> not_checked;
  std::string note;  // ends the summary
};

// Adds the sentence, once.
void say_unchecked(Claim& claim, const std::string& sentence);
double confidence(const Claim& claim);
model::Finding to_finding(const Claim& claim, const Fabric& fabric, const std::string& clean_sibling);
// "loss of link:s1>l2 over 2.2 s: 9 of 41 bad, ...", for who wants to see why something is not blamed yet.
std::string describe(const Claim& claim, const Fabric& fabric, double window_s);
// "19.6 %"
std::string percent(double ratio);
// "52.3 ms"
std::string duration(double ns);

}  // namespace weft::localise
