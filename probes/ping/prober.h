// Sends probes of its sessions at their pace, matches acknowledgements, and tells every probe's end apart.
// Several probes are in flight at once; the timeout may be longer than the interval. What waits is taken before
// anything times out, so a poller that is late loses nothing; one that pauses for so long that answers may not have
// waited counts no probe of that time, answered or not: if only the unanswered went uncounted, a late host would see no
// loss at all. Losses are given a direction by what the responder says it received. Pure over Transport and the time
// passed in; not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lib/base/budget.h"
#include "lib/base/clock.h"
#include "lib/model/plan.h"
#include "probes/packet/packet.h"
#include "probes/ping/engine.h"
#include "probes/ping/hello.h"
#include "probes/ping/pacer.h"
#include "probes/ping/port_choice.h"
#include "probes/ping/transport.h"
#include "probes/ping/window.h"

namespace weft::probes {

struct ProberOptions {
  std::string name;  // "h1/rxe0"
  std::uint8_t traffic_class = 0;
  Nanos timeout_ns = 500 * kMillisecond;
  Nanos overslept_ns = 50 * kMillisecond;  // from here on, stamps that this process takes are not to be used
  Nanos skip_late_ns = 0;
  std::size_t payload_bytes = 0;
  double max_probes_per_s = 200;
  double max_link_share = 0.001;
  std::optional<std::uint64_t> rate_bits_per_s;
  // From here on, or from half of the timeout when that is less (overslept_ns at least), answers may not have waited:
  // as long as receive queues are sure to hold.
  Nanos deaf_ns = 200 * kMillisecond;
};

struct ProberStats {
  std::uint64_t sent = 0, acked = 0, throttled = 0, local_errors = 0;
};

class Prober {
 public:
  using Suspect = std::function<void(std::uint64_t session)>;

  // All references must outlive the prober. suspect is called when a session's probes begin to fail.
  Prober(ProberOptions options, const FabricKey& key, Transport& transport, const Clock& clock, WindowFolder& folder,
         RejectCounters& rejects, Suspect suspect, std::uint64_t seed);

  // Adds a session or changes its paths. Probing starts once its responder is known.
  void set_target(std::uint64_t session, const model::PlanTarget& target, Nanos now);
  void remove(std::uint64_t session);
  // What the hello found; see HelloClient::Found.
  void set_responder(std::uint64_t session, const ResponderInfo& info, bool fresh, Nanos now);
  // To be called when the transport's prober ports have changed.
  void refresh_ports();

  void on_arrival(const Arrival& arrival);
  void on_send_done(const SendDone& done);
  // The loop woke this much later than it should have: what is in flight now may be late by our own fault.
  // To be called before the arrivals that waited meanwhile are delivered.
  void woke_late(Nanos now, Nanos late_ns);
  void expire(Nanos now);
  void send_due(Nanos now);
  std::optional<Nanos> next_deadline();

  const ProberStats& stats() const { return stats_; }
  // Why nothing is sent, in words, by PlanTarget::to; only targets to which nothing is.
  std::map<std::string, std::string> send_errors() const;
  // Probes kept, in flight or for late answers; bounded.
  std::size_t remembered() const;
  // Ends of probes since the last call, when wanted.
  void want_outcomes(bool want) { want_outcomes_ = want; }
  std::vector<ProbeOutcome> take_outcomes() { return std::exchange(outcomes_, {}); }

