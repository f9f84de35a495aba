// A prober and a responder joined by a simulated network, in simulated time. The packet clocks of both ends have
// nothing to do with each other nor with the process's clock, so a difference across clocks shows at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "probes/packet/packet.h"
#include "probes/ping/prober.h"
#include "probes/ping/responder.h"
#include "tests/unit/catch.h"
#include "tests/unit/probes/ping/fake_transport.h"

namespace weft::test {

class Simulation {
 public:
  static constexpr std::uint64_t kSession = 77;
  struct Header {
    std::optional<std::uint8_t> tos = 0x02, hop_limit = 62;
  };

  FakeClock clock;
  probes::FabricKey key;
  FakeTransport near, far;
  probes::RejectCounters near_rejects, far_rejects;
  probes::WindowFolder folder{300 * kMillisecond, 700 * kMillisecond};
  std::unique_ptr<probes::Prober> prober;
  std::unique_ptr<probes::Responder> responder;
  std::vector<std::uint64_t> suspected;
  std::vector<probes::ProbeOutcome> outcomes;
  std::vector<Nanos> send_times;
  std::size_t probe_bytes = 0, answer_bytes = 0;

  // The network: change at will.
  Nanos forward_ns = 2 * kMillisecond, back_ns = 3 * kMillisecond;
  Nanos send_done_ns = 100 * kMicrosecond;  // from send to its completion's stamp
  Nanos done_delivery_ns = 0;               // from then until it is polled
  Nanos responder_ns = 400 * kMicrosecond;  // from arrival to answer
  Header forward_header, back_header;
  std::function<bool(const probes::ProbePacket&)> drop = [](const auto&) { return false; };
  std::function<bool(const Sent&)> lose_completion = [](const auto&) { return false; };
  std::function<Nanos(const probes::ProbePacket&)> extra = [](const auto&) { return Nanos{0}; };
  unsigned copies = 1;

  explicit Simulation(probes::ProberOptions options = {}, probes::ResponderOptions answer = {}) {
    near.address = *model::Gid::parse("10.0.1.2");
    far.address = *model::Gid::parse("10.0.3.2");
    near.add_lane(probes::Role::Prober, 17, 50001);
    far.add_lane(probes::Role::Responder, 33, 51001);
    options.name = "h1/rxe0";
    answer.name = "h3/rxe0";
    answer.epoch = 5;
    prober = std::make_unique<probes::Prober>(
        options, key, near, clock, folder, near_rejects, [this](std::uint64_t s) { suspected.push_back(s); }, 1);
    prober->want_outcomes(true);
    restart_responder(answer);
    near.on_send = [this](const Sent& sent) { probe_sent(sent); };
    far.on_send = [this](const Sent& sent) { answer_sent(sent); };
  }

  void restart_responder(probes::ResponderOptions answer) {
    responder = std::make_unique<probes::Responder>(answer, key, far, clock, far_rejects);
  }

  // What the engine does when a hello is answered. Returns that answer.
  probes::HelloPacket hello(std::uint64_t session = kSession) {
    probes::HelloPacket request;
    request.session = session;
    request.gid = near.address;
    request.name = "h1/rxe0";
    const auto answer = responder->register_peer(request, clock.monotonic_ns());
    const bool fresh = !answer.known || last_epoch_ != answer.epoch;
    last_epoch_ = answer.epoch;
    prober->set_responder(session,
                          {answer.gid, answer.name, answer.epoch, answer.two_acks, answer.any_port, answer.lanes},
                          fresh, clock.monotonic_ns());
    return answer;
  }

  void target(double per_second, std::uint16_t forward_port = 0, std::uint16_t return_port = 0) {
    prober->set_target(kSession, {"rxe0", "h3/rxe0", "10.0.3.2", 0, {{forward_port, return_port, per_second}}},
                       clock.monotonic_ns());
    hello();
  }

  void stop() { prober->set_target(kSession, {"rxe0", "h3/rxe0", "10.0.3.2", 0, {}}, clock.monotonic_ns()); }

  // Events and the prober's own deadlines, in order of time.
  void run(Nanos by) {
    const Nanos end = clock.monotonic_ns() + by;
    for (;;) {
      const auto deadline = prober->next_deadline();
      Nanos next = deadline.value_or(INT64_MAX);
      if (!events_.empty()) next = std::min(next, events_.begin()->first);
      if (next > end) break;
      if (next > clock.monotonic_ns()) clock.advance(next - clock.monotonic_ns());
      step();
    }
    clock.advance(end - clock.monotonic_ns());
  }

  // The process does not run; the network does, and what arrived waits.
  void stall(Nanos by) {
    clock.advance(by);
    prober->woke_late(clock.monotonic_ns(), by);
    step();
  }

  void at(Nanos when, std::function<void()> what) { events_.emplace(when, std::move(what)); }

  // All windows added up; closes those that are open.
  model::PathWindow total() {
    folder.close_due(INT64_MAX);
    model::PathWindow sum;
    for (const auto& window : folder.take()) {
      CHECK(window.sent == window.acked + window.lost_unknown + window.forward.lost + window.back.lost);
      add(sum, window);
    }
    return sum;
  }

