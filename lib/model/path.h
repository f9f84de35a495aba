// What probing learns about one path in one window, and where the path goes. Passive data.
// A path is (prober endpoint, responder endpoint, UDP source port of probes, UDP source port of acknowledgements):
// with ECMP the two ports fix the way out and the way back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"

namespace weft::model {

// Where timestamps of a probe came from, best first. A difference never mixes rungs or clocks.
enum class TimestampRung : std::uint8_t { NicWallClock, NicTicks, KernelSoftware, Software };
std::string_view to_string(TimestampRung rung);

struct PathKey {
  std::string from;  // "h1/rxe0"
  std::string to;    // "h3/rxe0"
  std::uint16_t forward_port = 0;
  std::uint16_t return_port = 0;
  auto operator<=>(const PathKey&) const = default;
};

// Over UDP a probe goes to the port that answers it, so both ports choose both ways, and each prober port keeps to one
// answering port: the index of it among the peer's `theirs` ports, which are more than none. A port that is not among
// `own` goes with some port of the peer's, always the same.
std::size_t udp_partner(const std::vector<std::uint16_t>& own, std::uint16_t port, std::size_t theirs);

// One direction's arrivals. Only packets whose IP header was seen and valid are judged for ECN.
struct DirectionCounts {
  std::uint32_t lost = 0;            // known lost in this direction (responder's receive count)
  std::uint32_t ecn_capable = 0;     // arrived ECT(0), ECT(1) or CE
  std::uint32_t ce = 0;              // arrived CE
  std::uint32_t bleached = 0;        // sent ECT(0), arrived Not-ECT: ECN cannot be measured there
  std::optional<std::uint8_t> hops;  // routers passed: hop limit sent minus hop limit arrived, last seen
  bool operator==(const DirectionCounts&) const = default;
};

// Times in ns. sent counts only probes that may accuse or acquit: those with an outcome decided in this window and
// whose own sender and poller were there; so sent = acked + lost_unknown + forward.lost + back.lost.
struct PathWindow {
  PathKey key;
  std::uint64_t responder_epoch = 0;
  Nanos window_ns = kSecond;
  std::uint32_t sent = 0;
  std::uint32_t acked = 0;
  std::uint32_t lost_unknown = 0;  // timed out and no later acknowledgement told the direction
  DirectionCounts forward;
  DirectionCounts back;
  std::uint32_t acked_without_times = 0;  // path alive, round trip unknown (part of acked)
  std::uint32_t late = 0;                 // acknowledged after the timeout; already counted lost, listed to explain
  std::uint32_t duplicate = 0;
  std::uint32_t local_error = 0;  // could not be sent: says nothing about the network
  std::uint32_t overslept = 0;    // own pause may have cost the answer: excluded from sent, answered or not
  std::uint32_t bad_timestamp = 0;
  std::uint32_t stale = 0;      // sent to queue pairs of an old responder epoch: excluded from sent
  std::uint32_t throttled = 0;  // the budget said no
  TimestampRung rung = TimestampRung::Software;
  std::optional<Nanos> rtt_min_ns, rtt_median_ns, rtt_p90_ns, rtt_max_ns;  // network round trip
  std::optional<Nanos> prober_delay_max_ns, responder_delay_max_ns;
  bool operator==(const PathWindow&) const = default;
};

// The counts tell links apart that every path crosses together (in a fabric of two leaves: l1>s1 and s1>l2): probes
// that end at hop k have crossed the links up to k and no further.
struct TraceHop {
  std::uint8_t ttl = 0;
  std::string address;            // empty: silent, which is unknown, never lost
  std::uint16_t sent = 0;         // probes of this hop limit since the last report of this trace; 0: not counted
  std::uint16_t answered = 0;     // of those
  std::uint16_t ce = 0;           // of the answered: quoted IP header marked CE (it was sent ECT(0))
  std::uint16_t ecn_capable = 0;  // of the answered: quoted IP header still ECT or CE
  std::optional<Nanos> rtt_ns;    // median of the answered
  bool operator==(const TraceHop&) const = default;
};

// Routers between two endpoints for one UDP source port, in order from the sender. The host itself is not in it.
struct PathTrace {
  std::string from;  // "h1/rxe0"
  std::string to;    // "h3/rxe0"
  std::string from_address, to_address;
  std::uint16_t source_port = 0;
  std::vector<TraceHop> hops;
  bool complete = false;  // every router up to the last one before the host answered
  // Of probes over UDP, whose way depends on both ports. 0: the port that RoCE always has.
  std::uint16_t destination_port = 0;
  bool operator==(const PathTrace&) const = default;
};

// How well weftd itself was scheduled in a window.
struct HostHealth {
  Nanos window_ns = kSecond;
  Nanos max_gap_ns = 0;                              // longest time a heartbeat (each 10 or 20 ms) was late
  Nanos total_gap_ns = 0;                            // sum of lateness over 20 ms
  std::optional<double> cpu_pressure_some;           // PSI avg10, ratio 0..1
  std::optional<std::uint32_t> responder_low_water;  // fewest free receive buffers seen
  std::uint64_t probes_throttled = 0;
  bool operator==(const HostHealth&) const = default;
};

}  // namespace weft::model
