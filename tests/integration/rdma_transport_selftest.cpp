// Two hosts, one RDMA transport each: does a UD packet leave by the port it should, arrive with its TOS and TTL, and
// does the device come free when it is deleted?
//   rdma_transport_selftest answer DEVICE SECONDS              echoes; lets the device go when it leaves, by uevent,
//                                                              and opens it again when it is back
//   rdma_transport_selftest health SECONDS                     scheduling gaps of this host, a line a second
//   rdma_transport_selftest ask DEVICE PEER_IP COUNT [PORTS]   probes every responder lane of the peer from every port
// Lanes are exchanged over UDP port 47911. Prints key=value lines; exit 0 when all came back.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string>

#include "agent/collectors/health/scheduling_gaps.h"
#include "agent/collectors/inventory/uevent_watch.h"
#include "lib/base/fd.h"
#include "probes/rdma/rdma_transport.h"

namespace {

using namespace weft;
using namespace weft::probes;

constexpr std::uint16_t kExchangePort = 47911;
constexpr std::uint8_t kEct0 = 2;

int fail(const std::string& what) {
  std::printf("error=\"%s\"\n", what.c_str());
  return 1;
}

Result<Fd> exchange_socket(bool bound) {
  Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kExchangePort);
  if (!fd || (bound && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0))
    return errno_error(errno, "exchange socket");
  return fd;
}

std::string lanes_text(const Transport& transport, Role role) {
  std::string text = transport.local_address().to_string();
  for (const LaneInfo& lane : transport.lanes())
    if (lane.role == role) text += " " + std::to_string(lane.number) + ":" + std::to_string(lane.source_port);
  return text;
}

void wait(Transport& transport, std::initializer_list<int> extra, int millis) {
  if (!transport.arm()) return;
  std::vector<pollfd> fds;
  for (const int fd : transport.wait_fds()) fds.push_back({fd, POLLIN, 0});
  for (const int fd : extra) fds.push_back({fd, POLLIN, 0});
  ::poll(fds.data(), fds.size(), millis);
}

class Echo final : public TransportEvents {
 public:
  explicit Echo(Transport& transport) : transport_(transport) {}
  void on_arrival(const Arrival& arrival) override {
    if (arrival.role != Role::Responder) return;
    ++arrivals;
    // Tells the asker how its packet arrived.
    std::vector<std::uint8_t> answer(arrival.payload.begin(), arrival.payload.end());
    if (answer.size() >= 16) {
      answer[8] = arrival.tos.has_value();
      answer[9] = arrival.tos.value_or(0);
      answer[10] = arrival.hop_limit.value_or(0);
    }
    auto queued = transport_.send(Role::Responder, arrival.local_number, 0, arrival.source, kEct0, answer, arrivals);
    if (!queued) std::printf("send_error=\"%s\"\n", queued.error().message().c_str());
  }
  void on_send_done(const SendDone& done) override { (done.ok ? sent : failed) += 1; }
  unsigned long arrivals = 0, sent = 0, failed = 0;

 private:
  Transport& transport_;
};

// Answers until the end, or until the device leaves: then the reason.
Result<void> answer_once(Transport& transport, inventory::UeventWatch& uevents, const std::string& device, int socket,
                         const Clock& clock, Nanos end) {
  const std::string lanes = lanes_text(transport, Role::Responder);
  std::printf("rung=%d max_payload=%zu responder=\"%s\"\n", static_cast<int>(transport.rung()),
              transport.max_payload_bytes(), lanes.c_str());
  Echo echo(transport);
  Result<void> result;
  while (result && clock.monotonic_ns() < end) {
    result = transport.poll(echo);
    const auto events = uevents.take();
    for (const auto& event : events.value_or(std::vector<inventory::DeviceEvent>{}))
      if (event == inventory::DeviceEvent{inventory::DeviceEvent::Kind::Removed, device})
        result = make_error(Error::Kind::NotFound, "uevent: " + device + " leaves");
    char byte = 0;
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::recvfrom(socket, &byte, 1, 0, reinterpret_cast<sockaddr*>(&peer), &size) > 0)
      ::sendto(socket, lanes.data(), lanes.size(), 0, reinterpret_cast<sockaddr*>(&peer), size);
    if (result) wait(transport, {socket, uevents.fd()}, 100);
  }
  std::printf("arrivals=%lu sent=%lu failed=%lu low_water=%u\n", echo.arrivals, echo.sent, echo.failed,
              transport.take_responder_low_water().value_or(0));
  return result;
}

