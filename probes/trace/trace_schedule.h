// Decides which hop of which path to ask next, and what the answers say. Pure: times and answers in, packets out.
//
// Routers answer few ICMP errors (Linux: 6 in a burst, then one a second to each source), so the answers of a router
// are a budget, shared by every path that crosses it:
// - each router address has a token bucket (router_budgets.h), and so has the whole tracer;
// - hops that decide the path come first (where sibling ports saw different routers, or nothing is known yet), hops
//   that every port shares come last;
// - where at least agreeing_ports ports of a pair saw one and the same router at a TTL (at TTL 1: ports of one source
//   address), the other ports' hop is taken to be that router until it is measured; one disagreement withdraws that;
// - a path under suspicion is asked all along its way as often as its routers bear, before any other;
// - what was asked and answered is counted, for judging; packets that a router was asked beyond its budget are not;
//   an answer counts when its timeout would have, or whoever asks early would see only those who answered;
// - silence is unknown: asked again with back-off, never loss, and never erases what was known (a path must stay known
//   when its link dies), until keep_ns is over.
// Not thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/model/path.h"
#include "lib/rdma/source_port.h"
#include "probes/trace/icmp.h"
#include "probes/trace/router_budgets.h"

namespace weft::probes {

struct TraceRequest {
  std::string from, to;                  // "h1/rxe0", for the result
  std::string from_address, to_address;  // IP text, one family
  std::string netdev;                    // leave by this interface; empty: as the routes say
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = rdma::kRoceUdpPort;
  // Routers on the way, from the hop limit of arrived probes: the last packet dies at the last router and the host
  // never sees one. Unknown: asked hop by hop until the host answers or two hops in a row are silent.
  std::optional<std::uint8_t> hops;
  std::uint8_t traffic_class = 0;  // DSCP << 2; ECT(0) is added
  // A path under suspicion: each hop is asked this often, as far as its router's budget goes.
  double probes_per_hop_per_s = 0;
  bool operator==(const TraceRequest&) const = default;
};

struct TraceLimits {
  RouterLimits routers;
  double rate_per_s = 50, burst = 20;  // of everything sent
  Nanos answer_timeout_ns = kSecond;
  Nanos suspect_timeout_ns = 300 * kMillisecond;  // of packets of paths under suspicion: what counts is told soon
  unsigned tries = 3;                             // before a hop counts as silent
  Nanos silent_back_off_max_ns = 60 * kSecond;
  Nanos refresh_ns = 60 * kSecond;  // each hop is asked again this often, budget allowing
  Nanos keep_ns = 600 * kSecond;    // a hop that fell silent stays known this long
  // With two equal ways this many ports agree by chance once in 2^7. 0: never take a hop from its siblings.
  unsigned agreeing_ports = 8;
  std::uint8_t max_ttl = 30;
  std::size_t max_traces = 1024;
  double suspect_rate_per_s = 200;    // of packets of paths under suspicion, all together
  Nanos counted_report_ns = kSecond;  // of traces with anything asked since the last report
};

struct TraceHopView {
  std::string address;  // empty: silent or not asked yet
  bool shared = false;  // taken from sibling ports, not measured on this one
  std::optional<Nanos> rtt_ns;
  unsigned asked = 0;  // packets sent for it
};

struct TraceView {
  model::PathTrace trace;
  std::vector<TraceHopView> hops;  // same length as trace.hops
  bool finished = false;           // nothing more to come in the first round
  bool reached = false;            // the host itself answered
};

struct TraceStats {
  std::uint64_t sent = 0, answered = 0, timeouts = 0, late = 0, refused_requests = 0;
  std::uint64_t send_errors = 0;  // also of what this host's kernel could not hand to a next hop, told by ICMP
  std::uint64_t unmatched = 0;    // well-formed ICMP that quotes nothing we sent
  std::array<std::uint64_t, kIcmpRejects> rejected{};
};

struct TraceSend {
  TraceProbe probe;
  std::string netdev;
};

class TraceSchedule {
 public:
  explicit TraceSchedule(TraceLimits limits) : limits_(limits), routers_(limits.routers) {}

  // Replaces the requests; what is known of kept ones lives on. A change of hop count or rate keeps the hops known.
  // Invalid when an address is bad (the others are taken), Exhausted past max_traces.
  Result<void> set_requests(const std::vector<TraceRequest>& requests, Nanos now);

  // The next packet that may be sent now, if any; call until empty.
  std::optional<TraceSend> next(Nanos now);
  // When to call next again, at the latest.
  Nanos wake_at(Nanos now);
  void on_answer(const IcmpParse& answer, Nanos now);
  // The packet with this token could not be sent.
  void on_send_error(std::uint16_t token, Nanos now);

  // Traces that changed or were confirmed since the last call, and once a second those with counts.
  std::vector<model::PathTrace> take_changed(Nanos now);
  std::vector<TraceView> views() const;
  bool finished() const;
  const TraceStats& stats() const { return stats_; }