  static void add(model::PathWindow& sum, const model::PathWindow& one) {
    sum.key = one.key;
    sum.rung = one.rung;
    sum.sent += one.sent;
    sum.acked += one.acked;
    sum.lost_unknown += one.lost_unknown;
    for (const auto direction : {&model::PathWindow::forward, &model::PathWindow::back}) {
      (sum.*direction).lost += (one.*direction).lost;
      (sum.*direction).ecn_capable += (one.*direction).ecn_capable;
      (sum.*direction).ce += (one.*direction).ce;
      (sum.*direction).bleached += (one.*direction).bleached;
      if ((one.*direction).hops) (sum.*direction).hops = (one.*direction).hops;
    }
    sum.acked_without_times += one.acked_without_times;
    sum.late += one.late;
    sum.duplicate += one.duplicate;
    sum.local_error += one.local_error;
    sum.overslept += one.overslept;
    sum.bad_timestamp += one.bad_timestamp;
    sum.stale += one.stale;
    sum.throttled += one.throttled;
    if (one.rtt_min_ns) sum.rtt_min_ns = std::min(sum.rtt_min_ns.value_or(INT64_MAX), *one.rtt_min_ns);
    if (one.rtt_max_ns) sum.rtt_max_ns = std::max(sum.rtt_max_ns.value_or(0), *one.rtt_max_ns);
    if (one.prober_delay_max_ns) sum.prober_delay_max_ns = one.prober_delay_max_ns;
    if (one.responder_delay_max_ns) sum.responder_delay_max_ns = one.responder_delay_max_ns;
  }

  std::size_t count(probes::ProbeResult result) const {
    return static_cast<std::size_t>(
        std::count_if(outcomes.begin(), outcomes.end(), [&](const auto& one) { return one.result == result; }));
  }

  // A packet of the responder as the prober's transport would deliver it now.
  void deliver_to_prober(const std::vector<std::uint8_t>& payload) {
    probes::Arrival arrival;
    arrival.role = probes::Role::Prober;
    arrival.source = {far.address, 33};
    arrival.payload = payload;
    arrival.tos = back_header.tos;
    arrival.hop_limit = back_header.hop_limit;
    arrival.stamp = near_clock();
    arrival.handled_ns = clock.monotonic_ns();
    prober->on_arrival(arrival);
  }

 private:
  probes::Stamp near_clock(Nanos later = 0) const {
    return static_cast<probes::Stamp>(clock.monotonic_ns() + later + 777'777 * kSecond) & near.stamp_mask;
  }
  probes::Stamp far_clock(Nanos later = 0) const {
    return static_cast<probes::Stamp>(clock.monotonic_ns() + later - 555 * kSecond) & far.stamp_mask;
  }

  void step() {
    const Nanos now = clock.monotonic_ns();
    while (!events_.empty() && events_.begin()->first <= now) {
      auto what = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      what();
    }
    prober->expire(now);
    prober->send_due(now);
    folder.close_due(now);
    for (auto& outcome : prober->take_outcomes()) outcomes.push_back(std::move(outcome));
  }

  void probe_sent(const Sent& sent) {
    const Nanos now = clock.monotonic_ns();
    send_times.push_back(now);
    probe_bytes += sent.payload.size();
    const auto probe = probes::parse_probe(sent.payload, key);
    REQUIRE(probe);
    if (!lose_completion(sent)) {
      const probes::Stamp t2 = near_clock(send_done_ns);
      at(now + send_done_ns + done_delivery_ns, [this, sent, t2] {
        prober->on_send_done({probes::Role::Prober, sent.cookie, true, t2, {}});
      });
    }
    if (drop(*probe)) return;
    const Nanos arrives = send_done_ns + forward_ns + extra(*probe);
    const probes::Stamp t3 = far_clock(arrives);
    at(now + arrives + responder_ns, [this, sent, t3] {
      probes::Arrival arrival;
      arrival.role = probes::Role::Responder;
      arrival.local_number = sent.to.number;
      arrival.source = {near.address, sent.lane_number};
      arrival.payload = sent.payload;
      arrival.tos = forward_header.tos;
      arrival.hop_limit = forward_header.hop_limit;
      arrival.stamp = t3;
      arrival.handled_ns = clock.monotonic_ns();
      responder->on_arrival(arrival);
    });
  }

  void answer_sent(const Sent& sent) {
    const Nanos now = clock.monotonic_ns();
    answer_bytes += sent.payload.size();
    const auto ack = probes::parse_probe(sent.payload, key);
    REQUIRE(ack);
    const probes::Stamp t4 = far_clock();
    at(now, [this, sent, t4] { responder->on_send_done({probes::Role::Responder, sent.cookie, true, t4, {}}); });
    if (drop(*ack)) return;
    for (unsigned copy = 0; copy < copies; ++copy) {
      at(now + back_ns + extra(*ack), [this, sent] { deliver_to_prober(sent.payload); });
    }
  }

  std::multimap<Nanos, std::function<void()>> events_;
  std::uint64_t last_epoch_ = 0;
};

}  // namespace weft::test
