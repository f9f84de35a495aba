// Tells links apart that every path crosses together (with two leaves: l1>s1 and s1>l2), by probes that end at a hop: a
// hop beyond the sick link is silent, late or marked more often than one before it. Only separates suspects; never
// raises anything by itself.
//
// Routers answer as they like, so an answer weighs more than silence. An answer shows that the links up to there let
// the probe pass. Silence speaks against a link only at a router that is known to answer: by what it answered before
// the trouble, or answers now to probes that cross no suspect. A router that is silent more often than any suspect
// explains is left out. Neither the habit of a router nor the loss is known exactly: both are taken as distributions
// (beta, from their counts), so that a few probes decide nothing. Bounded; not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/localise/fabric.h"
#include "lib/model/path.h"

namespace weft::localise {

enum class Trouble : std::uint8_t { Loss, Delay, Ce };

// How much of what crossed the suspects was hit.
struct Share {
  double bad = 0, crossed = 0;
};

struct Separation {
  LinkId link = kNone;
  double margin_nats = 0;  // to the next suspect
  double tries = 0;        // probes behind it
  double answered = 0;     // of them
};

class HopEvidence {
 public:
  void add(const model::PathTrace& trace, EndpointId from, EndpointId to, Nanos received);
  // Among suspects that lie on one way: the one that hops since `since` speak for. Nothing without counted hops.
  std::optional<Separation> separate(const Fabric& fabric, const std::vector<LinkId>& suspects, Trouble trouble,
                                     Share share, double excess_ns, Nanos since);
  void expire(Nanos now);
  // All but how well each router answers.
  void forget();

 private:
  struct Answers {
    double sent = 0, answered = 0;
    double silent() const { return sent - answered; }
  };
  struct Hop {
    std::string router;  // empty: not known
    std::uint16_t sent = 0, answered = 0, ce = 0, ecn_capable = 0;
    Nanos rtt = -1;
    bool suspected = false;  // crossed a suspect: says nothing about how the router answers
  };
  struct Report {
    Nanos received = 0;
    std::vector<Hop> hops;
  };
  struct Key {
    EndpointId from, to;
    UdpPorts ports;
    auto operator<=>(const Key&) const = default;
  };
  // Where a hop lies among the suspects: at or beyond place[s] it has crossed suspect s.
  struct Places {
    std::vector<std::size_t> place;
    std::size_t here = 0;
  };
  static Places places(const Route& route, const std::vector<LinkId>& suspects);
  std::map<std::string, Answers> mark_and_measure(const Fabric& fabric, const std::vector<LinkId>& suspects,
                                                  Nanos since);
  void absorb(const Report& report);
  static std::optional<bool> late_at(const std::deque<Report>& reports, const Report& report, std::size_t hop,
                                     Nanos since, double excess_ns);
  static bool delay_fits(const std::deque<Report>& reports, const Report& report, const Route& route, const Places& at,
                         Nanos since, double excess_ns);

  std::map<Key, std::deque<Report>> reports_;
  std::map<std::string, Answers> habits_;  // by router, of reports that are gone
};

}  // namespace weft::localise
