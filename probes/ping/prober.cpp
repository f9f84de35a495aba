#include "probes/ping/prober.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace weft::probes {
namespace {

constexpr std::uint8_t kEct0 = 0x02;
constexpr unsigned kTimeoutsUntilSuspect = 3;
constexpr unsigned kNotSentUntilTold = 5;
constexpr Nanos kSilenceUntilSuspect = kSecond;
constexpr Nanos kRememberNs = 10 * kSecond;     // after the timeout: how late a late answer may be
constexpr std::size_t kMaxRecords = 8192;       // of one session
constexpr std::size_t kMaxInFlight = 16384;     // of all
constexpr std::size_t kMaxOutcomes = 65536;     // waiting to be taken
constexpr std::size_t kWireOverheadBytes = 86;  // preamble to frame check of a RoCEv2/IPv4 UD packet
constexpr unsigned kCookieSequenceBits = 40;
// The link share bounds the mean; a single packet must always fit in the bucket of a slow link.
constexpr double kLeastByteBurst = 2 * kMaxProbeBytes;

// How far below zero a round trip may come out by the clock's own error. NIC: facts of its resolution; kernel: a
// transmit stamp is taken by the driver, the receive stamp by the stack; software: by when the process polled.
Nanos tolerance(model::TimestampRung rung) {
  switch (rung) {
    case model::TimestampRung::NicWallClock:
    case model::TimestampRung::NicTicks:
      return 5 * kMicrosecond;
    case model::TimestampRung::KernelSoftware:
      return 200 * kMicrosecond;
    case model::TimestampRung::Software:
      return kMillisecond;
  }
  return 0;
}

double packet_burst(double rate) { return std::max(4.0, rate / 10); }
double byte_rate(const ProberOptions& options) {
  if (!options.rate_bits_per_s) return 1e18;
  return static_cast<double>(*options.rate_bits_per_s) * options.max_link_share / 8;
}

}  // namespace

Prober::Prober(ProberOptions options, const FabricKey& key, Transport& transport, const Clock& clock,
               WindowFolder& folder, RejectCounters& rejects, Suspect suspect, std::uint64_t seed)
    : options_(std::move(options)),
      key_(key),
      transport_(transport),
      clock_(clock),
      folder_(folder),
      rejects_(rejects),
      suspect_(std::move(suspect)),
      pacer_(seed),
      packets_(options_.max_probes_per_s, packet_burst(options_.max_probes_per_s)),
      bytes_(byte_rate(options_), std::max(kLeastByteBurst, byte_rate(options_) / 10)) {
  refresh_ports();
}

Prober::Record* Prober::Session::record(std::uint64_t sequence) {
  if (sequence < first_sequence || sequence >= next_sequence()) return nullptr;
  return &records[sequence - first_sequence];
}

Prober::Session* Prober::find(std::uint64_t id) {
  const auto at = sessions_.find(id);
  return at == sessions_.end() ? nullptr : at->second.get();
}

model::PathKey Prober::key_of(const Session& session, const Record& record) const {
  return {options_.name, session.to, record.forward_port, record.return_port};
}

void Prober::refresh_ports() {
  own_ports_ = transport_.source_ports(Role::Prober);
  own_lanes_.clear();
  for (const LaneInfo& lane : transport_.lanes()) {
    if (lane.role == Role::Prober) own_lanes_.push_back(lane);
  }
  folder_.set_rung(transport_.rung());
}

void Prober::set_target(std::uint64_t id, const model::PlanTarget& target, Nanos now) {
  auto& slot = sessions_[id];
  if (!slot) {
    slot = std::make_unique<Session>();
    slot->id = id;
    slot->index = ++last_index_;
    slot->last_ack_ns = now;
    by_index_[slot->index] = slot.get();
  }
  Session& session = *slot;
  session.to = target.to;
  for (std::size_t i = target.paths.size(); i < session.paths.size(); ++i) {
    pacer_.remove(static_cast<std::uint64_t>(session.index) << 32 | i);
  }
  session.paths.resize(target.paths.size());
  for (std::size_t i = 0; i < target.paths.size(); ++i) session.paths[i].plan = target.paths[i];
  if (session.info) pace(session, now);
}

