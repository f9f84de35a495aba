// The agent's side of the stream: an explicit state machine over links. Batches are numbered, kept until acknowledged,
// and sent again after a reconnect from where the aggregator's Welcome says it stands; the aggregator ignores what it
// has, so nothing is doubled. An acknowledgement beyond the last batch sent breaks the protocol: it frees nothing and
// ends the link, and the next Welcome says what is stored. All methods on the main loop's thread; nothing blocks.
//
//   Inactive    no address
//   Connecting  transport and call under way            -> Handshake, Backoff
//   Handshake   hello sent, waiting for Welcome         -> Connected, Backoff
//   Connected   batches, acknowledgements, plans        -> Backoff
//   Backoff     waiting, full jitter, doubling to a cap -> Connecting
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/daemon/batch_store.h"
#include "agent/daemon/outbox.h"
#include "agent/daemon/stream_link.h"
#include "lib/base/clock.h"

namespace weft::agent {

enum class StreamState : std::uint8_t { Inactive, Connecting, Handshake, Connected, Backoff };
std::string_view to_string(StreamState state);

struct StreamOptions {
  wire::Hello hello;                         // first_unacknowledged and wall_ns are filled in for each attempt
  std::size_t max_batch_bytes = 900 * 1024;  // encoded
  Nanos connect_timeout_ns = 5 * kSecond;    // Connecting and Handshake, each
  Nanos backoff_first_ns = 200 * kMillisecond;
  Nanos backoff_cap_ns = 10 * kSecond;
  Nanos backoff_refused_ns = 60 * kSecond;
  Nanos goodbye_wait_ns = 700 * kMillisecond;  // for acknowledgements, before the goodbye goes without them
  Nanos settled_after_ns = 10 * kSecond;       // a session this old forgets earlier failures
};

struct StreamStats {
  std::uint64_t batches_sent = 0;  // first sends, not resends
  std::uint64_t records_sent = 0;  // first sends, not resends
  std::uint64_t records_resent = 0;
  std::uint64_t records_rejected = 0;  // the aggregator could not read them
  std::uint64_t sessions = 0;
  std::uint64_t failures = 0;
};

class StreamSession {
 public:
  struct Callbacks {
    std::function<void()> connected;  // say everything that is state: inventory, traces
    std::function<void(model::ProbePlan)> plan;
  };
  // random gives 0 <= r < 1. outbox, store and clock outlive the session.
  StreamSession(StreamOptions options, LinkFactory links, Outbox& outbox, BatchStore& store, const Clock& clock,
                std::function<double()> random, Callbacks callbacks);

  // Empty: Inactive. A new address drops the running session and connects at once.
  void set_address(const std::string& address);
  void on_event(std::uint64_t attempt, LinkEvent&& event);
  // Deadlines, back-off and new batches. Call it at next_wake_ns() and after pushing to the outbox.
  void tick();
  // Monotonic time of the next deadline; INT64_MAX when there is none.
  Nanos next_wake_ns() const;
  // Sends what waits, then a goodbye, then stops for good. goodbye_done() when nothing is left to wait for. Call tick()
  // until then.
  void begin_goodbye(wire::Goodbye goodbye);
  bool goodbye_done() const { return goodbye_ == Goodbye::Done; }

  StreamState state() const { return state_; }
  const StreamStats& stats() const { return stats_; }
  const std::string& last_failure() const { return last_failure_; }

 private:
  enum class Goodbye : std::uint8_t { None, Wanted, Sent, Done };

  void connect();
  void fail(const std::string& reason);
  void back_off(Nanos longest);
  void pump();
  void on_welcome(const wire::Welcome& welcome);

  StreamOptions options_;
  LinkFactory links_;
  Outbox& outbox_;
  BatchStore& store_;
  const Clock& clock_;
  std::function<double()> random_;
  Callbacks callbacks_;

  std::string address_;
  StreamState state_ = StreamState::Inactive;
  std::unique_ptr<StreamLink> link_;
  std::uint64_t attempt_ = 0;
  Nanos deadline_ns_ = 0;         // of Connecting, Handshake and Backoff
  Nanos connected_since_ns_ = 0;  // of Connected
  unsigned failures_in_row_ = 0;
  Nanos reconnect_hint_ns_ = 0;
  bool write_in_flight_ = false;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t sent_up_to_ = 0;       // in this session
  std::uint64_t ever_sent_up_to_ = 0;  // under this epoch
  Goodbye goodbye_ = Goodbye::None;
  wire::Goodbye goodbye_words_;
  Nanos goodbye_by_ns_ = 0;
  std::string last_failure_, last_refusal_;
  StreamStats stats_;
};

}  // namespace weft::agent