 private:
  enum class State : std::uint8_t { Pending, Acked, TimedOut, NotSent };
  enum class Seen : std::uint8_t { Unknown, No, Yes };
  struct Record {
    State state = State::Pending;
    Seen seen = Seen::Unknown;  // by the responder
    bool send_done = false, first_ack = false, late_ack = false, second_follows = false;
    bool tainted = false;   // own sender or poller was late: stamps taken by it are wrong
    bool deaf = false;      // so late that an answer may have been missed: not counted, answered or not
    bool stale = false;     // sent to a responder that is gone
    bool oversize = false;  // sent before it was known that packets of this size do not pass
    bool counted = false;   // as answered or as a loss, in `window`
    bool without_times = false;
    Loss loss = Loss::Unknown;
    std::uint16_t forward_port = 0, return_port = 0;
    std::uint64_t epoch = 0;
    std::int64_t window = 0;
    Nanos t1_ns = 0, t6_ns = 0;
    Stamp t2 = 0, t5 = 0;
    std::optional<Nanos> delay_ns;
    std::optional<std::uint8_t> forward_tos, forward_hop_limit, back_tos, back_hop_limit;
  };
  struct PathState {
    model::PlanPath plan;
    std::uint32_t turn = 0;
  };
  struct Session {
    std::uint64_t id = 0;
    std::uint32_t index = 0;  // short name of the session in cookies; never given twice
    std::string to;
    std::vector<PathState> paths;
    std::optional<ResponderInfo> info;
    std::deque<Record> records;  // of sequences first_sequence ...
    std::uint64_t first_sequence = 1;
    std::uint64_t attribute_from = 1;  // the responder's memory begins here
    std::uint64_t learned_to = 1;      // nothing is to be learned of what came before
    std::uint64_t last_acked = 0;
    Nanos last_ack_ns = 0;
    unsigned timeouts_in_a_row = 0;
    unsigned not_sent_in_a_row = 0;
    std::string send_error;  // the first of those
    std::uint64_t next_sequence() const { return first_sequence + records.size(); }
    Record* record(std::uint64_t sequence);
  };
  struct InFlight {
    std::uint64_t session = 0, sequence = 0;
    Nanos deadline_ns = 0;
  };
  struct Times {
    bool valid = false;
    Nanos rtt_ns = 0;
    std::optional<Nanos> prober_delay_ns;
  };

  Session* find(std::uint64_t id);
  model::PathKey key_of(const Session& session, const Record& record) const;
  std::size_t probe_bytes(const ResponderInfo& info) const;
  void send_one(Session& session, PathState& path, Nanos now, Nanos late_ns);
  bool is_deaf(Nanos late_ns) const;
  void uncount_acked(const Session& session, Record& record);
  bool within_budget(std::size_t bytes, Nanos now);
  void forget_old(Session& session, Nanos now);
  void pace(Session& session, Nanos now);
  void learn_received(Session& session, const ProbePacket& ack);
  void set_loss(Session& session, Record& record, Loss loss);
  void take_ack(Session& session, Record& record, const ProbePacket& ack, const Arrival& arrival);
  model::TimestampRung rung_of(const Session& session) const;
  Times times_of(const Session& session, const Record& record) const;
  void finish_if_complete(Session& session, std::uint64_t sequence, Record& record, Nanos now);
  void finish_acked(Session& session, std::uint64_t sequence, Record& record, Nanos now);
  void time_out(Session& session, std::uint64_t sequence, Record& record, Nanos now);
  // The kernel has learned a path MTU that is too small: what went before had to be dropped, by nobody's fault.
  void excuse_oversize(Session& session);
  void local_error(Session& session, std::uint64_t sequence, Record& record, Nanos now, const std::string& error);
  void report(const Session& session, std::uint64_t sequence, const Record& record, ProbeResult result,
              const std::string& error = {});

  const ProberOptions options_;
  const FabricKey& key_;
  Transport& transport_;
  const Clock& clock_;
  WindowFolder& folder_;
  RejectCounters& rejects_;
  const Suspect suspect_;
  Pacer pacer_;
  Budget packets_;
  Budget bytes_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::unordered_map<std::uint32_t, Session*> by_index_;
  std::uint32_t last_index_ = 0;
  std::deque<InFlight> in_flight_;  // by deadline: every probe has the same timeout
  std::vector<LaneInfo> own_lanes_;
  std::vector<std::uint16_t> own_ports_;
  ProberStats stats_;
  bool want_outcomes_ = false;
  std::vector<ProbeOutcome> outcomes_;
};

}  // namespace weft::probes