void Prober::pace(Session& session, Nanos now) {
  for (std::size_t i = 0; i < session.paths.size(); ++i) {
    pacer_.set(static_cast<std::uint64_t>(session.index) << 32 | i, session.paths[i].plan.probes_per_s, now);
  }
}

void Prober::remove(std::uint64_t id) {
  Session* session = find(id);
  if (session == nullptr) return;
  for (std::size_t i = 0; i < session->paths.size(); ++i) {
    pacer_.remove(static_cast<std::uint64_t>(session->index) << 32 | i);
  }
  by_index_.erase(session->index);
  sessions_.erase(id);
}

void Prober::set_responder(std::uint64_t id, const ResponderInfo& info, bool fresh, Nanos now) {
  Session* session = find(id);
  if (session == nullptr) return;
  if (fresh) {
    // Nobody was there to answer what came after the last answered probe, so its end says nothing about the network.
    for (std::uint64_t s = std::max(session->first_sequence, session->last_acked + 1); s < session->next_sequence();
         ++s) {
      Record& record = *session->record(s);
      if (record.state == State::Pending) record.stale = true;
      if (record.state == State::TimedOut && record.counted) set_loss(*session, record, Loss::Stale);
    }
    session->attribute_from = session->next_sequence();
    session->timeouts_in_a_row = 0;
    session->last_ack_ns = now;
  }
  if (info.lanes.empty()) {
    session->info.reset();
    for (std::size_t i = 0; i < session->paths.size(); ++i) {
      pacer_.remove(static_cast<std::uint64_t>(session->index) << 32 | i);
    }
    return;
  }
  session->info = info;
  pace(*session, now);
}

std::size_t Prober::probe_bytes(const ResponderInfo& info) const {
  return std::max(info.two_acks ? 2 * kProbeBytes : kProbeBytes, std::min(options_.payload_bytes, kMaxProbeBytes));
}

bool Prober::within_budget(std::size_t bytes, Nanos now) {
  const auto cost = static_cast<double>(bytes + kWireOverheadBytes);
  if (bytes_.wait_ns(now, cost) > 0 || !packets_.take(now)) return false;
  return bytes_.take(now, cost);
}

void Prober::forget_old(Session& session, Nanos now) {
  auto& records = session.records;
  while (!records.empty() &&
         (records.size() >= kMaxRecords || (records.front().state != State::Pending &&
                                            now - records.front().t1_ns > options_.timeout_ns + kRememberNs))) {
    records.pop_front();
    ++session.first_sequence;
  }
}

void Prober::send_due(Nanos now) {
  while (const auto due = pacer_.pop(now)) {
    const auto at = by_index_.find(static_cast<std::uint32_t>(due->id >> 32));
    if (at == by_index_.end() || !at->second->info) continue;
    // After a pause every path is due at once, none of these probes could accuse anybody, and the burst would take what
    // little CPU there is.
    if (options_.skip_late_ns > 0 && due->late_ns > options_.skip_late_ns) {
      ++stats_.throttled;
      continue;
    }
    const auto path = static_cast<std::size_t>(due->id & 0xffffffff);
    if (path < at->second->paths.size()) {
      send_one(*at->second, at->second->paths[path], clock_.monotonic_ns(), due->late_ns);
    }
  }
}

