#include "probes/packet/reject.h"

#include <numeric>

namespace weft::probes {

std::string_view to_string(Reject reason) {
  switch (reason) {
    case Reject::TooShort:
      return "too_short";
    case Reject::BadMagic:
      return "bad_magic";
    case Reject::BadVersion:
      return "bad_version";
    case Reject::BadLength:
      return "bad_length";
    case Reject::UnknownType:
      return "unknown_type";
    case Reject::BadMac:
      return "bad_mac";
    case Reject::BadField:
      return "bad_field";
    case Reject::NotForUs:
      return "not_for_us";
    case Reject::UnregisteredPeer:
      return "unregistered_peer";
    case Reject::Replayed:
      return "replayed";
    case Reject::Rate:
      return "rate";
    case Reject::UnknownSession:
      return "unknown_session";
    case Reject::UnknownSequence:
      return "unknown_sequence";
    case Reject::StaleEpoch:
      return "stale_epoch";
    case Reject::WrongNonce:
      return "wrong_nonce";
    case Reject::AddressMismatch:
      return "address_mismatch";
  }
  return "unknown";
}

std::string_view describe(Reject reason) {
  switch (reason) {
    case Reject::TooShort:
      return "garbage (too short)";
    case Reject::BadMagic:
      return "garbage (not of weft)";
    case Reject::BadVersion:
      return "of another version of weft";
    case Reject::BadLength:
      return "garbage (length)";
    case Reject::UnknownType:
      return "garbage (type)";
    case Reject::BadMac:
      return "with a wrong key, or damaged";
    case Reject::BadField:
      return "against the rules";
    case Reject::NotForUs:
      return "not for a responder";
    case Reject::UnregisteredPeer:
      return "of peers without a hello";
    case Reject::Replayed:
      return "seen before";
    case Reject::Rate:
      return "over the rate";
    case Reject::UnknownSession:
      return "of a session that is gone";
    case Reject::UnknownSequence:
      return "of a probe never sent";
    case Reject::StaleEpoch:
      return "for queue pairs that are gone";
    case Reject::WrongNonce:
      return "to a question not asked";
    case Reject::AddressMismatch:
      return "from another address than they name";
  }
  return "unknown";
}

std::uint64_t RejectCounters::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

std::vector<std::pair<std::string, std::uint64_t>> RejectCounters::list() const {
  std::vector<std::pair<std::string, std::uint64_t>> rows;
  rows.reserve(kRejectReasons);
  for (std::size_t i = 0; i < kRejectReasons; ++i) {
    rows.emplace_back(to_string(static_cast<Reject>(i)), counts_[i]);
  }
  return rows;
}

}  // namespace weft::probes
