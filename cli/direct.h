// Measuring from this host with no agent: which local device or address to use for which peer, and an engine on each.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/host_name.h"
#include "cli/options.h"
#include "lib/base/bounded_queue.h"
#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/model/device.h"
#include "probes/packet/fabric_key.h"
#include "probes/ping/engine.h"
#include "probes/rdma/rdma_transport.h"

namespace weft::cli {

// One local place to measure from: an RDMA device port, or an IP address over UDP.
struct LocalPlace {
  bool rdma = false;
  std::string device;   // "rxe0"; the interface or "udp" otherwise
  unsigned port = 0;    // RDMA
  std::string address;  // UDP: local IP
  std::string netdev;
  std::optional<std::uint64_t> rate_bits_per_s;
  std::string why;  // why this one
  std::string gid;  // RDMA: "index 1, 10.0.1.2 (RoCEv2, eth0): the only RoCEv2 IPv4 address"; empty when not known
  bool operator==(const LocalPlace&) const = default;
};

// Pure. source: the local address packets to the peer leave from, by the routes (or --source). Auto takes the active
// RDMA port that owns the source address, else the first active one, else UDP, and says why not RDMA.
// NotFound names the devices there are, or the port or interface there is not; Unsupported when RDMA is asked for and
// there is none.
Result<LocalPlace> choose_place(const DirectOptions& options, const model::Inventory& inventory,
                                const std::string& source);

// For people: why this place, and which GID of it and why.
std::string how_chosen(const LocalPlace& local);

// What opening calls outside, which tests replace. inventory and open_rdma may block for ever and be left behind, so
// they own what they use.
struct DirectParts {
  std::function<Result<model::Inventory>(const std::string& sys_root, Nanos within_ns)> inventory;
  std::function<Result<std::unique_ptr<probes::Transport>>(const probes::RdmaTransportOptions&)> open_rdma;
  // The local address that packets to this one leave from, by the routes. Does not block.
  std::function<Result<std::string>(const std::string& to)> source_for;
};
DirectParts system_parts();

struct EngineNeeds {
  double probes_per_s = 5;  // to all peers of one place
  unsigned ports = 1;
  bool answer = false;
  Nanos timeout_ns = 500 * kMillisecond;
  Nanos open_within_ns = 10 * kSecond;  // for reading the inventory and opening the devices, all together
  probes::FabricKey key;
};

struct PlacedOutcome {
  std::size_t place = 0;
  probes::ProbeOutcome outcome;
};

inline constexpr std::size_t kNoPlace = static_cast<std::size_t>(-1);

// Engines of one run. Closed by the destructor. Used by one thread; outcomes arrive through a bounded queue.
class Direct {
 public:
  struct Place {
    LocalPlace local;
    std::string label;                                           // "rdma rxe0 port 1, 10.0.1.2" for people
    model::TimestampRung rung = model::TimestampRung::Software;  // as it opened
    std::unique_ptr<probes::Engine> engine;
  };
  // One engine for each distinct place the peers need. With transport auto a device that cannot be used for what it is
  // or may not be opened is replaced by UDP, which notes() says. A peer that cannot be measured from here has its
  // reason in failed(); an error only when that is so of all. Errors name the device, address and step; Timeout is one
  // that blocks.
  static Result<std::unique_ptr<Direct>> open(const DirectOptions& options, const std::vector<HostAddress>& peers,
                                              const EngineNeeds& needs, const Clock& clock,
                                              const DirectParts& parts = system_parts());
  // Responders: every active RDMA port, or every local address over UDP; or the one the options name.
  static Result<std::unique_ptr<Direct>> open_all(const DirectOptions& options, const EngineNeeds& needs,
                                                  const Clock& clock, const DirectParts& parts = system_parts());
  ~Direct();

  std::vector<Place>& places() { return places_; }
  Place& place_of(std::size_t peer) { return places_[place_of_peer_[peer]]; }
  // kNoPlace of one that failed.
  std::size_t place_index(std::size_t peer) const { return place_of_peer_[peer]; }
  // Why the peer cannot be measured from here; null when it can.
  const Error* failed(std::size_t peer) const { return failed_[peer] ? &*failed_[peer] : nullptr; }
  BoundedQueue<PlacedOutcome>& outcomes() { return outcomes_; }
  // Places not opened, or replaced, and options that were not used, in words.
  const std::vector<std::string>& notes() const { return notes_; }

  // UDP source ports to use at a place: the first `count` it can offer, waiting a little for lanes to open.
  std::vector<std::uint16_t> ports(Place& place, unsigned count);

 private:
  explicit Direct(const Clock& clock) : clock_(clock) {}
  Result<std::size_t> add(const DirectOptions& options, const LocalPlace& local, const EngineNeeds& needs,
                          std::unique_ptr<probes::Transport> transport);
  // Options that a fall back to UDP left without a meaning.
  void note_unused(const DirectOptions& options);

  const Clock& clock_;
  std::vector<Place> places_;
  std::vector<std::size_t> place_of_peer_;
  std::vector<std::optional<Error>> failed_;
  std::vector<std::string> notes_;
  BoundedQueue<PlacedOutcome> outcomes_{65536};
};

// What a command that measures says when it cannot begin: its words, device, port and step are in the error already.
// A device that cannot do what was asked of it is no usage error: the options were well formed.
Error cannot_measure(Error error);

// One error for several hosts none of which can be measured: every reason once. The first one's kind.
Error all_failed(const std::vector<Error>& errors);

// The state of a peer, as its engine says; empty when it does not know it.
std::optional<probes::PeerStatus> peer_status(const probes::Engine& engine, const std::string& to);

}  // namespace weft::cli
