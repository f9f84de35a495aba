// Why a received packet was ignored. Every reason is counted and exported; nothing is ever answered on a reject.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::probes {

enum class Reject : std::uint8_t {
  TooShort,          // fewer bytes than the smallest packet
  BadMagic,          // not ours
  BadVersion,        // another version of weft
  BadLength,         // the length inside differs from the bytes that came, or is out of bounds
  UnknownType,       // no type we know, or none that belongs here
  BadMac,            // wrong fabric key, or damaged
  BadField,          // authentic, yet a field breaks the rules
  NotForUs,          // an acknowledgement at a responder, a probe at a prober
  UnregisteredPeer,  // no lease, or it ran out, or it came from another address than the hello said
  Replayed,          // this sequence was seen before
  Rate,              // over the bound of its peer, or of all hellos
  UnknownSession,    // acknowledgement of a session that is gone
  UnknownSequence,   // acknowledgement of a probe never sent or long forgotten
  StaleEpoch,        // meant for an earlier set of queue pairs
  WrongNonce,        // hello answer to a question not asked, or asked long ago
  AddressMismatch,   // the hello names another address than it came from
};
inline constexpr std::size_t kRejectReasons = static_cast<std::size_t>(Reject::AddressMismatch) + 1;

// Metric label: "too_short", ...
std::string_view to_string(Reject reason);
// For people, after a count: "with a wrong key, or damaged", ...
std::string_view describe(Reject reason);

// Not thread safe.
class RejectCounters {
 public:
  void count(Reject reason) { ++counts_[static_cast<std::size_t>(reason)]; }
  std::uint64_t of(Reject reason) const { return counts_[static_cast<std::size_t>(reason)]; }
  std::uint64_t total() const;
  // Every reason, those at zero too, so that series exist from the start.
  std::vector<std::pair<std::string, std::uint64_t>> list() const;

 private:
  std::array<std::uint64_t, kRejectReasons> counts_{};
};

}  // namespace weft::probes
