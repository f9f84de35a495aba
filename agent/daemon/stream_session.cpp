#include "agent/daemon/stream_session.h"

#include <algorithm>
#include <limits>

#include "lib/base/log.h"

namespace weft::agent {
namespace {

constexpr Nanos kNever = std::numeric_limits<Nanos>::max();
// The aggregator may spread agents over time after its restart, but not park them for long.
constexpr Nanos kMaxReconnectHint = 60 * kSecond;

}  // namespace

std::string_view to_string(StreamState state) {
  switch (state) {
    case StreamState::Inactive:
      return "inactive";
    case StreamState::Connecting:
      return "connecting";
    case StreamState::Handshake:
      return "handshake";
    case StreamState::Connected:
      return "connected";
    case StreamState::Backoff:
      return "backoff";
  }
  return "inactive";
}

StreamSession::StreamSession(StreamOptions options, LinkFactory links, Outbox& outbox, BatchStore& store,
                             const Clock& clock, std::function<double()> random, Callbacks callbacks)
    : options_(std::move(options)),
      links_(std::move(links)),
      outbox_(outbox),
      store_(store),
      clock_(clock),
      random_(std::move(random)),
      callbacks_(std::move(callbacks)) {}

void StreamSession::set_address(const std::string& address) {
  if (address == address_) return;
  address_ = address;
  link_.reset();
  failures_in_row_ = 0;
  reconnect_hint_ns_ = 0;
  state_ = StreamState::Inactive;
  if (!address_.empty() && goodbye_ == Goodbye::None) connect();
}

void StreamSession::connect() {
  wire::Hello hello = options_.hello;
  hello.wall_ns = clock_.wall_ns();
  const std::uint64_t first = store_.first_sequence();
  hello.first_unacknowledged = first != 0 ? first : next_sequence_;
  state_ = StreamState::Connecting;
  deadline_ns_ = clock_.monotonic_ns() + options_.connect_timeout_ns;
  write_in_flight_ = false;
  sent_up_to_ = 0;
  link_ = links_(++attempt_);
  link_->open(address_, hello);
}

void StreamSession::fail(const std::string& reason) {
  const bool was_connected = state_ == StreamState::Connected;
  const bool settled = was_connected && clock_.monotonic_ns() - connected_since_ns_ >= options_.settled_after_ns;
  link_.reset();
  write_in_flight_ = false;
  ++stats_.failures;
  if (goodbye_ != Goodbye::None) {
    // Stopping: the aggregator will learn from the silence what the goodbye would have told it.
    goodbye_ = Goodbye::Done;
    state_ = StreamState::Inactive;
    return;
  }
  if (settled) failures_in_row_ = 0;
  // One line when it breaks and one when it is whole again; the tries between are only at debug level.
  if (was_connected || last_failure_.empty()) {
    log::warning("stream", "not connected to the aggregator; probing goes on, records wait",
                 {{"aggregator", address_}, {"reason", reason}});
  } else {
    log::debug("stream", "attempt failed", {{"aggregator", address_}, {"reason", reason}});
  }
  last_failure_ = reason;
  const double doubled =
      static_cast<double>(options_.backoff_first_ns) * static_cast<double>(1ull << std::min(failures_in_row_, 30u));
  Nanos longest = static_cast<Nanos>(std::min(doubled, static_cast<double>(options_.backoff_cap_ns)));
  if (was_connected) longest = std::max(longest, std::min(reconnect_hint_ns_, kMaxReconnectHint));
  ++failures_in_row_;
  back_off(longest);
}

void StreamSession::back_off(Nanos longest) {
  state_ = StreamState::Backoff;
  deadline_ns_ = clock_.monotonic_ns() + static_cast<Nanos>(random_() * static_cast<double>(longest));
}

void StreamSession::on_welcome(const wire::Welcome& welcome) {
  if (!welcome.refused.empty()) {
    link_.reset();
    ++stats_.failures;
    last_failure_ = "refused: " + welcome.refused;
    if (welcome.refused != last_refusal_) {
      last_refusal_ = welcome.refused;
      log::error("stream", "the aggregator refuses this agent",
                 {{"aggregator", address_}, {"reason", welcome.refused.substr(0, 256)}});
    }
    if (goodbye_ != Goodbye::None) {
      goodbye_ = Goodbye::Done;
      state_ = StreamState::Inactive;
      return;
    }
    // Not soon, and not all refused agents at the same moment.
    back_off(options_.backoff_refused_ns / 2);
    deadline_ns_ += options_.backoff_refused_ns / 2;
    return;
  }
  store_.acknowledge(welcome.last_stored);
  // Only after a collision of epochs: numbers the aggregator has seen from someone must not be used again.
  next_sequence_ = std::max(next_sequence_, welcome.last_stored + 1);
  ever_sent_up_to_ = std::max(ever_sent_up_to_, welcome.last_stored);
  reconnect_hint_ns_ = std::max<Nanos>(welcome.reconnect_after_ns, 0);
  last_refusal_.clear();
  last_failure_.clear();
  state_ = StreamState::Connected;
  connected_since_ns_ = clock_.monotonic_ns();
  ++stats_.sessions;
  log::info("stream", "connected", {{"aggregator", address_}, {"last_stored", welcome.last_stored}});
  if (callbacks_.connected) callbacks_.connected();
  pump();
}

void StreamSession::on_event(std::uint64_t attempt, LinkEvent&& event) {
  if (attempt != attempt_ || link_ == nullptr) return;
  if (std::get_if<LinkOpened>(&event) != nullptr) {
    if (state_ != StreamState::Connecting) return;
    state_ = StreamState::Handshake;
    deadline_ns_ = clock_.monotonic_ns() + options_.connect_timeout_ns;
  } else if (const auto* welcome = std::get_if<wire::Welcome>(&event)) {
    if (state_ == StreamState::Connecting || state_ == StreamState::Handshake) {
      on_welcome(*welcome);
    } else {
      fail("the aggregator sent a second Welcome");
    }
  } else if (const auto* ack = std::get_if<wire::Ack>(&event)) {
    if (state_ != StreamState::Connected) return;
    if (ack->sequence > ever_sent_up_to_) {
      // It does not know what it stored, so what it says of the batches below is not believed either. The next Welcome
      // tells where it stands: what it lacks goes again from there, what it has it ignores.
      fail("the aggregator acknowledged batch " + std::to_string(ack->sequence) + ", the last one sent is " +
           std::to_string(ever_sent_up_to_));
      return;
    }
    stats_.records_rejected += ack->rejected_records;
    store_.acknowledge(std::min(ack->sequence, sent_up_to_));
    pump();
  } else if (auto* plan = std::get_if<model::ProbePlan>(&event)) {
    if (state_ == StreamState::Connected && callbacks_.plan) callbacks_.plan(std::move(*plan));
  } else if (std::get_if<LinkWritten>(&event) != nullptr) {
    write_in_flight_ = false;
    pump();
  } else if (const auto* closed = std::get_if<LinkClosed>(&event)) {
    fail(closed->reason);
  }
}

void StreamSession::pump() {
  if (state_ != StreamState::Connected || write_in_flight_) return;
  if (goodbye_ == Goodbye::Sent || goodbye_ == Goodbye::Done) return;  // our side is closed
  const wire::Batch* next = store_.next_after(sent_up_to_);
  if (next == nullptr && store_.has_room() && !outbox_.empty()) {
    wire::BatchBuilder builder(options_.max_batch_bytes);
    outbox_.take(builder);
    if (!builder.empty()) {
      wire::Batch batch = builder.take(next_sequence_++, clock_.wall_ns());
      store_.add(std::move(batch));
      next = store_.next_after(sent_up_to_);
    }
  }
  if (next != nullptr) {
    const bool again = next->sequence <= ever_sent_up_to_;
    if (!again) ++stats_.batches_sent;
    (again ? stats_.records_resent : stats_.records_sent) += next->records.size();
    sent_up_to_ = next->sequence;
    ever_sent_up_to_ = std::max(ever_sent_up_to_, sent_up_to_);
    write_in_flight_ = true;
    link_->send(*next);
    return;
  }
  // The stream ends with the goodbye; what is not stored by then would be lost with this process.
  const bool stored = store_.first_sequence() == 0;
  if (goodbye_ == Goodbye::Wanted && (stored || clock_.monotonic_ns() >= goodbye_by_ns_)) {
    goodbye_ = Goodbye::Sent;
    write_in_flight_ = true;
    link_->send_goodbye(goodbye_words_);
  }
}

void StreamSession::tick() {
  const Nanos now = clock_.monotonic_ns();
  switch (state_) {
    case StreamState::Inactive:
      return;
    case StreamState::Connecting:
      if (now >= deadline_ns_) fail("no connection within the deadline");
      return;
    case StreamState::Handshake:
      if (now >= deadline_ns_) fail("no Welcome within the deadline");
      return;
    case StreamState::Connected:
      pump();
      return;
    case StreamState::Backoff:
      if (now >= deadline_ns_) connect();
      return;
  }
}

Nanos StreamSession::next_wake_ns() const {
  return state_ == StreamState::Inactive || state_ == StreamState::Connected ? kNever : deadline_ns_;
}

void StreamSession::begin_goodbye(wire::Goodbye goodbye) {
  if (goodbye_ != Goodbye::None) return;
  goodbye_words_ = std::move(goodbye);
  if (state_ == StreamState::Inactive || state_ == StreamState::Backoff) {
    goodbye_ = Goodbye::Done;
    state_ = StreamState::Inactive;
    link_.reset();
    return;
  }
  goodbye_ = Goodbye::Wanted;
  goodbye_by_ns_ = clock_.monotonic_ns() + options_.goodbye_wait_ns;
  pump();
}

}  // namespace weft::agent