int answer(const std::string& device, int seconds) {
  const SystemClock clock;
  const SystemFiles files;
  const Nanos end = clock.monotonic_ns() + seconds * kSecond;
  auto source = inventory::open_kernel_uevents();
  if (!source) return fail(source.error().message());
  inventory::UeventWatch uevents(std::move(*source), files, "/sys");
  auto socket = exchange_socket(true);
  if (!socket) return fail(socket.error().message());
  while (clock.monotonic_ns() < end) {
    auto transport = open_rdma_transport({.device = device});
    if (!transport) {
      std::printf("waiting=\"%s\"\n", transport.error().message().c_str());
      pollfd fd{uevents.fd(), POLLIN, 0};
      ::poll(&fd, 1, 500);
      (void)uevents.take();
      continue;
    }
    const auto ended = answer_once(**transport, uevents, device, socket->get(), clock, end);
    const Nanos noticed = clock.monotonic_ns();
    transport->reset();
    std::printf("closed reason=\"%s\" close_ms=%lld\n", ended ? "time is up" : ended.error().message().c_str(),
                static_cast<long long>((clock.monotonic_ns() - noticed) / kMillisecond));
    std::fflush(stdout);
  }
  return 0;
}

int show_health(int seconds) {
  const SystemClock clock;
  const SystemFiles files;
  health::HealthMonitor monitor(clock, files, "/proc");
  for (int second = 0; second < seconds; ++second) {
    ::poll(nullptr, 0, 1000);
    const auto window = monitor.take_window();
    std::printf("window_ms=%lld max_gap_ms=%lld total_gap_ms=%lld cpu_pressure=%.3f\n",
                static_cast<long long>(window.window_ns / kMillisecond),
                static_cast<long long>(window.max_gap_ns / kMillisecond),
                static_cast<long long>(window.total_gap_ns / kMillisecond), window.cpu_pressure_some.value_or(-1));
    std::fflush(stdout);
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("own_cpu_ms=%ld\n", usage.ru_utime.tv_sec * 1000 + usage.ru_utime.tv_usec / 1000 +
                                      usage.ru_stime.tv_sec * 1000 + usage.ru_stime.tv_usec / 1000);
  return 0;
}

struct Asker final : TransportEvents {
  struct Seen {
    unsigned sent = 0, back = 0;
    Nanos sent_ns = 0, best_ns = 0;
    std::string forward, backward;
  };
  std::map<std::uint64_t, Seen> seen;  // by prober port << 32 | peer number
  unsigned long done = 0, failed = 0;
  std::string error;
  void on_arrival(const Arrival& arrival) override {
    std::uint64_t key = 0;
    if (arrival.role != Role::Prober || arrival.payload.size() < 16) return;
    std::memcpy(&key, arrival.payload.data(), sizeof key);
    const auto found = seen.find(key);
    if (found == seen.end()) return;
    Seen& entry = found->second;
    ++entry.back;
    const Nanos rtt = arrival.handled_ns - entry.sent_ns;
    entry.best_ns = entry.best_ns == 0 ? rtt : std::min(entry.best_ns, rtt);
    const auto words = [](bool has, unsigned tos, unsigned ttl) {
      return has ? "tos=" + std::to_string(tos) + ",ttl=" + std::to_string(ttl) : std::string("absent");
    };
    entry.forward = words(arrival.payload[8] != 0, arrival.payload[9], arrival.payload[10]);
    entry.backward = words(arrival.tos.has_value(), arrival.tos.value_or(0), arrival.hop_limit.value_or(0));
  }
  void on_send_done(const SendDone& result) override {
    ++(result.ok ? done : failed);
    if (!result.ok) error = result.error;
  }
};

Result<std::string> ask_lanes(const std::string& peer) {
  auto socket = exchange_socket(false);
  if (!socket) return socket.error();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kExchangePort);
  if (::inet_pton(AF_INET, peer.c_str(), &address.sin_addr) != 1)
    return make_error(Error::Kind::Invalid, peer + " is not an IPv4 address");
  for (int attempt = 0; attempt < 40; ++attempt) {
    ::sendto(socket->get(), "?", 1, 0, reinterpret_cast<sockaddr*>(&address), sizeof address);
    pollfd fd{socket->get(), POLLIN, 0};
    ::poll(&fd, 1, 500);
    char text[2048];
    const auto got = ::recv(socket->get(), text, sizeof text, 0);
    if (got > 0) return std::string(text, static_cast<std::size_t>(got));
  }
  return make_error(Error::Kind::Timeout, "no answer from " + peer);
}

