#include "probes/ping/engine.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "lib/base/log.h"
#include "lib/base/thread_name.h"
#include "probes/ping/hello.h"
#include "probes/ping/hello_socket.h"
#include "probes/ping/prober.h"
#include "probes/ping/responder.h"
#include "probes/ping/wait_set.h"
#include "probes/ping/window.h"

namespace weft::probes {
namespace {

constexpr Nanos kIdleTurn = 500 * kMillisecond;  // a transport notices only in poll() that its device is gone
// After a window's second. Most losses had their direction told within the timeout already.
constexpr Nanos kSettle = 300 * kMillisecond;
constexpr Nanos kReattributeGrace = 200 * kMillisecond;  // past one timeout, for the next acknowledgement to come
constexpr double kHelloAnswersPerSecond = 1000;
constexpr double kHelloAnswerBurst = 250;
// How long a caller waits for the turn in progress. A turn is a millisecond or so, unless the host is starved of CPU.
constexpr auto kPatience = std::chrono::milliseconds(100);

std::uint64_t random_number() {
  std::uint64_t value = 0;
  // Cannot fail for so few bytes once the kernel's pool is ready (man 2 getrandom).
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

Nanos earlier(Nanos a, std::optional<Nanos> b) { return b && *b < a ? *b : a; }

std::optional<std::uint32_t> least(std::optional<std::uint32_t> a, std::optional<std::uint32_t> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

class EngineImpl final : public Engine, private TransportEvents {
 public:
  EngineImpl(EngineOptions options, std::unique_ptr<Transport> transport, HelloSocket socket, const Clock& clock)
      : options_(std::move(options)),
        name_(options_.host + "/" + options_.device),
        epoch_(random_number()),
        clock_(clock),
        transport_(std::move(transport)),
        socket_(std::move(socket)),
        folder_(kSettle, std::max(kSettle, options_.timeout_ns + kReattributeGrace)),
        hello_answers_(kHelloAnswersPerSecond, kHelloAnswerBurst),
        hello_(
            hello_options(), options_.key, rejects_,
            [this](const model::Gid& to, std::uint16_t port, std::span<const std::uint8_t> bytes) {
              return socket_.send(to, port, bytes);
            },
            [this](std::uint64_t session, const ResponderInfo& info, bool fresh) {
              prober_.set_responder(session, info, fresh, clock_.monotonic_ns());
            },
            random_number),
        prober_(
            prober_options(), options_.key, *transport_, clock_, folder_, rejects_,
            [this](std::uint64_t session) { hello_.suspect(session, clock_.monotonic_ns()); }, random_number()) {
    if (options_.answer) {
      responder_.emplace(ResponderOptions{name_, epoch_, wire_transport(), options_.lease_ns,
                                          options_.answer_rate_per_peer, options_.max_peers},
                         options_.key, *transport_, clock_, rejects_);
    }
    refresh_ports();
  }
  ~EngineImpl() override { close(); }

  Result<void> start() {
    if (const auto opened = waits_.open(); !opened) return opened;
    waits_.watch(socket_.fd());
    watch_transport();
    thread_ = std::thread([this] { run(); });
    return {};
  }

  model::ProbeEndpoint endpoint() const override {
    listen();
    std::lock_guard lock(front_mutex_);
    return said_.endpoint;
  }

  void set_targets(std::vector<model::PlanTarget> targets) override {
    {
      std::lock_guard lock(front_mutex_);
      orders_.targets = std::move(targets);
    }
    order();
  }

  void want_ports(unsigned count) override {
    {
      std::lock_guard lock(front_mutex_);
      orders_.ports = count;
    }
    order();
  }

  std::vector<model::PathWindow> take_windows() override {
    listen();
    std::lock_guard lock(front_mutex_);
    return std::exchange(said_.windows, {});
  }

  std::vector<PeerStatus> peers() const override {
    listen();
    std::lock_guard lock(front_mutex_);
    return said_.peers;
  }

  std::vector<RegisteredPeer> registered() const override {
    listen();
    std::lock_guard lock(front_mutex_);
    return said_.registered;
  }

  EngineStats take_stats() override {
    listen();
    std::lock_guard lock(front_mutex_);
    EngineStats stats = said_.stats;
    said_.stats.responder_low_water.reset();
    said_.stats.own_delay_max_ns = 0;
    return stats;
  }

  void on_outcome(std::function<void(const ProbeOutcome&)> callback) override {
    std::lock_guard lock(mutex_);
    callback_ = std::move(callback);
    prober_.want_outcomes(static_cast<bool>(callback_));
  }

  std::string failure() const override {
    std::lock_guard lock(front_mutex_);
    return failure_;
  }

  void close() override {
    stop_ = true;
    waits_.wake();
    // From a callback the thread cannot wait for itself; it ends after the callback returns.
    if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  }

 private:
  // What was said last, and what is to be done next.
  struct Said {
    model::ProbeEndpoint endpoint;
    std::vector<model::PathWindow> windows;
    std::vector<PeerStatus> peers;
    std::vector<RegisteredPeer> registered;
    EngineStats stats;
  };
  struct Orders {
    std::optional<std::vector<model::PlanTarget>> targets;
    unsigned ports = 0;
  };

  // A starved host gives this thread the CPU for a moment, and takes it away in the middle of a turn, time after time;
  // a caller who waited for the lock would wait for as long as that lasts (seen in the lab: half a minute). So it waits
  // a little, once, and then makes do with what was said last, until a turn has ended.
  bool have_turn(std::unique_lock<std::timed_mutex>& turn) const {
    return asked_ ? turn.try_lock() : turn.try_lock_for(kPatience);
  }

  // Brings said_ up to date where that is possible now.
  void listen() const {
    std::unique_lock turn(mutex_, std::defer_lock);
    if (have_turn(turn)) {
      say();
    } else {
      asked_ = true;
    }
  }

  void order() {
    std::unique_lock turn(mutex_, std::defer_lock);
    if (have_turn(turn)) {
      follow_orders();
      turn.unlock();
    } else {
      asked_ = true;
    }
    waits_.wake();
  }

  void say() const {
    asked_ = false;
    std::lock_guard lock(front_mutex_);
    said_.endpoint = endpoint_;
    std::vector<model::PathWindow> windows = folder_.take();
    std::move(windows.begin(), windows.end(), std::back_inserter(said_.windows));
    said_.peers = hello_.statuses();
    const auto errors = prober_.send_errors();
    for (PeerStatus& peer : said_.peers) {
      if (const auto error = errors.find(peer.to); error != errors.end()) peer.send_error = error->second;
    }
    if (responder_) said_.registered = responder_->registered();
    EngineStats stats = totals();
    stats.responder_low_water = least(std::exchange(low_water_, std::nullopt), said_.stats.responder_low_water);
    stats.own_delay_max_ns = std::max(std::exchange(own_delay_max_ns_, 0), said_.stats.own_delay_max_ns);
    said_.stats = std::move(stats);
  }

  EngineStats totals() const {
    EngineStats stats;
    const ProberStats& prober = prober_.stats();
    stats.sent = prober.sent;
    stats.acked = prober.acked;
    stats.throttled = prober.throttled;
    stats.local_errors = prober.local_errors;
    if (responder_) {
      stats.answered = responder_->answered();
      stats.local_errors += responder_->local_errors();
      stats.registered_peers = responder_->peers();
    }
    const WindowTotals& totals = folder_.totals();
    stats.lost_forward = totals.lost_forward;
    stats.lost_back = totals.lost_back;
    stats.lost_unknown = totals.lost_unknown;
    stats.ce_forward = totals.ce_forward;
    stats.ce_back = totals.ce_back;
    stats.rejected = rejects_.list();
    stats.windows_dropped = folder_.dropped();
    return stats;
  }

  void follow_orders() {
    Orders orders;
    {
      std::lock_guard lock(front_mutex_);
      orders = std::exchange(orders_, {});
    }
    if (orders.targets) use_targets(std::move(*orders.targets));
    if (orders.ports != 0) wanted_ports_ = orders.ports;
  }

  void use_targets(std::vector<model::PlanTarget> targets) {
    const Nanos now = clock_.monotonic_ns();
    std::map<std::uint64_t, model::PlanTarget> wanted;
    for (model::PlanTarget& target : targets) {
      if (!target.from_device.empty() && target.from_device != options_.device) continue;
      if (wanted.size() >= options_.max_peers) {
        log::warning("probe", "more targets than the bound; the rest is not probed",
                     {{"device", options_.device}, {"bound", options_.max_peers}});
        break;
      }
      const std::uint64_t session = hello_.add(target, now);
      const auto [at, added] = wanted.try_emplace(session, target);
      if (!added) at->second.paths.insert(at->second.paths.end(), target.paths.begin(), target.paths.end());
    }
    for (const std::uint64_t session : sessions_) {
      if (wanted.contains(session)) continue;
      hello_.remove(session);
      prober_.remove(session);
    }
    sessions_.clear();
    for (const auto& [session, target] : wanted) {
      sessions_.insert(session);
      prober_.set_target(session, target, now);
    }
  }

  WireTransport wire_transport() const {
    return transport_->name() == "udp" ? WireTransport::Udp : WireTransport::Rdma;
  }

  HelloOptions hello_options() const {
    HelloOptions hello;
    hello.name = name_;
    hello.local = options_.device + " (" + transport_->local_address().to_string() + ")";
    hello.gid = transport_->local_address();
    hello.epoch = epoch_;
    hello.transport = wire_transport();
    return hello;
  }

  ProberOptions prober_options() const {
    return {name_,
            options_.traffic_class,
            options_.timeout_ns,
            options_.overslept_ns,
            options_.skip_late_ns,
            options_.payload_bytes,
            options_.max_probes_per_s,
            options_.max_link_share,
            options_.rate_bits_per_s};
  }

  void refresh_ports() {
    prober_.refresh_ports();
    std::vector<HelloLane> lanes;
    for (const LaneInfo& lane : transport_->lanes()) {
      if (lane.role == Role::Prober) lanes.push_back({lane.number, lane.source_port});
    }
    hello_.set_lanes(std::move(lanes));
    endpoint_.device = options_.device;
    endpoint_.transport = transport_->name();
    endpoint_.address =
        options_.hello_address.empty() ? transport_->local_address().to_string() : options_.hello_address;
    endpoint_.hello_port = options_.answer ? socket_.port() : 0;
    endpoint_.responder_epoch = options_.answer ? epoch_ : 0;
    endpoint_.prober_ports = transport_->source_ports(Role::Prober);
    if (options_.answer) endpoint_.responder_ports = transport_->source_ports(Role::Responder);
  }

  void watch_transport() {
    for (const int fd : transport_->wait_fds()) waits_.watch(fd);
  }

  void on_arrival(const Arrival& arrival) override {
    if (arrival.role == Role::Prober) {
      prober_.on_arrival(arrival);
    } else if (responder_) {
      responder_->on_arrival(arrival);
    } else {
      rejects_.count(Reject::NotForUs);
    }
  }

  void on_send_done(const SendDone& done) override {
    if (done.role == Role::Prober) {
      prober_.on_send_done(done);
    } else if (responder_) {
      responder_->on_send_done(done);
    }
  }

  void on_hello(const model::Gid& from, std::uint16_t port, std::span<const std::uint8_t> bytes, Nanos now) {
    const auto hello = parse_hello(bytes, options_.key);
    if (!hello) return rejects_.count(hello.error());
    if (hello->type == PacketType::HelloAck) return hello_.on_answer(*hello, now);
    if (!responder_) return rejects_.count(Reject::NotForUs);
    // Acknowledgements go to the GID the hello names, so it must be the asker's own. On InfiniBand a GID is no IP
    // address, and there is nothing to compare.
    const bool comparable = hello->transport == WireTransport::Udp || hello->gid.is_ipv4_mapped();
    if (!hello->gid.is_unicast() || (comparable && hello->gid != from)) return rejects_.count(Reject::AddressMismatch);
    if (!hello_answers_.take(now)) return rejects_.count(Reject::Rate);
    std::array<std::uint8_t, kHelloBytes> buffer;
    const std::size_t size = encode(responder_->register_peer(*hello, now), options_.key, buffer);
    // An answer that cannot leave is one that was lost: the peer asks again.
    (void)socket_.send(from, port, std::span(buffer).first(size));
  }

  void open_wanted_ports() {
    if (wanted_ports_ == 0) return;
    const unsigned count = std::exchange(wanted_ports_, 0);
    for (const Role role : {Role::Prober, Role::Responder}) {
      if (role == Role::Responder && !responder_) continue;
      if (const auto opened = transport_->want_ports(role, count); !opened) {
        log::warning("probe", "fewer source ports than wanted",
                     {{"device", options_.device}, {"wanted", count}, {"reason", opened.error().message()}});
      }
    }
    refresh_ports();
    watch_transport();
  }

  Result<void> turn(Nanos now) {
    follow_orders();
    const Nanos late = planned_ns_ == 0 ? 0 : std::max<Nanos>(now - planned_ns_, 0);
    own_delay_max_ns_ = std::max(own_delay_max_ns_, late);
    if (late > options_.overslept_ns) prober_.woke_late(now, late);
    // What waits is delivered before anything times out.
    for (const int fd : ready_fds_) transport_->note_ready(fd);
    ready_fds_.clear();
    if (std::exchange(transport_ready_, false)) {
      if (const auto polled = transport_->poll(*this); !polled) return polled;
    }
    if (hello_ready_) {
      hello_ready_ = false;
      socket_.receive([&](const model::Gid& from, std::uint16_t port,
                          std::span<const std::uint8_t> bytes) { on_hello(from, port, bytes, now); },
                      [&](const model::Gid& to, std::uint16_t port, int error) { hello_.on_refused(to, port, error); });
    }
    open_wanted_ports();
    prober_.expire(now);
    hello_.run(now);
    prober_.send_due(now);
    if (responder_ && now >= next_expiry_ns_) {
      responder_->expire(now);
      next_expiry_ns_ = now + kSecond;
    }
    if (const auto low = transport_->take_responder_low_water()) {
      low_water_ = std::min(low_water_.value_or(*low), *low);
    }
    const auto look_again = transport_->arm();
    if (!look_again) return look_again.error();
    if (*look_again) {
      if (const auto polled = transport_->poll(*this); !polled) return polled;
    }
    folder_.set_rung(transport_->rung());
    folder_.close_due(now);
    planned_ns_ =
        earlier(earlier(earlier(now + kIdleTurn, prober_.next_deadline()), hello_.next_due()), folder_.next_close());
    return {};
  }

  void wait() {
    for (const int fd : waits_.wait(planned_ns_ - clock_.monotonic_ns())) {
      if (fd == socket_.fd()) {
        hello_ready_ = true;
      } else {
        transport_ready_ = true;
        ready_fds_.push_back(fd);
      }
    }
  }

  void run() {
    name_this_thread("weft-probe");
    for (;;) {
      std::vector<ProbeOutcome> outcomes;
      std::function<void(const ProbeOutcome&)> callback;
      bool ended = false;
      {
        std::lock_guard lock(mutex_);
        ended = stop_;
        if (!ended) {
          if (const auto done = turn(clock_.monotonic_ns()); !done) {
            std::lock_guard front(front_mutex_);
            failure_ = options_.device + ": " + done.error().message();
            ended = true;
          }
        }
        if (ended) release();
        if (asked_) say();
        outcomes = prober_.take_outcomes();
        if (!outcomes.empty()) callback = callback_;
      }
      if (callback) {
        for (const ProbeOutcome& outcome : outcomes) callback(outcome);
      }
      if (ended) return;
      wait();
    }
  }

  // The device and the port are free for others from here on; what was measured can still be taken.
  void release() {
    folder_.close_due(INT64_MAX);
    socket_ = HelloSocket{};
    transport_.reset();
  }

  const EngineOptions options_;
  const std::string name_;
  const std::uint64_t epoch_;
  const Clock& clock_;

  // Held by the thread through each of its turns. Guards everything below down to the front; the descriptors at the
  // end never change.
  mutable std::timed_mutex mutex_;
  std::unique_ptr<Transport> transport_;
  HelloSocket socket_;
  RejectCounters rejects_;
  mutable WindowFolder folder_;
  Budget hello_answers_;
  HelloClient hello_;
  Prober prober_;
  std::optional<Responder> responder_;
  std::set<std::uint64_t> sessions_;
  model::ProbeEndpoint endpoint_;
  std::function<void(const ProbeOutcome&)> callback_;
  unsigned wanted_ports_ = 0;
  mutable std::optional<std::uint32_t> low_water_;
  mutable Nanos own_delay_max_ns_ = 0;
  Nanos next_expiry_ns_ = 0;

  mutable std::mutex front_mutex_;  // never held for long; taken after mutex_ where both are
  mutable Said said_;
  Orders orders_;
  std::string failure_;
  mutable std::atomic<bool> asked_ = false;  // somebody went away with an older answer
  std::atomic<bool> stop_ = false;

  // The thread's own.
  Nanos planned_ns_ = 0;
  bool hello_ready_ = false;
  bool transport_ready_ = true;
  std::vector<int> ready_fds_;  // of the transport
  WaitSet waits_;
  std::thread thread_;
};

Result<void> check(const EngineOptions& options, const Transport& transport) {
  const auto bad = [&](const std::string& what) {
    return make_error(Error::Kind::Invalid, options.device + ": " + what);
  };
  const std::string name = options.host + "/" + options.device;
  if (options.host.empty() || options.device.empty() || name.size() > kMaxHelloNameBytes ||
      !std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; })) {
    return bad("'" + name + "' is no name for a probe endpoint: HOST/DEVICE, at most " +
               std::to_string(kMaxHelloNameBytes) + " printable characters without spaces");
  }
  if (options.timeout_ns <= 0 || options.lease_ns < kSecond || options.max_probes_per_s < 0 || options.max_peers == 0) {
    return bad("timeout and lease (at least 1 s), rate and peers of a probe engine must be positive");
  }
  const std::size_t most = std::min(transport.max_payload_bytes(), kMaxProbeBytes);
  if (options.payload_bytes > most) {
    return bad("probes of " + std::to_string(options.payload_bytes) + " bytes do not fit the MTU of " + options.device +
               " (" + transport.local_address().to_string() + "), which has room for " + std::to_string(most));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(EngineOptions options, std::unique_ptr<Transport> transport,
                                              const Clock& clock) {
  if (const auto checked = check(options, *transport); !checked) return checked.error();
  model::Gid address = transport->local_address();
  if (!options.hello_address.empty()) {
    const auto parsed = model::Gid::parse(options.hello_address);
    if (!parsed) return parsed.error();
    address = *parsed;
  }
  auto socket = HelloSocket::open(address, options.answer ? options.hello_port : std::uint16_t{0});
  if (!socket)
    return Error{socket.error().kind, socket.error().error_number, options.device + ": " + socket.error().context};
  auto engine = std::make_unique<EngineImpl>(std::move(options), std::move(transport), std::move(*socket), clock);
  if (const auto started = engine->start(); !started) return started.error();
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace weft::probes