void Prober::send_one(Session& session, PathState& path, Nanos now, Nanos late_ns) {
  forget_old(session, now);
  const bool udp = transport_.name() == "udp";
  const ChosenPorts ports = choose_ports(path.plan, path.turn++, own_ports_, own_lanes_, *session.info, udp);
  const std::size_t bytes = probe_bytes(*session.info);
  const std::uint64_t sequence = session.next_sequence();
  Record fresh;
  fresh.forward_port = ports.forward;
  fresh.return_port = ports.back;
  fresh.epoch = session.info->epoch;
  fresh.t1_ns = now;
  fresh.tainted = late_ns > options_.overslept_ns;
  fresh.deaf = is_deaf(late_ns);
  if (ports.error.empty() && (in_flight_.size() >= kMaxInFlight || !within_budget(bytes, now))) {
    ++stats_.throttled;
    folder_.aside(key_of(session, fresh), fresh.epoch, now, Aside::Throttled);
    return;
  }
  // Before the send: the acknowledgement may come before send() returns (rpingmesh PR 29).
  session.records.push_back(fresh);
  Record& record = session.records.back();
  if (!ports.error.empty()) return local_error(session, sequence, record, now, ports.error);
  in_flight_.push_back({session.id, sequence, now + options_.timeout_ns});

  ProbePacket probe;
  probe.session = session.id;
  probe.sequence = sequence;
  probe.epoch = session.info->epoch;
  probe.prober_number = ports.prober_number;
  probe.responder_number = ports.responder_number;
  probe.forward_port = ports.forward;
  probe.return_port = ports.back;
  probe.traffic_class = options_.traffic_class;
  std::array<std::uint8_t, kMaxProbeBytes> buffer;
  const std::size_t size = encode(probe, bytes, key_, buffer);
  const std::uint64_t cookie = static_cast<std::uint64_t>(session.index) << kCookieSequenceBits | sequence;
  const auto sent = transport_.send(
      Role::Prober, ports.prober_number, ports.forward, {session.info->gid, ports.responder_number},
      static_cast<std::uint8_t>((options_.traffic_class & ~3U) | kEct0), std::span(buffer).first(size), cookie);
  if (sent) {
    ++stats_.sent;
  } else {
    if (sent.error().error_number == EMSGSIZE) excuse_oversize(session);
    local_error(session, sequence, record, now, sent.error().message());
  }
}

void Prober::excuse_oversize(Session& session) {
  // Answered once, packets of this size do pass; only what came after may be in doubt.
  for (std::uint64_t s = std::max(session.first_sequence, session.last_acked + 1); s < session.next_sequence(); ++s) {
    Record& record = *session.record(s);
    if (record.state == State::Pending) record.oversize = true;
    if (record.state == State::TimedOut && record.counted) set_loss(session, record, Loss::Stale);
  }
}

void Prober::local_error(Session& session, std::uint64_t sequence, Record& record, Nanos now,
                         const std::string& error) {
  record.state = State::NotSent;
  ++stats_.local_errors;
  if (session.not_sent_in_a_row++ == 0) session.send_error = error;
  folder_.aside(key_of(session, record), record.epoch, now, Aside::LocalError);
  report(session, sequence, record, ProbeResult::LocalError, error);
}

void Prober::on_send_done(const SendDone& done) {
  const auto at = by_index_.find(static_cast<std::uint32_t>(done.cookie >> kCookieSequenceBits));
  if (at == by_index_.end()) return;
  Session& session = *at->second;
  const std::uint64_t sequence = done.cookie & ((std::uint64_t{1} << kCookieSequenceBits) - 1);
  Record* record = session.record(sequence);
  if (record == nullptr || record->send_done) return;
  record->send_done = true;
  record->t2 = done.stamp;
  if (record->state != State::Pending) return;
  const Nanos now = clock_.monotonic_ns();
  if (done.ok) {
    finish_if_complete(session, sequence, *record, now);
  } else if (!record->first_ack) {
    local_error(session, sequence, *record, now, done.error);
  }
}

void Prober::on_arrival(const Arrival& arrival) {
  const auto ack = parse_probe(arrival.payload, key_);
  if (!ack) return rejects_.count(ack.error());
  if (ack->type == PacketType::Probe) return rejects_.count(Reject::NotForUs);
  Session* session = find(ack->session);
  if (session == nullptr) return rejects_.count(Reject::UnknownSession);
  Record* record = session->record(ack->sequence);
  if (record == nullptr || record->state == State::NotSent || ack->forward_port != record->forward_port ||
      ack->return_port != record->return_port) {
    return rejects_.count(Reject::UnknownSequence);
  }
  if (ack->epoch != record->epoch) return rejects_.count(Reject::StaleEpoch);
  take_ack(*session, *record, *ack, arrival);
}

