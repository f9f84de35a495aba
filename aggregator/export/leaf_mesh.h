// The mesh of ports folded into one of leaves, for metrics and the console: a fabric of a thousand hosts has a million
// pairs of ports and some hundred pairs of leaves. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/localise/localiser.h"

namespace weft::aggregator {

// So many leaves have rows of their own, those with the most ports; the rest is one row, kOtherLeaf.
inline constexpr std::size_t kMaxLeaves = 64;
inline constexpr const char* kOtherLeaf = "other";
inline constexpr const char* kUnknownLeaf = "unknown";  // no topology and no trace says where a port hangs

struct LeafCell {
  std::string from, to;
  std::uint64_t sent = 0, lost = 0, ce = 0, ecn_capable = 0;
  std::optional<Nanos> rtt_median_ns;  // the middle pair of ports: one bad pair shows as loss, not as the leaf's delay
  std::optional<Nanos> rtt_p90_ns;     // the worst pair of ports
  unsigned paths = 0;
  std::map<std::string, unsigned> pairs;  // pairs of ports, by their state
  std::string state;                      // the worst that a pair has; "ok" where some are and others are unknown
};

struct LeafMesh {
  std::vector<LeafCell> cells;                 // in order of from, to
  std::map<std::string, std::string> leaf_of;  // by port ("h1/rxe0"), named as in cells
};

// keep chooses pairs of ports; without it all.
LeafMesh leaf_mesh(const std::vector<localise::MeshCell>& mesh,
                   const std::function<bool(const localise::MeshCell&)>& keep = {});

}  // namespace weft::aggregator
