#include "lib/http/bounded_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace weft::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{100};  // how often a waiting connection looks whether its time is over
// httplib's is 5. A client past it is not refused but tries again after 1, 3, 7 s, and others overtake it meanwhile.
constexpr int kBacklog = 1024;
// A usual answer leaves the thread at once, however slowly it is read.
constexpr int kSendBuffer = 1024 * 1024;

// httplib's own pool queues connections without bound, and each holds a descriptor that gRPC and SQLite need too. Here
// the accepting thread waits when all is taken.
class BoundedPool final : public httplib::TaskQueue {
 public:
  BoundedPool(unsigned threads, unsigned waiting, std::atomic<std::size_t>& unserved)
      : bound_(waiting), unserved_(unserved) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  void enqueue(std::function<void()> job) override {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return jobs_.size() < bound_ || stopping_; });
    jobs_.push_back(std::move(job));
    count();
    ready_.notify_one();
  }
  void shutdown() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_all();
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void count() { unserved_ = jobs_.size() > free_ ? jobs_.size() - free_ : 0; }
  void work() {
    while (true) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        ++free_;
        ready_.wait(lock, [&] { return !jobs_.empty() || stopping_; });
        --free_;
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
        count();
      }
      room_.notify_one();
      job();
    }
  }
  const std::size_t bound_;
  std::atomic<std::size_t>& unserved_;
  std::mutex mutex_;
  std::condition_variable ready_, room_;
  std::deque<std::function<void()>> jobs_;
  std::size_t free_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

void name_of(const sockaddr_storage& address, std::string& ip, int& port) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    port = ntohs(v6.sin6_port);
  }
  ip = text.data();
}

class TimedStream final : public httplib::Stream {
 public:
  // hurry: others wait. ended: the server stops.
  TimedStream(socket_t socket, const ConnectionLimits& limits, std::function<bool()> hurry, std::function<bool()> ended)
      : socket_(socket), limits_(limits), hurry_(std::move(hurry)), ended_(std::move(ended)) {}

  bool late() const { return late_; }
  std::function<void(Fd)> taker;

  bool is_readable() const override { return at_ < filled_ || wait(POLLIN); }
  bool is_writable() const override {
    if (taker) return true;
    if (!answering_) answering_ = steady_clock::now();
    return wait(POLLOUT);
  }
  ssize_t read(char* to, std::size_t size) override {
    if (at_ == filled_) {
      if (!wait(POLLIN)) return -1;
      ssize_t got = 0;
      do {
        got = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      } while (got < 0 && errno == EINTR);
      if (got <= 0) return got;
      at_ = 0;
      filled_ = static_cast<std::size_t>(got);
    }
    const std::size_t part = std::min(size, filled_ - at_);
    std::memcpy(to, buffer_.data() + at_, part);
    at_ += part;
    return static_cast<ssize_t>(part);
  }
  ssize_t write(const char* from, std::size_t size) override {
    if (taker) return static_cast<ssize_t>(size);
    if (!is_writable()) return -1;
    ssize_t sent = 0;
    do {
      sent = ::send(socket_, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0) name_of(address, ip, port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0) name_of(address, ip, port);
  }
  socket_t socket() const override { return socket_; }

 private:
  bool wait(short what) const {
    while (true) {
      const auto now = steady_clock::now();
      const auto spent = now - answering_.value_or(taken_);
      const milliseconds most = answering_ ? limits_.answer : limits_.request;
      const milliseconds patience = answering_ ? limits_.answer_patience : limits_.request_patience;
      const milliseconds allowed = hurry_() ? std::min(most, patience) : most;
      if (spent >= allowed) late_ = true;
      if (late_ || ended_()) return false;
      pollfd poll{socket_, what, 0};
      const int ready = ::poll(&poll, 1, static_cast<int>(std::min(kLook, patience).count()));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }

  const socket_t socket_;
  const ConnectionLimits& limits_;
  const std::function<bool()> hurry_, ended_;
  const steady_clock::time_point taken_ = steady_clock::now();
  // httplib asks through const functions, too.
  mutable std::optional<steady_clock::time_point> answering_;
  mutable bool late_ = false;
  std::array<char, 4096> buffer_;
  std::size_t at_ = 0, filled_ = 0;
};

// httplib shows its handlers no connection.
thread_local TimedStream* t_serving = nullptr;

}  // namespace

void BoundedServer::hand_over(std::function<void(Fd)> taker) {
  if (t_serving != nullptr) t_serving->taker = std::move(taker);
}

BoundedServer::BoundedServer(ConnectionLimits limits) : limits_(limits) {
  // The first that httplib calls once the socket listens.
  new_task_queue = [this] {
    ::listen(svr_sock_, kBacklog);
    return new BoundedPool(limits_.threads, limits_.waiting, unserved_);
  };
  // httplib would set SO_REUSEPORT, and a second server would silently take half of the requests.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  });
  set_default_headers({{"Accept-Ranges", "none"}});
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  TimedStream stream(
      socket, limits_, [this] { return unserved_ > 0; }, [this] { return svr_sock_ == INVALID_SOCKET; });
  bool closed = false;
  t_serving = &stream;
  const bool served = process_request(stream, true, closed, [](httplib::Request& request) {
    request.ranges.clear();
    request.headers.erase("Range");
    // httplib would rather answer in Brotli, at its slowest: a second of CPU for half a megabyte.
    const bool gzip = request.get_header_value("Accept-Encoding").find("gzip") != std::string::npos;
    request.headers.erase("Accept-Encoding");
    if (gzip) request.set_header("Accept-Encoding", "gzip");
  });
  t_serving = nullptr;
  if (stream.late()) ++cut_;
  if (stream.taker && served) {
    stream.taker(Fd(socket));
    return true;
  }
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return served;
}

}  // namespace weft::http