void Prober::take_ack(Session& session, Record& record, const ProbePacket& ack, const Arrival& arrival) {
  const Nanos now = arrival.handled_ns;
  const bool second = ack.type == PacketType::Ack2;
  const bool repeated = second ? record.delay_ns.has_value() : record.first_ack;
  if (repeated) {
    folder_.aside(key_of(session, record), record.epoch, now, Aside::Duplicate);
    report(session, ack.sequence, record, ProbeResult::Duplicate);
    return;
  }
  record.seen = Seen::Yes;
  session.last_acked = std::max(session.last_acked, ack.sequence);
  session.last_ack_ns = now;
  session.timeouts_in_a_row = 0;
  session.not_sent_in_a_row = 0;
  learn_received(session, ack);
  if (ack.responder_delay_ns && *ack.responder_delay_ns < static_cast<std::uint64_t>(INT64_MAX)) {
    record.delay_ns = static_cast<Nanos>(*ack.responder_delay_ns);
  }
  if (!second) {
    record.first_ack = true;
    record.second_follows = ack.second_follows;
    record.t5 = arrival.stamp;
    record.t6_ns = arrival.handled_ns;
    record.forward_tos = ack.tos;
    record.forward_hop_limit = ack.hop_limit;
    record.back_tos = arrival.tos;
    record.back_hop_limit = arrival.hop_limit;
  }
  if (record.state == State::Pending) {
    finish_if_complete(session, ack.sequence, record, now);
  } else if (record.state == State::TimedOut && !record.late_ack) {
    record.late_ack = true;
    // It was lost nowhere; it stays counted, without a direction.
    if (record.counted && record.loss != Loss::Stale) set_loss(session, record, Loss::Unknown);
    folder_.aside(key_of(session, record), record.epoch, now, Aside::Late);
    report(session, ack.sequence, record, ProbeResult::Late);
  }
}

void Prober::set_loss(Session& session, Record& record, Loss loss) {
  if (record.loss == loss) return;
  record.counted = folder_.move(key_of(session, record), record.window, record.loss, loss);
  record.loss = loss;
}

void Prober::learn_received(Session& session, const ProbePacket& ack) {
  const ReceiveState& received = ack.received;
  const std::uint64_t oldest = received.highest >= kReceivedMapBits ? received.highest - kReceivedMapBits + 1 : 1;
  const std::uint64_t end = std::min(received.highest + 1, session.next_sequence());
  session.learned_to = std::max({session.learned_to, oldest, session.first_sequence, session.attribute_from});
  for (std::uint64_t s = session.learned_to; s < end; ++s) {
    Record& record = *session.record(s);
    if (record.seen == Seen::Yes || record.state == State::Acked || record.state == State::NotSent) {
      if (s == session.learned_to) ++session.learned_to;
      continue;
    }
    record.seen = received.has(s) ? Seen::Yes : Seen::No;
    if (record.state != State::TimedOut || !record.counted || record.late_ack || record.loss == Loss::Stale) continue;
    set_loss(session, record, record.seen == Seen::Yes ? Loss::Back : Loss::Forward);
  }
}

void Prober::finish_if_complete(Session& session, std::uint64_t sequence, Record& record, Nanos now) {
  if (!record.first_ack) return;
  const bool no_times_come = !record.delay_ns && !record.second_follows;
  if (no_times_come || (record.delay_ns && record.send_done)) finish_acked(session, sequence, record, now);
}

