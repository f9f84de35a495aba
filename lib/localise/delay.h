// Which seconds of which paths were late. First against the sibling paths of the same pair in the same second (the
// lower quartile of what they took beyond their own past, or of what they took, while that past is young), second
// against the path's own past, beyond what the whole fabric is late by. The past is learned from healthy seconds only.
#pragma once

#include <cstdint>

#include "lib/base/clock.h"
#include "lib/localise/evidence.h"

namespace weft::localise {

struct DelayConfig {
  Nanos floor_ns = 20 * kMicrosecond;
  double spread_factor = 6;
};

// Judges the seconds now-3..now; learns from those that are older. Call once a judge(), after usability is set.
void classify_delay(Evidence& evidence, const DelayConfig& config, Nanos now);

}  // namespace weft::localise
