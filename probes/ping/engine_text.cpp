#include "probes/ping/engine.h"

namespace weft::probes {

std::string_view to_string(ProbeResult result) {
  switch (result) {
    case ProbeResult::Ok:
      return "ok";
    case ProbeResult::AckWithoutTimes:
      return "acknowledged without times";
    case ProbeResult::Timeout:
      return "timeout";
    case ProbeResult::LocalError:
      return "local error";
    case ProbeResult::Late:
      return "late";
    case ProbeResult::Duplicate:
      return "duplicate";
    case ProbeResult::BadTimestamp:
      return "bad timestamp";
    case ProbeResult::Overslept:
      return "overslept";
    case ProbeResult::Stale:
      return "stale";
  }
  return "unknown";
}

std::string_view to_string(PeerState state) {
  switch (state) {
    case PeerState::Hello:
      return "hello";
    case PeerState::Ready:
      return "ready";
    case PeerState::Refused:
      return "refused";
    case PeerState::Unreachable:
      return "unreachable";
  }
  return "unknown";
}

}  // namespace weft::probes
