#include "probes/trace/tracer.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/base/thread_name.h"

namespace weft::probes {
namespace {

constexpr unsigned kReceiveBatch = 256;  // a flood of ICMP must not keep us from sending

bool same_path(const TraceRequest& a, TraceRequest b) {
  b.hops = a.hops;
  b.probes_per_hop_per_s = a.probes_per_hop_per_s;
  return a == b;
}

// Everything that can be done now without waiting. Returns whether anything arrived.
Result<bool> turn(TraceSchedule& schedule, TraceSocket& socket, const Clock& clock, std::string& send_error) {
  bool arrived = false;
  for (unsigned i = 0; i < kReceiveBatch; ++i) {
    auto answer = socket.receive();
    if (!answer) {
      if (answer.error().kind == Error::Kind::NoData) break;
      return answer.error();
    }
    schedule.on_answer(*answer, clock.monotonic_ns());
    arrived = true;
  }
  for (;;) {
    const Nanos now = clock.monotonic_ns();
    const auto packet = schedule.next(now);
    if (!packet) return arrived;
    if (auto sent = socket.send(packet->probe, packet->netdev); !sent) {
      schedule.on_send_error(packet->probe.token, now);
      send_error = sent.error().message();
    }
  }
}

void wait(const std::vector<int>& fds, Nanos wait_ns) {
  std::vector<pollfd> polled;
  for (int fd : fds) polled.push_back({fd, POLLIN, 0});
  const int wait_ms = static_cast<int>(std::clamp<Nanos>((wait_ns + kMillisecond - 1) / kMillisecond, 0, 60'000));
  (void)::poll(polled.data(), polled.size(), wait_ms);
}

}  // namespace

Result<std::unique_ptr<Tracer>> Tracer::start(TraceLimits limits, std::unique_ptr<TraceSocket> socket,
                                              const Clock& clock) {
  Fd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake) return errno_error(errno, "eventfd of the tracer");
  return std::unique_ptr<Tracer>(new Tracer(limits, std::move(socket), clock, std::move(wake)));
}

Tracer::Tracer(TraceLimits limits, std::unique_ptr<TraceSocket> socket, const Clock& clock, Fd wake)
    : schedule_(limits), socket_(std::move(socket)), clock_(clock), wake_(std::move(wake)), thread_([this] {
        run();
      }) {}

Tracer::~Tracer() {
  stop_ = true;
  wake();
  thread_.join();
}

void Tracer::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void Tracer::run() {
  name_this_thread("weft-trace");
  std::vector<int> fds = socket_->wait_fds();
  fds.push_back(wake_.get());
  while (!stop_) {
    Nanos wait_ns = 0;
    {
      std::lock_guard lock(mutex_);
      auto done = turn(schedule_, *socket_, clock_, send_error_);
      const Nanos now = clock_.monotonic_ns();
      wait_ns = schedule_.wake_at(now) - now;
      if (!done) {
        // A socket that fails once may fail for ever: do not spin on it.
        send_error_ = done.error().message();
        wait_ns = std::max(wait_ns, kSecond);
      }
    }
    wait(fds, wait_ns);
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
  }
}

Result<void> Tracer::apply() {
  auto outcome = schedule_.set_requests(requests_, clock_.monotonic_ns());
  wake();
  return outcome;
}

Result<void> Tracer::set_requests(const std::vector<TraceRequest>& requests) {
  std::lock_guard lock(mutex_);
  requests_ = requests;
  return apply();
}

Result<void> Tracer::add(const TraceRequest& request) {
  std::lock_guard lock(mutex_);
  const auto existing =
      std::find_if(requests_.begin(), requests_.end(), [&](const auto& r) { return same_path(r, request); });
  const bool fresh = existing == requests_.end();
  if (fresh) {
    requests_.push_back(request);
  } else {
    *existing = request;
  }
  auto outcome = apply();
  if (!outcome && fresh) requests_.pop_back();
  return outcome;
}

Result<void> Tracer::remove(const TraceRequest& request) {
  std::lock_guard lock(mutex_);
  std::erase_if(requests_, [&](const auto& r) { return same_path(r, request); });
  return apply();
}

std::vector<model::PathTrace> Tracer::take_traces() {
  std::lock_guard lock(mutex_);
  return schedule_.take_changed(clock_.monotonic_ns());
}

std::vector<TraceView> Tracer::views() const {
  std::lock_guard lock(mutex_);
  return schedule_.views();
}

TraceStats Tracer::stats() const {
  std::lock_guard lock(mutex_);
  return schedule_.stats();
}

std::string Tracer::take_send_error() {
  std::lock_guard lock(mutex_);
  return std::exchange(send_error_, {});
}

Result<TraceOnce> trace_once(const std::vector<TraceRequest>& requests, TraceLimits limits, TraceSocket& socket,
                             const Clock& clock, Nanos deadline_ns, const std::function<bool()>& stop,
                             const std::function<void(const std::vector<TraceView>&)>& on_change) {
  TraceSchedule schedule(limits);
  TraceOnce out;
  if (auto ok = schedule.set_requests(requests, clock.monotonic_ns()); !ok) return ok.error();
  const std::vector<int> fds = socket.wait_fds();
  for (;;) {
    auto arrived = turn(schedule, socket, clock, out.send_error);
    if (!arrived) return arrived.error();
    if (*arrived && on_change) on_change(schedule.views());
    out.finished = schedule.finished();
    const Nanos now = clock.monotonic_ns();
    if (out.finished || now >= deadline_ns || stop()) break;
    wait(fds, std::min({schedule.wake_at(now), deadline_ns, now + 100 * kMillisecond}) - now);
  }
  out.views = schedule.views();
  out.stats = schedule.stats();
  if (out.send_error.empty() && out.stats.send_errors > 0) {
    out.send_error = "the next hop does not answer this host (ARP or neighbour discovery)";
  }
  return out;
}

}  // namespace weft::probes
