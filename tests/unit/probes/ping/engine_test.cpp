// Two engines over real sockets on the loopback. Waits are for events, with generous deadlines.
#include "probes/ping/engine.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "probes/packet/packet.h"
#include "probes/ping/hello_socket.h"
#include "probes/ping/udp_transport.h"
#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

namespace {

constexpr Nanos kPatience = 20 * kSecond;
const SystemClock kClock;

// Collects outcomes and lets the test wait for a condition over them.
class Outcomes {
 public:
  void add(const ProbeOutcome& outcome) {
    {
      std::lock_guard lock(mutex_);
      list_.push_back(outcome);
    }
    changed_.notify_all();
  }
  template <typename Condition>
  bool wait(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::nanoseconds(kPatience), [&] { return condition(list_); });
  }
  std::size_t count(ProbeResult result) {
    std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(
        std::count_if(list_.begin(), list_.end(), [&](const auto& one) { return one.result == result; }));
  }
  std::vector<ProbeOutcome> list() {
    std::lock_guard lock(mutex_);
    return list_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ProbeOutcome> list_;
};

struct Node {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<Outcomes> outcomes = std::make_shared<Outcomes>();
};

EngineOptions options_of(const std::string& host, std::uint16_t hello_port) {
  EngineOptions options;
  options.host = host;
  options.device = "lo";
  options.hello_port = hello_port;
  return options;
}

Node start(const std::string& address, EngineOptions options, UdpTransportOptions udp = {},
           const Clock& clock = kClock) {
  udp.local = *model::Gid::parse(address);
  auto transport = open_udp_transport(udp, clock);
  REQUIRE(transport);
  auto engine = Engine::start(std::move(options), std::move(*transport), clock);
  if (!engine) FAIL(engine.error().message());
  Node node;
  node.engine = std::move(*engine);
  node.engine->on_outcome([outcomes = node.outcomes](const ProbeOutcome& one) { outcomes->add(one); });
  return node;
}

std::vector<std::string> names_of(const std::vector<RegisteredPeer>& peers) {
  std::vector<std::string> out;
  for (const RegisteredPeer& peer : peers) out.push_back(peer.name + " " + peer.address);
  return out;
}

// Any free port, found by the kernel.
std::uint16_t free_port(const std::string& address) {
  const auto socket = HelloSocket::open(*model::Gid::parse(address), 0);
  REQUIRE(socket);
  return socket->port();
}

model::PlanTarget target_of(const Node& node, const std::string& to, double per_second) {
  const auto endpoint = node.engine->endpoint();
  return {"lo", to, endpoint.address, endpoint.hello_port, {{0, 0, per_second}}};
}

auto acked(std::size_t count) {
  return [count](const std::vector<ProbeOutcome>& list) {
    return static_cast<std::size_t>(std::count_if(
               list.begin(), list.end(), [](const auto& one) { return one.result == ProbeResult::Ok; })) >= count;
  };
}

template <typename Condition>
bool poll_until(const Condition& condition) {
  std::mutex mutex;
  std::condition_variable never;
  const Nanos deadline = kClock.monotonic_ns() + kPatience;
  std::unique_lock lock(mutex);
  while (!condition()) {
    if (kClock.monotonic_ns() > deadline) return false;
    never.wait_for(lock, std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace

TEST_CASE("engine: a hello port that is taken is named, with what to do (perftest 383)", "[ping]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const Node first = start("127.0.0.1", options_of("h1", port));
  UdpTransportOptions udp;
  udp.local = *model::Gid::parse("127.0.0.1");
  auto transport = open_udp_transport(udp, kClock);
  REQUIRE(transport);
  const auto second = Engine::start(options_of("h1", port), std::move(*transport), kClock);
  REQUIRE_FALSE(second);
  CHECK_THAT(second.error().message(), ContainsSubstring(std::to_string(port)));
  CHECK_THAT(second.error().message(), ContainsSubstring("running already"));
}

TEST_CASE(
    "engine: options that cannot work are refused with device and reason, also a size over the MTU (rdma-core 586)",
    "[ping]") {
  const auto refused = [](EngineOptions options) {
    UdpTransportOptions udp;
    udp.local = *model::Gid::parse("127.0.0.1");
    auto transport = open_udp_transport(udp, kClock);
    REQUIRE(transport);
    options.hello_port = 0;
    const auto engine = Engine::start(std::move(options), std::move(*transport), kClock);
    REQUIRE_FALSE(engine);
    return engine.error().context;
  };
  EngineOptions options = options_of("h1", 0);
  options.payload_bytes = 4000;
  CHECK_THAT(refused(options), ContainsSubstring("lo: probes of 4000 bytes") && ContainsSubstring("127.0.0.1"));
  options = options_of("h 1", 0);
  CHECK_THAT(refused(options), ContainsSubstring("no name"));
  options = options_of("h1", 0);
  options.timeout_ns = 0;
  CHECK_THAT(refused(options), ContainsSubstring("timeout"));
  options = options_of("h1", 0);
  options.hello_address = "h1.example";
  CHECK_THAT(refused(options), ContainsSubstring("h1.example"));
}

TEST_CASE("engine: two hosts probe each other over real sockets", "[ping]") {
  UdpTransportOptions udp;
  udp.prober_ports = {0, 0};
  udp.responder_ports = {0, 0, 0};
  Node h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")), udp);
  Node h2 = start("127.0.0.2", options_of("h2", free_port("127.0.0.2")), udp);
  const auto seen = h1.engine->endpoint();
  CHECK(seen.transport == "udp");
  CHECK(seen.prober_ports.size() == 2);
  CHECK(seen.responder_ports.size() == 3);
  CHECK(seen.responder_epoch != h2.engine->endpoint().responder_epoch);
  h1.engine->set_targets({target_of(h2, "h2/lo", 100)});
  h2.engine->set_targets({target_of(h1, "h1/lo", 100)});
  REQUIRE(h1.outcomes->wait(acked(60)));
  REQUIRE(h2.outcomes->wait(acked(60)));

  std::set<std::pair<std::uint16_t, std::uint16_t>> pairs;
  for (const ProbeOutcome& outcome : h1.outcomes->list()) {
    if (outcome.result != ProbeResult::Ok) continue;
    CHECK(outcome.key.from == "h1/lo");
    CHECK(outcome.key.to == "h2/lo");
    pairs.emplace(outcome.key.forward_port, outcome.key.return_port);
    CHECK(*outcome.rtt_ns >= 0);
    CHECK(*outcome.rtt_ns < 500 * kMillisecond);
    CHECK(*outcome.responder_delay_ns >= 0);
    CHECK(outcome.prober_delay_ns);
    CHECK(outcome.forward_tos == 2);
    CHECK(outcome.back_tos == 2);
    CHECK(outcome.forward_hop_limit == 64);
    CHECK(outcome.back_hop_limit == 64);
  }
  // Each port of its own keeps to one of the peer's, so that the way there and back goes by the port.
  const auto theirs = h2.engine->endpoint().responder_ports;
  CHECK(pairs == std::set<std::pair<std::uint16_t, std::uint16_t>>{{seen.prober_ports[0], theirs[0]},
                                                                   {seen.prober_ports[1], theirs[1]}});
  REQUIRE(h1.engine->peers().size() == 1);
  CHECK(h1.engine->peers()[0].state == PeerState::Ready);
  CHECK(h1.engine->peers()[0].answered_as == "h2/lo");
  const auto registered = h2.engine->registered();
  CHECK(names_of(registered) == std::vector<std::string>{"h1/lo 127.0.0.1"});
  std::set<std::pair<std::uint16_t, std::uint16_t>> answered;
  for (const RegisteredPeer::Ports& ports : registered[0].ports) answered.emplace(ports.theirs, ports.own);
  CHECK(answered == pairs);

  h1.engine->close();
  // A machine that stops this process in the middle makes probes overslept: they count no more, what they saw stays.
  std::uint32_t sent = 0;
  for (const auto& window : h1.engine->take_windows()) {
    sent += window.sent + window.overslept;
    CHECK(window.sent == window.acked + window.lost_unknown + window.forward.lost + window.back.lost);
    CHECK(window.rung == model::TimestampRung::KernelSoftware);
    if (window.acked > 0) CHECK(window.forward.hops == 0);
    CHECK(window.forward.ecn_capable >= window.acked);
    CHECK(window.forward.ecn_capable <= window.acked + window.overslept);
    CHECK(window.forward.ce == 0);
  }
  CHECK(sent >= 60);
  const EngineStats stats = h2.engine->take_stats();
  CHECK(stats.answered >= 60);
  CHECK(stats.registered_peers == 1);
  CHECK(h1.engine->failure().empty());
}

// What this thread and those it starts find on a kernel that lacks a system call.
bool take_away(unsigned call) {
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},  // the call's number comes first
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{std::size(code), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

Nanos cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

TEST_CASE("engine: on a kernel without epoll_pwait2 it waits in milliseconds and does not spin", "[ping]") {
  bool taken = false;
  Node h1, h2;
  std::thread([&] {
    taken = take_away(SYS_epoll_pwait2);
    h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")));
    h2 = start("127.0.0.2", options_of("h2", free_port("127.0.0.2")));
  }).join();
  REQUIRE(taken);
  h1.engine->set_targets({target_of(h2, "h2/lo", 100)});
  REQUIRE(h1.outcomes->wait(acked(1)));
  const Nanos wall = kClock.monotonic_ns(), cpu = cpu_time();
  REQUIRE(h1.outcomes->wait(acked(51)));
  CHECK(cpu_time() - cpu < (kClock.monotonic_ns() - wall) / 2);
}

TEST_CASE(
    "engine: a round trip to one of 200 targets takes no longer than to a lone one, on real sockets (cloudprober 531)",
    "[ping]") {
  constexpr std::size_t kTargets = 200;
  const auto address = [](std::size_t number) { return "127.0.2." + std::to_string(number + 1); };
  std::vector<Node> far;
  for (std::size_t i = 0; i < 4; ++i) {
    far.push_back(start(address(i), options_of("far" + std::to_string(i), free_port(address(i)))));
  }
  EngineOptions options = options_of("h1", free_port("127.0.0.1"));
  options.max_probes_per_s = 100'000;  // no bound here, also when a pause of the machine makes all of them due at once
  Node h1 = start("127.0.0.1", options);
  // Times of host and sockets, as the kernel took them; the middle one, for a busy machine stretches some.
  const auto middle = [&](const std::set<std::string>& names) {
    std::vector<Nanos> times;
    for (const ProbeOutcome& outcome : h1.outcomes->list()) {
      if (outcome.rtt_ns && names.contains(outcome.key.to)) times.push_back(*outcome.rtt_ns);
    }
    REQUIRE_FALSE(times.empty());
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  };

  h1.engine->set_targets({target_of(far[0], "alone", 20)});
  REQUIRE(h1.outcomes->wait(acked(40)));
  const Nanos alone = middle({"alone"});

  std::vector<model::PlanTarget> targets;
  std::set<std::string> names;
  for (std::size_t i = 0; i < kTargets; ++i) {
    const std::string name = "t" + std::to_string(i);
    targets.push_back(target_of(far[i % far.size()], name, 1));
    names.insert(name);
  }
  h1.engine->set_targets(targets);
  REQUIRE(h1.outcomes->wait([&](const std::vector<ProbeOutcome>& list) {
    std::map<std::string, unsigned> answers;
    for (const ProbeOutcome& outcome : list) {
      if (outcome.result == ProbeResult::Ok && names.contains(outcome.key.to)) ++answers[outcome.key.to];
    }
    return answers.size() == kTargets &&
           std::all_of(answers.begin(), answers.end(), [](const auto& row) { return row.second >= 2; });
  }));
  const Nanos together = middle(names);
  INFO("alone " << alone << " ns, one of 200 " << together << " ns");
  // One after the other, each would wait for those before it.
  CHECK(together < 5 * alone + 2 * kMillisecond);
  CHECK(h1.engine->take_stats().throttled == 0);
  CHECK(h1.engine->peers().size() == kTargets);
}

TEST_CASE("engine: close returns within a second and frees the ports (rpingmesh PR 8)", "[ping]") {
  const std::uint16_t port = free_port("127.0.0.1");
  for (int round = 0; round < 3; ++round) {
    Node node = start("127.0.0.1", options_of("h1", port));
    node.engine->set_targets({{"lo", "h9/lo", "127.0.0.9", 9, {{0, 0, 10}}}});
    const Nanos before = kClock.monotonic_ns();
    node.engine->close();
    node.engine->close();
    CHECK(kClock.monotonic_ns() - before < kSecond);
    // What is asked after the end is answered, too.
    node.engine->set_targets({});
    node.engine->want_ports(4);
    CHECK(node.engine->take_windows().empty());
    CHECK(node.engine->take_stats().sent == 0);
  }
}

TEST_CASE("engine: may be closed and asked from its own callback", "[ping]") {
  Node h2 = start("127.0.0.2", options_of("h2", free_port("127.0.0.2")));
  Node h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")));
  auto* engine = h1.engine.get();
  h1.engine->on_outcome([engine, outcomes = h1.outcomes](const ProbeOutcome& one) {
    engine->peers();
    engine->close();
    outcomes->add(one);
  });
  h1.engine->set_targets({target_of(h2, "h2/lo", 100)});
  CHECK(h1.outcomes->wait([](const auto& list) { return !list.empty(); }));
}

TEST_CASE("engine: where nobody listens the status says so, and how to help", "[ping]") {
  Node h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")));
  const std::uint16_t port = free_port("127.0.0.2");
  h1.engine->set_targets({{"lo", "h2/lo", "127.0.0.2", port, {{0, 0, 10}}}, {"lo", "h3/lo", "h3", 1, {}}});
  REQUIRE(poll_until([&] { return h1.engine->peers()[0].state == PeerState::Unreachable; }));
  const auto peers = h1.engine->peers();
  CHECK_THAT(peers[0].reason, ContainsSubstring("127.0.0.2:" + std::to_string(port)) &&
                                  ContainsSubstring("start weftd or weft responder"));
  CHECK(peers[1].state == PeerState::Unreachable);
  CHECK_THAT(peers[1].reason, ContainsSubstring("'h3' is no GID or IP address"));
  // No responder known: nothing was sent, so nothing can be accused.
  CHECK(h1.engine->take_stats().sent == 0);
}

TEST_CASE("engine: ends of two address families are told apart in words, with both addresses (uccl 803: compare ends)",
          "[ping]") {
  Node h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")));
  h1.engine->set_targets({{"lo", "h2/lo", "::1", 47910, {{0, 0, 10}}}});
  REQUIRE(poll_until([&] { return h1.engine->peers()[0].state == PeerState::Unreachable; }));
  CHECK_THAT(h1.engine->peers()[0].reason, ContainsSubstring("from lo (127.0.0.1) to [::1]:47910") &&
                                               ContainsSubstring("no way between an IPv4 and an IPv6 address"));
  CHECK(h1.engine->take_stats().sent == 0);
}

TEST_CASE("engine: a peer with another key is not answered, and the status names key, address and tries", "[ping]") {
  EngineOptions other = options_of("h2", free_port("127.0.0.2"));
  other.key = *FabricKey::parse(std::string(64, 'e'));
  Node h2 = start("127.0.0.2", other);
  Node h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")));
  h1.engine->set_targets({target_of(h2, "h2/lo", 10)});
  REQUIRE(poll_until([&] { return h1.engine->peers()[0].state == PeerState::Unreachable; }));
  CHECK_THAT(h1.engine->peers()[0].reason,
             ContainsSubstring("no answer to hello on 127.0.0.2:" + std::to_string(other.hello_port)) &&
                 ContainsSubstring("lo (127.0.0.1)") && ContainsSubstring("after 5 tries") &&
                 ContainsSubstring("same fabric key"));
  const auto rejected = h2.engine->take_stats().rejected;
  const auto bad_mac =
      std::find_if(rejected.begin(), rejected.end(), [](const auto& row) { return row.first == "bad_mac"; });
  REQUIRE(bad_mac != rejected.end());
  CHECK(bad_mac->second >= 5);
  CHECK(h2.engine->registered().empty());
}

TEST_CASE("engine: a responder that restarts is found again, and nobody is accused of loss", "[ping]") {
  const std::uint16_t port = free_port("127.0.0.2");
  Node h2 = start("127.0.0.2", options_of("h2", port));
  Node h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")));
  h1.engine->set_targets({target_of(h2, "h2/lo", 50)});
  REQUIRE(h1.outcomes->wait(acked(20)));
  const std::uint64_t old_epoch = h2.engine->endpoint().responder_epoch;
  h2.engine.reset();
  h2 = start("127.0.0.2", options_of("h2", port));
  REQUIRE(poll_until([&] {
    const auto peers = h1.engine->peers();
    return peers[0].state == PeerState::Ready && peers[0].responder_epoch != old_epoch;
  }));
  const std::size_t before = h1.outcomes->count(ProbeResult::Ok);
  REQUIRE(h1.outcomes->wait(acked(before + 20)));
  h1.engine->close();
  std::uint32_t lost = 0;
  std::uint32_t stale = 0;
  for (const auto& window : h1.engine->take_windows()) {
    lost += window.lost_unknown + window.forward.lost + window.back.lost;
    stale += window.stale;
  }
  CHECK(lost == 0);
  CHECK(stale > 0);
}

TEST_CASE("engine: a process that did not run for ten seconds accuses nobody", "[ping]") {
  // To the engine a clock that jumps looks like a process that was stopped.
  class JumpingClock final : public Clock {
   public:
    Nanos monotonic_ns() const override { return kClock.monotonic_ns() + jump; }
    Nanos wall_ns() const override { return kClock.wall_ns(); }
    std::atomic<Nanos> jump = 0;
  };
  JumpingClock clock;
  Node h2 = start("127.0.0.2", options_of("h2", free_port("127.0.0.2")));
  Node h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")), {}, clock);
  h1.engine->set_targets({target_of(h2, "h2/lo", 100)});
  REQUIRE(h1.outcomes->wait(acked(20)));
  clock.jump = 10 * kSecond;
  const std::size_t before = h1.outcomes->count(ProbeResult::Ok);
  REQUIRE(h1.outcomes->wait(acked(before + 20)));
  CHECK(h1.engine->take_stats().own_delay_max_ns > 9 * kSecond);
  CHECK(h1.engine->take_stats().own_delay_max_ns < 9 * kSecond);
  h1.engine->close();
  for (const auto& window : h1.engine->take_windows()) {
    CHECK(window.lost_unknown + window.forward.lost + window.back.lost == 0);
  }
}

TEST_CASE("engine: who asks or orders something never waits for a turn that does not end", "[ping]") {
  // What a host looks like that gives the engine's thread the CPU, and takes it away within its turns.
  class Sticky final : public Transport {
   public:
    explicit Sticky(std::unique_ptr<Transport> real, std::mutex& gate) : real_(std::move(real)), gate_(gate) {}
    std::string name() const override { return real_->name(); }
    model::TimestampRung rung() const override { return real_->rung(); }
    model::Gid local_address() const override { return real_->local_address(); }
    std::vector<LaneInfo> lanes() const override { return real_->lanes(); }
    std::vector<std::uint16_t> source_ports(Role role) const override { return real_->source_ports(role); }
    Result<void> want_ports(Role role, unsigned count) override { return real_->want_ports(role, count); }
    std::size_t max_payload_bytes() const override { return real_->max_payload_bytes(); }
    Result<void> send(Role role, std::uint32_t lane, std::uint16_t port, const Destination& to, std::uint8_t tclass,
                      std::span<const std::uint8_t> payload, std::uint64_t cookie) override {
      return real_->send(role, lane, port, to, tclass, payload, cookie);
    }
    Result<void> poll(TransportEvents& events) override {
      std::lock_guard lock(gate_);
      return real_->poll(events);
    }
    std::vector<int> wait_fds() const override { return real_->wait_fds(); }
    Result<bool> arm() override { return real_->arm(); }
    Nanos elapsed_ns(Stamp from, Stamp to) const override { return real_->elapsed_ns(from, to); }
    std::optional<std::uint32_t> take_responder_low_water() override { return std::nullopt; }

   private:
    std::unique_ptr<Transport> real_;
    std::mutex& gate_;
  };
  std::mutex gate;
  UdpTransportOptions udp;
  udp.local = *model::Gid::parse("127.0.0.1");
  auto real = open_udp_transport(udp, kClock);
  REQUIRE(real);
  auto started =
      Engine::start(options_of("h1", free_port("127.0.0.1")), std::make_unique<Sticky>(std::move(*real), gate), kClock);
  REQUIRE(started);
  Engine& engine = **started;
  engine.set_targets({{"lo", "h2/lo", "127.0.0.2", 9, {{0, 0, 10}}}});
  REQUIRE(poll_until([&] { return engine.peers().size() == 1; }));
  engine.take_stats();

  gate.lock();
  auto asked = std::async(std::launch::async, [&] {
    std::vector<std::size_t> peers;
    for (int i = 0; i < 10; ++i) {
      engine.take_windows();
      engine.take_stats();
      engine.registered();
      peers.push_back(engine.peers().size());
    }
    engine.set_targets({});
    engine.want_ports(2);
    peers.push_back(engine.endpoint().prober_ports.size());
    return peers;
  });
  const bool came_back = asked.wait_for(std::chrono::nanoseconds(kPatience)) == std::future_status::ready;
  gate.unlock();
  REQUIRE(came_back);
  // The answers are those of before.
  std::vector<std::size_t> expected(10, 1);
  expected.push_back(1);
  CHECK(asked.get() == expected);
  // And the orders are followed as soon as the thread comes to them.
  CHECK(poll_until([&] { return engine.peers().empty() && engine.endpoint().prober_ports.size() == 2; }));
}

TEST_CASE("engine: more ports are opened as wanted, told to peers, and refused in words past the bound", "[ping]") {
  Node h2 = start("127.0.0.2", options_of("h2", free_port("127.0.0.2")));
  UdpTransportOptions udp;
  udp.max_lanes = 4;
  Node h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")), udp);
  h1.engine->want_ports(3);
  REQUIRE(poll_until([&] { return h1.engine->endpoint().prober_ports.size() == 3; }));
  CHECK(h1.engine->endpoint().responder_ports.size() == 3);
  h1.engine->set_targets({target_of(h2, "h2/lo", 100)});
  REQUIRE(h1.outcomes->wait(acked(12)));
  std::set<std::uint16_t> used;
  for (const auto& outcome : h1.outcomes->list()) used.insert(outcome.key.forward_port);
  CHECK(used.size() == 3);
  test::expect_log("fewer source ports than wanted");
  h1.engine->want_ports(9);
  REQUIRE(poll_until([&] { return h1.engine->endpoint().prober_ports.size() == 4; }));
  CHECK(h1.engine->failure().empty());
}

TEST_CASE("engine: targets that leave the plan are probed no more, those that stay keep their session", "[ping]") {
  Node h2 = start("127.0.0.2", options_of("h2", free_port("127.0.0.2")));
  Node h3 = start("127.0.0.3", options_of("h3", free_port("127.0.0.3")));
  Node h1 = start("127.0.0.1", options_of("h1", free_port("127.0.0.1")));
  model::PlanTarget elsewhere = target_of(h3, "h3/lo", 50);
  elsewhere.from_device = "eth7";
  h1.engine->set_targets({target_of(h2, "h2/lo", 50), target_of(h3, "h3/lo", 50), elsewhere});
  const auto acked_of = [](const std::string& to, std::size_t count) {
    return [to, count](const std::vector<ProbeOutcome>& list) {
      return static_cast<std::size_t>(std::count_if(list.begin(), list.end(), [&](const auto& one) {
               return one.result == ProbeResult::Ok && one.key.to == to;
             })) >= count;
    };
  };
  REQUIRE(h1.outcomes->wait(acked_of("h2/lo", 5)));
  REQUIRE(h1.outcomes->wait(acked_of("h3/lo", 5)));
  h1.engine->set_targets({target_of(h2, "h2/lo", 50)});
  CHECK(h1.engine->peers().size() == 1);
  const auto highest_of = [&](const std::string& to) {
    std::uint64_t highest = 0;
    for (const auto& outcome : h1.outcomes->list()) {
      if (outcome.key.to == to) highest = std::max(highest, outcome.sequence);
    }
    return highest;
  };
  const std::uint64_t kept = highest_of("h2/lo");
  const std::uint64_t left = highest_of("h3/lo");
  REQUIRE(poll_until([&] { return highest_of("h2/lo") > kept + 20; }));
  // Outcomes of the moment of the change may still have come.
  CHECK(highest_of("h3/lo") <= left + 2);
  CHECK(h2.engine->take_stats().registered_peers == 1);
}

TEST_CASE("engine: garbage and floods are counted by reason and answered with nothing", "[ping]") {
  Node h2 = start("127.0.0.2", options_of("h2", free_port("127.0.0.2")));
  const auto endpoint = h2.engine->endpoint();
  const auto attacker = HelloSocket::open(*model::Gid::parse("127.0.0.3"), 0);
  REQUIRE(attacker);
  const model::Gid victim = *model::Gid::parse("127.0.0.2");
  const FabricKey key;
  HelloPacket hello;
  hello.session = 1;
  hello.nonce = 2;
  hello.gid = *model::Gid::parse("127.0.0.3");
  hello.name = "h9/lo";
  hello.transport = WireTransport::Udp;
  std::vector<std::uint8_t> bytes(kHelloBytes);
  REQUIRE(encode(hello, key, bytes) == kHelloBytes);
  auto old = bytes;
  old[4] = 9;
  auto damaged = bytes;
  damaged[100] ^= 1;
  HelloPacket spoofed_hello = hello;
  spoofed_hello.gid = *model::Gid::parse("127.0.0.4");
  auto spoofed = bytes;
  REQUIRE(encode(spoofed_hello, key, spoofed) == kHelloBytes);
  const std::vector<std::uint8_t> garbage(64, 0x5a);
  ProbePacket stranger;
  stranger.session = 99;
  stranger.sequence = 1;
  std::vector<std::uint8_t> probe(kProbeBytes);
  REQUIRE(encode(stranger, kProbeBytes, key, probe) == kProbeBytes);
  const std::uint16_t lane = endpoint.responder_ports.at(0);
  const unsigned rounds = 50;
  std::map<std::string, std::uint64_t> rejected;
  for (unsigned i = 1; i <= rounds; ++i) {
    REQUIRE(attacker->send(victim, endpoint.hello_port, old));
    REQUIRE(attacker->send(victim, endpoint.hello_port, damaged));
    REQUIRE(attacker->send(victim, endpoint.hello_port, spoofed));
    REQUIRE(attacker->send(victim, endpoint.hello_port, garbage));
    REQUIRE(attacker->send(victim, lane, probe));
    REQUIRE(attacker->send(victim, lane, garbage));
    // In step, so that no receive buffer overflows and every datagram is accounted for.
    REQUIRE(poll_until([&] {
      for (const auto& [reason, count] : h2.engine->take_stats().rejected) rejected[reason] = count;
      return std::accumulate(rejected.begin(), rejected.end(), std::uint64_t{0},
                             [](auto sum, const auto& row) { return sum + row.second; }) == 6 * i;
    }));
  }
  CHECK(rejected["bad_version"] == rounds);
  CHECK(rejected["bad_mac"] == rounds);
  CHECK(rejected["address_mismatch"] == rounds);
  CHECK(rejected["bad_magic"] == 2 * rounds);
  CHECK(rejected["unregistered_peer"] == rounds);
  // Everything sent was dealt with, so an answer would have come by now.
  unsigned answers = 0;
  attacker->receive([&](const auto&, auto, auto) { ++answers; }, [](const auto&, auto, int) {});
  CHECK(answers == 0);

  // The one good hello is answered by exactly as many bytes.
  REQUIRE(attacker->send(victim, endpoint.hello_port, bytes));
  std::size_t answered_bytes = 0;
  REQUIRE(poll_until([&] {
    attacker->receive([&](const auto&, auto, auto answer) { answered_bytes += answer.size(); },
                      [](const auto&, auto, int) {});
    return answered_bytes > 0;
  }));
  CHECK(answered_bytes == bytes.size());
}