// A round trip is as good as the worse of its two brackets, and the responder's comes in one acknowledgement when
// software took it.
model::TimestampRung Prober::rung_of(const Session& session) const {
  const model::TimestampRung own = transport_.rung();
  if (!session.info || session.info->two_acks) return own;
  return std::max(own,
                  transport_.name() == "udp" ? model::TimestampRung::KernelSoftware : model::TimestampRung::Software);
}

Prober::Times Prober::times_of(const Session& session, const Record& record) const {
  Times times;
  if (!record.first_ack || !record.send_done || !record.delay_ns) return times;
  const Nanos away = transport_.elapsed_ns(record.t2, record.t5);
  const Nanos rtt = away - *record.delay_ns;
  if (rtt < -tolerance(rung_of(session))) return times;
  times.valid = true;
  times.rtt_ns = std::max<Nanos>(rtt, 0);  // at or below the clock's resolution
  times.prober_delay_ns = std::max<Nanos>(record.t6_ns - record.t1_ns - away, 0);
  return times;
}

void Prober::finish_acked(Session& session, std::uint64_t sequence, Record& record, Nanos now) {
  record.state = State::Acked;
  ++stats_.acked;
  const auto key = key_of(session, record);
  // Where this process takes the stamps, its own lateness is inside them.
  const bool untimed = record.tainted && transport_.rung() == model::TimestampRung::Software;
  if (untimed && record.deaf) {
    folder_.aside(key, record.epoch, now, Aside::Overslept);
    report(session, sequence, record, ProbeResult::Overslept);
    return;
  }
  AckFacts facts;
  facts.rung = rung_of(session);
  facts.forward_tos = record.forward_tos;
  facts.forward_hop_limit = record.forward_hop_limit;
  facts.back_tos = record.back_tos;
  facts.back_hop_limit = record.back_hop_limit;
  facts.responder_delay_ns = record.delay_ns;
  const Times times = untimed ? Times{} : times_of(session, record);
  ProbeResult result = ProbeResult::Ok;
  if (times.valid && times.rtt_ns <= options_.timeout_ns) {
    facts.rtt_ns = times.rtt_ns;
    facts.prober_delay_ns = times.prober_delay_ns;
  } else if (!untimed && record.first_ack && record.send_done && record.delay_ns) {
    result = ProbeResult::BadTimestamp;
    facts.bad_timestamp = true;
    facts.responder_delay_ns.reset();
  } else {
    result = ProbeResult::AckWithoutTimes;
    facts.without_times = true;
  }
  record.without_times = facts.without_times;
  record.window = folder_.acked(key, record.epoch, now, facts);
  record.counted = true;
  if (record.deaf) uncount_acked(session, record);
  report(session, sequence, record, result);
}

bool Prober::is_deaf(Nanos late_ns) const {
  return late_ns >= std::min(options_.deaf_ns, std::max(options_.timeout_ns / 2, options_.overslept_ns));
}

void Prober::uncount_acked(const Session& session, Record& record) {
  if (!std::exchange(record.counted, false)) return;
  folder_.uncount_acked(key_of(session, record), record.window, record.without_times);
}

void Prober::woke_late(Nanos now, Nanos late_ns) {
  const bool deaf = is_deaf(late_ns);
  for (const InFlight& entry : in_flight_) {
    Session* session = find(entry.session);
    Record* record = session == nullptr ? nullptr : session->record(entry.sequence);
    if (record == nullptr) continue;
    record->tainted = true;
    record->deaf |= deaf;
  }
  if (!deaf) return;
  // Of the same time as the oldest that were still in flight when the pause began.
  const Nanos since = now - late_ns - options_.timeout_ns;
  for (const auto& [id, session] : sessions_) {
    auto& records = session->records;
    for (auto record = records.rbegin(); record != records.rend() && record->t1_ns > since; ++record) {
      if (record->state == State::Acked) uncount_acked(*session, *record);
    }
  }
}

