// Finds the responders of targets: asks by keyed hello, again before the lease runs out, and at once when probes begin
// to fail. A state machine per target, pure over the time passed in; datagrams leave by a function. Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/base/budget.h"
#include "lib/base/clock.h"
#include "lib/model/plan.h"
#include "probes/packet/packet.h"
#include "probes/ping/engine.h"

namespace weft::probes {

// What a hello answer taught about a responder.
struct ResponderInfo {
  model::Gid gid;
  std::string name;
  std::uint64_t epoch = 0;
  bool two_acks = false;
  bool any_port = false;
  std::vector<HelloLane> lanes;
  bool operator==(const ResponderInfo&) const = default;
};

struct HelloOptions {
  std::string name;   // "h1/rxe0"
  std::string local;  // "rxe0 (10.0.1.2)", for people
  model::Gid gid;
  std::uint64_t epoch = 0;
  WireTransport transport = WireTransport::Rdma;
  Nanos answer_wait_ns = 500 * kMillisecond;
  double max_hellos_per_s = 200;
};

class HelloClient {
 public:
  using Send = std::function<Result<void>(const model::Gid& to, std::uint16_t port, std::span<const std::uint8_t>)>;
  // fresh: the responder did not know the session (new, restarted, or the lease ran out): receive counts begin anew.
  // No lanes: the responder answers us no longer, so probing it would only look like loss.
  using Found = std::function<void(std::uint64_t session, const ResponderInfo& info, bool fresh)>;
  using Random = std::function<std::uint64_t()>;

  HelloClient(HelloOptions options, const FabricKey& key, RejectCounters& rejects, Send send, Found found,
              Random random);

  // Own queue pairs, told to responders with the next hello.
  void set_lanes(std::vector<HelloLane> lanes) { lanes_ = std::move(lanes); }
  // Returns the session of the target; the same for the same (to, to_address, hello_port).
  std::uint64_t add(const model::PlanTarget& target, Nanos now);
  void remove(std::uint64_t session) { peers_.erase(session); }

  void on_answer(const HelloPacket& answer, Nanos now);
  // The network said that nothing listens there (ICMP port unreachable: ECONNREFUSED), or that there is no way to it
  // (EHOSTUNREACH, ENETUNREACH).
  void on_refused(const model::Gid& address, std::uint16_t port, int error);
  // Probes of the session fail: ask now, though not more than once a second.
  void suspect(std::uint64_t session, Nanos now);
  void run(Nanos now);
  // Not later than the next thing to do; absent when there is none.
  std::optional<Nanos> next_due() const;
  std::vector<PeerStatus> statuses() const;

 private:
  struct Peer {
    std::string to, address_text;
    model::Gid address;
    std::uint16_t port = 0;
    PeerState state = PeerState::Hello;
    std::string reason;
    std::string send_error;  // of the last try
    int refused = 0;         // errno of the ICMP since the last answer
    Nanos next_ns = 0;       // absent address: never
    Nanos asked_ns = 0;
    std::uint64_t nonce = 0;    // of the question in the air; 0: none
    unsigned tries = 0;         // without an answer
    Nanos first_ns = 0;         // of those tries
    bool silence_told = false;  // reason says that it does not answer
    std::optional<ResponderInfo> info;
  };
  void ask(std::uint64_t session, Peer& peer, Nanos now);
  void due_at(Peer& peer, Nanos when);
  std::string silence(const Peer& peer) const;

  const HelloOptions options_;
  const FabricKey& key_;
  RejectCounters& rejects_;
  const Send send_;
  const Found found_;
  const Random random_;
  Budget budget_;
  std::vector<HelloLane> lanes_;
  std::map<std::uint64_t, Peer> peers_;
  Nanos earliest_ns_ = INT64_MAX;  // lower bound of every next_ns, so that idle turns cost nothing
};

}  // namespace weft::probes