int ask(const std::string& device, const std::string& peer, unsigned count, unsigned ports) {
  const SystemClock clock;
  auto opened = open_rdma_transport({.device = device, .responder = false});
  if (!opened) return fail(opened.error().message());
  Transport& transport = **opened;
  if (auto more = transport.want_ports(Role::Prober, ports); !more) return fail(more.error().message());
  auto lanes = ask_lanes(peer);
  if (!lanes) return fail(lanes.error().message());
  std::printf("local=\"%s\" peer=\"%s\"\n", lanes_text(transport, Role::Prober).c_str(), lanes->c_str());

  std::istringstream words(*lanes);
  std::string gid_text, lane;
  words >> gid_text;
  auto gid = model::Gid::parse(gid_text);
  if (!gid) return fail(gid.error().message());
  std::vector<Destination> targets;
  while (words >> lane) targets.push_back({*gid, static_cast<std::uint32_t>(std::strtoul(lane.c_str(), nullptr, 10))});

  Asker asker;
  unsigned long posted = 0, refused = 0;
  for (unsigned round = 0; round < count; ++round) {
    for (const std::uint16_t port : transport.source_ports(Role::Prober)) {
      for (const Destination& to : targets) {
        const std::uint64_t key = (std::uint64_t{port} << 32) | to.number;
        std::vector<std::uint8_t> payload(64);
        std::memcpy(payload.data(), &key, sizeof key);
        Asker::Seen& entry = asker.seen[key];
        entry.sent_ns = clock.monotonic_ns();
        if (auto queued = transport.send(Role::Prober, 0, port, to, kEct0, payload, ++posted); !queued) {
          ++refused;
          asker.error = queued.error().message();
        } else {
          ++entry.sent;
        }
        const Nanos until = clock.monotonic_ns() + 20 * kMillisecond;
        for (Nanos now = clock.monotonic_ns(); now < until; now = clock.monotonic_ns()) {
          if (auto polled = transport.poll(asker); !polled) return fail(polled.error().message());
          wait(transport, {}, static_cast<int>((until - now) / kMillisecond) + 1);
        }
      }
    }
  }
  const Nanos until = clock.monotonic_ns() + kSecond;
  while (clock.monotonic_ns() < until) {
    if (auto polled = transport.poll(asker); !polled) return fail(polled.error().message());
    wait(transport, {}, 100);
  }
  unsigned long back = 0;
  for (const auto& [key, entry] : asker.seen) {
    back += entry.back;
    std::printf("port=%u to=%u sent=%u back=%u best_us=%lld forward=%s backward=%s\n", static_cast<unsigned>(key >> 32),
                static_cast<unsigned>(key & 0xFFFFFFFF), entry.sent, entry.back,
                static_cast<long long>(entry.best_ns / kMicrosecond), entry.forward.c_str(), entry.backward.c_str());
  }
  std::printf("asked=%lu back=%lu send_done=%lu failed=%lu refused=%lu error=\"%s\"\n", posted, back, asker.done,
              asker.failed, refused, asker.error.c_str());
  return back == posted ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "answer" && argc == 4) return answer(argv[2], std::atoi(argv[3]));
  if (mode == "health" && argc == 3) return show_health(std::atoi(argv[2]));
  if (mode == "ask" && argc >= 5)
    return ask(argv[2], argv[3], static_cast<unsigned>(std::atoi(argv[4])),
               argc > 5 ? static_cast<unsigned>(std::atoi(argv[5])) : 8);
  std::fprintf(stderr, "usage: %s answer DEVICE SECONDS | health SECONDS | ask DEVICE PEER_IP COUNT [PORTS]\n",
               argv[0]);
  return 2;
}