void Prober::expire(Nanos now) {
  while (!in_flight_.empty()) {
    const InFlight entry = in_flight_.front();
    Session* session = find(entry.session);
    Record* record = session == nullptr ? nullptr : session->record(entry.sequence);
    const bool pending = record != nullptr && record->state == State::Pending;
    if (pending && entry.deadline_ns > now) return;
    in_flight_.pop_front();
    if (pending) time_out(*session, entry.sequence, *record, now);
  }
}

void Prober::time_out(Session& session, std::uint64_t sequence, Record& record, Nanos now) {
  // One of two acknowledgements, or no send completion: the path is alive, the times are unknown.
  if (record.first_ack || record.delay_ns) return finish_acked(session, sequence, record, now);
  if (!record.send_done) {
    return local_error(session, sequence, record, now,
                       "no send completion within " + std::to_string(options_.timeout_ns / kMillisecond) + " ms");
  }
  if (record.oversize) {
    return local_error(session, sequence, record, now, "dropped on its way: more than the path MTU, learned since");
  }
  record.state = State::TimedOut;
  session.not_sent_in_a_row = 0;
  const auto key = key_of(session, record);
  if (record.deaf) {
    folder_.aside(key, record.epoch, now, Aside::Overslept);
    report(session, sequence, record, ProbeResult::Overslept);
    return;
  }
  record.loss = record.stale               ? Loss::Stale
                : record.seen == Seen::Yes ? Loss::Back
                : record.seen == Seen::No  ? Loss::Forward
                                           : Loss::Unknown;
  record.counted = true;
  record.window = folder_.lost(key, record.epoch, now, record.loss);
  report(session, sequence, record, record.stale ? ProbeResult::Stale : ProbeResult::Timeout);
  if (record.stale) return;
  ++session.timeouts_in_a_row;
  if (session.timeouts_in_a_row >= kTimeoutsUntilSuspect || now - session.last_ack_ns > kSilenceUntilSuspect) {
    suspect_(session.id);
  }
}

std::optional<Nanos> Prober::next_deadline() {
  // Entries at the front that ended already would only wake us for nothing.
  while (!in_flight_.empty()) {
    Session* session = find(in_flight_.front().session);
    const Record* record = session == nullptr ? nullptr : session->record(in_flight_.front().sequence);
    if (record != nullptr && record->state == State::Pending) break;
    in_flight_.pop_front();
  }
  std::optional<Nanos> next = pacer_.next_due();
  if (!in_flight_.empty() && (!next || *next > in_flight_.front().deadline_ns)) next = in_flight_.front().deadline_ns;
  return next;
}

std::map<std::string, std::string> Prober::send_errors() const {
  std::map<std::string, std::string> errors;
  for (const auto& [id, session] : sessions_) {
    if (session->not_sent_in_a_row >= kNotSentUntilTold) errors[session->to] = session->send_error;
  }
  return errors;
}

std::size_t Prober::remembered() const {
  std::size_t count = 0;
  for (const auto& [id, session] : sessions_) count += session->records.size();
  return count;
}

void Prober::report(const Session& session, std::uint64_t sequence, const Record& record, ProbeResult result,
                    const std::string& error) {
  if (!want_outcomes_ || outcomes_.size() >= kMaxOutcomes) return;
  ProbeOutcome outcome;
  outcome.key = key_of(session, record);
  outcome.sequence = sequence;
  outcome.result = result;
  outcome.error = error;
  outcome.responder_delay_ns = record.delay_ns;
  outcome.forward_tos = record.forward_tos;
  outcome.forward_hop_limit = record.forward_hop_limit;
  outcome.back_tos = record.back_tos;
  outcome.back_hop_limit = record.back_hop_limit;
  if (result == ProbeResult::Ok || result == ProbeResult::Late) {
    const Times times = times_of(session, record);
    if (times.valid) {
      outcome.rtt_ns = times.rtt_ns;
      outcome.prober_delay_ns = times.prober_delay_ns;
    }
  }
  if (result == ProbeResult::Timeout && record.seen != Seen::Unknown) outcome.reached = record.seen == Seen::Yes;
  outcomes_.push_back(std::move(outcome));
}

}  // namespace weft::probes
