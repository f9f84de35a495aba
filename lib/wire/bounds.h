// Bounds on parts of records: the encoder cuts at them, the decoder refuses past them.
#pragma once

#include <cstddef>

#include "lib/base/clock.h"

namespace weft::wire {

inline constexpr std::size_t kMaxShortText = 253;  // names, addresses, versions
inline constexpr std::size_t kMaxSubject = 800;    // two hosts, two devices, a port
inline constexpr std::size_t kMaxText = 1024;      // a sentence for a person
inline constexpr std::size_t kMaxDevices = 128;
inline constexpr std::size_t kMaxPorts = 16;  // of one device
inline constexpr std::size_t kMaxGids = 256;  // of one port
inline constexpr std::size_t kMaxEndpoints = 128;
inline constexpr std::size_t kMaxLimitations = 256;
inline constexpr std::size_t kMaxUdpPorts = 1024;
inline constexpr std::size_t kMaxHops = 64;
inline constexpr std::size_t kMaxEvidence = 64;
inline constexpr std::size_t kMaxVictims = 256;
inline constexpr std::size_t kMaxNotChecked = 32;
inline constexpr std::size_t kMaxTargets = 4096;
inline constexpr std::size_t kMaxPlanPaths = 65536;  // of all targets
inline constexpr std::size_t kMaxPlanTraces = 256;
inline constexpr Nanos kMaxInterval = 3600 * kSecond;
inline constexpr double kMaxProbesPerSecond = 1e6;

}  // namespace weft::wire
