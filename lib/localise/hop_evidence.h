// Tells links apart that every path crosses together (with two leaves: l1>s1 and s1>l2), by probes that end at a hop: a
// hop beyond the sick link is silent, late or marked more often than one before it. Only separates suspects; never
// raises anything by itself, for routers limit and delay their answers as they like. Bounded; not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "lib/base/clock.h"
#include "lib/localise/fabric.h"
#include "lib/model/path.h"

namespace weft::localise {

enum class Trouble : std::uint8_t { Loss, Delay, Ce };

struct Separation {
  LinkId link = kNone;
  double margin_nats = 0;  // to the next suspect
  double tries = 0;        // probes behind it
};

class HopEvidence {
 public:
  void add(const model::PathTrace& trace, EndpointId from, EndpointId to, Nanos received);
  // Among suspects that lie on one way: the one that hops since `since` speak for. Nothing without counted hops.
  std::optional<Separation> separate(const Fabric& fabric, const std::vector<LinkId>& suspects, Trouble trouble,
                                     double ratio, double excess_ns, Nanos since) const;
  void expire(Nanos now);
  void forget() { reports_.clear(); }

 private:
  struct Hop {
    std::uint16_t sent = 0, answered = 0, ce = 0, ecn_capable = 0;
    Nanos rtt = -1;
  };
  struct Report {
    Nanos received = 0;
    std::vector<Hop> hops;
  };
  struct Key {
    EndpointId from, to;
    std::uint16_t port;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::deque<Report>> reports_;
};

}  // namespace weft::localise
