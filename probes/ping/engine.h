// Probing on one local endpoint: answers peers, keeps sessions by keyed hello, probes its targets, and folds outcomes
// into path windows. One thread of its own per engine; every public method is thread safe. None but on_outcome() and
// close() waits for that thread longer than a tenth of a second, however starved of CPU it is: an answer is then the
// last one given, and an order is followed when the thread comes to it.
// The engine owns its transport; close() (and the destructor) release the device within a second.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/model/device.h"
#include "lib/model/path.h"
#include "lib/model/plan.h"
#include "probes/packet/fabric_key.h"
#include "probes/ping/registered_peer.h"
#include "probes/ping/transport.h"

namespace weft::probes {

inline constexpr std::uint16_t kDefaultHelloPort = 47910;  // UDP, on the address being probed

struct EngineOptions {
  std::string host;    // name in path keys: "h1"; with device at most 127 printable characters, no spaces
  std::string device;  // "rxe0", "eth0"
  std::uint16_t hello_port = kDefaultHelloPort;
  FabricKey key;
  std::uint8_t traffic_class = 0;  // DSCP << 2; ECT(0) is added
  Nanos timeout_ns = 500 * kMillisecond;
  Nanos lease_ns = 60 * kSecond;
  Nanos overslept_ns = 50 * kMillisecond;  // how late this process may be and still take stamps itself
  Nanos skip_late_ns = 0;                  // a probe this late is not sent but counted as throttled; 0: all are sent
  std::size_t payload_bytes = 0;           // 0: the smallest; padded up to this otherwise
  double max_probes_per_s = 200;           // budget of this endpoint
  double max_link_share = 0.001;           // of rate_bits_per_s, when known
  std::optional<std::uint64_t> rate_bits_per_s;
  double answer_rate_per_peer = 500;  // responder bound
  unsigned max_peers = 4096;
  bool answer = true;  // run a responder; without one the hello socket takes any free port
  // Where the hello socket is bound; empty: the transport's own address. Only for GIDs that are no IP address
  // (InfiniBand): a hello that names an IPv4 GID other than its source is refused.
  std::string hello_address;
};

enum class ProbeResult : std::uint8_t {
  Ok,
  AckWithoutTimes,
  Timeout,
  LocalError,
  Late,
  Duplicate,
  BadTimestamp,
  Overslept,
  Stale
};
std::string_view to_string(ProbeResult result);

// One probe's end, for people (weft ping). Times in ns.
struct ProbeOutcome {
  model::PathKey key;
  std::uint64_t sequence = 0;
  ProbeResult result = ProbeResult::Timeout;
  std::optional<Nanos> rtt_ns, prober_delay_ns, responder_delay_ns;
  std::optional<std::uint8_t> forward_tos, forward_hop_limit, back_tos, back_hop_limit;
  std::optional<bool> reached;  // of a Timeout: whether the responder got the probe, where known by then
  std::string error;            // of a LocalError: in words
};

enum class PeerState : std::uint8_t { Hello, Ready, Refused, Unreachable };
std::string_view to_string(PeerState state);

struct PeerStatus {
  std::string to;
  PeerState state = PeerState::Hello;
  std::string reason;  // which step failed, in words, naming device, port and GID
  std::uint64_t responder_epoch = 0;
  std::string transport, address;
  std::vector<std::uint16_t> return_ports;
  std::string answered_as;  // the name its hello answer gave: "h3/rxe0"; empty until then
  std::string send_error;   // why no probe to it leaves this host; empty while some do
};

// Totals since the start, but where it says otherwise. Losses and CE marks are counted as their windows close.
struct EngineStats {
  std::uint64_t sent = 0, acked = 0, throttled = 0, local_errors = 0, answered = 0;
  std::uint64_t lost_forward = 0, lost_back = 0, lost_unknown = 0, ce_forward = 0, ce_back = 0;
  std::vector<std::pair<std::string, std::uint64_t>> rejected;  // received packets ignored, by reason
  std::optional<std::uint32_t> responder_low_water;
  Nanos own_delay_max_ns = 0;  // since the last call
  unsigned registered_peers = 0;
  std::uint64_t windows_dropped = 0;  // closed, and nobody took them in time
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> start(EngineOptions options, std::unique_ptr<Transport> transport,
                                               const Clock& clock);
  virtual ~Engine() = default;

  virtual model::ProbeEndpoint endpoint() const = 0;
  // Replaces the targets; sessions of kept ones live on. A path with port 0 takes the ports in turn.
  virtual void set_targets(std::vector<model::PlanTarget> targets) = 0;
  virtual void want_ports(unsigned count) = 0;
  // Windows closed since the last call (one a second for each path that was active).
  virtual std::vector<model::PathWindow> take_windows() = 0;
  virtual std::vector<PeerStatus> peers() const = 0;
  // The peers that hold a lease here: whom we answer, so whose acknowledgement paths are worth tracing.
  virtual std::vector<RegisteredPeer> registered() const = 0;
  virtual EngineStats take_stats() = 0;
  // Called on the engine's thread for every probe that ends; must return quickly.
  virtual void on_outcome(std::function<void(const ProbeOutcome&)> callback) = 0;
  // Why the engine stopped by itself (device gone); empty while it runs.
  virtual std::string failure() const = 0;
  virtual void close() = 0;
};

}  // namespace weft::probes