 private:
  enum class Purpose : std::uint8_t { Course, Suspect, Trial };
  struct Answer {
    Nanos counts_at = 0, rtt_ns = 0;
    std::uint8_t tos = 0;  // as it arrived at the router
  };
  struct Hop {
    std::string address;
    Nanos answered_at = 0;
    Nanos due = 0;
    std::optional<Nanos> rtt_ns;
    unsigned unanswered = 0;  // tries since the last answer
    unsigned asked = 0;
    bool in_flight = false;
    Nanos suspect_due = 0;
    std::uint16_t sent = 0, answered = 0, ce = 0, ecn_capable = 0;  // timeout over, since the last report
    std::vector<Nanos> rtts_ns;                                     // of those answered
    std::vector<Answer> answers;                                    // that are not counted yet
  };
  struct Trace {
    TraceRequest request;
    model::Gid source, destination;
    std::uint64_t source_scope = 0, pair_scope = 0;
    std::vector<Hop> hops;       // [ttl - 1]
    bool final_length = false;   // hops.size() is the answer: hop count given, or the way's end was seen
    bool host_answered = false;  // the packet with TTL hops.size() + 1 reached the host
    bool changed = true;
    Nanos emitted_at = 0;
  };
  struct Pending {
    std::uint64_t trace = 0;
    std::uint8_t ttl = 0;
    std::string charged;  // router whose bucket paid; empty: none known
    TraceProbe probe;
    Nanos sent_at = 0;
    bool timed_out = false;
    Purpose purpose = Purpose::Course;
  };
  // Packets in a row to one router, to learn how often it may be asked.
  struct Trial {
    std::string router;  // empty: none runs
    std::uint64_t trace = 0;
    std::uint8_t ttl = 0;
    unsigned sent = 0, ended = 0, answered = 0;
    Nanos due = 0;
  };
  // What the ports of a scope (a pair; at TTL 1 a source address) saw at one TTL.
  struct Seen {
    std::map<std::string, unsigned> ports_by_address;
    std::string host;  // the destination answered here
    unsigned in_flight_unknown = 0, timeouts_unknown = 0;
    unsigned measured = 0;
  };
  struct Payer {
    std::string router;  // empty: none known yet
    Nanos wait_ns = 0;   // 0: may go now; kUnknownBusy: after the one in flight
  };
  using SeenKey = std::uint64_t;
  static constexpr unsigned kMaxUnknownInFlight = 16;
  static constexpr int kLateFactor = 5;  // answers are taken this many timeouts after sending

  static SeenKey seen_key(const Trace& trace, std::uint8_t ttl);
  const Seen& seen(const Trace& trace, std::uint8_t ttl) const;
  const std::string& shared_address(const Trace& trace, std::uint8_t ttl) const;
  bool known(const Trace& trace, std::uint8_t ttl) const;
  void set_address(Trace& trace, std::uint8_t ttl, const std::string& address, Nanos now);
  void resize(Trace& trace, std::size_t hops, Nanos now);
  unsigned priority(const Trace& trace, std::uint8_t ttl) const;
  Payer payer(const Trace& trace, std::uint8_t ttl, double tokens, Nanos now);
  void expire(Nanos now);
  void hop_over(Pending& pending, bool failed, Nanos now);  // failed: not sent
  void extend(Trace& trace, Nanos now);
  void extend_scope(SeenKey key, Nanos now);
  bool trace_finished(const Trace& trace) const;
  model::PathTrace result(const Trace& trace) const;
  std::optional<TraceSend> next_suspect(Nanos now);
  std::optional<TraceSend> next_trial(Nanos now);
  void trial_ended(bool answered, Nanos now);
  bool anything_suspected() const;
  bool held_back(const Hop& hop, Nanos now) const;
  TraceSend make(std::uint64_t id, Trace& trace, std::uint8_t ttl, const std::string& charged, Purpose purpose,
                 Nanos now);
  Nanos timeout_of(Purpose purpose) const {
    return purpose == Purpose::Suspect ? limits_.suspect_timeout_ns : limits_.answer_timeout_ns;
  }
  static void count_silence(Hop& hop);
  static void count_answers(Hop& hop, Nanos now);
  void keep_answer(Hop& hop, const Pending& pending, const IcmpAnswer& answer, Nanos now) const;
  std::uint16_t new_token();
  std::uint64_t scope(const std::string& name);
  void forget(std::uint64_t id, Nanos now);
  void prune();

  TraceLimits limits_;
  std::map<std::uint64_t, Trace> traces_;
  std::map<std::string, std::uint64_t> id_by_key_;
  std::map<std::uint16_t, Pending> pending_;
  RouterBudgets routers_;
  std::map<SeenKey, Seen> seen_;
  std::map<std::string, std::uint64_t> scopes_;
  TokenBucket overall_, suspect_bucket_;
  Trial trial_;
  std::uint64_t next_id_ = 1, next_scope_ = 1;
  std::uint16_t last_token_ = 0;
  TraceStats stats_;
};

}  // namespace weft::probes
