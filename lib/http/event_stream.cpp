#include "lib/http/event_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace weft::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What the kernel may hold for one watcher; that of an answer is larger.
constexpr int kSendBuffer = 64 * 1024;
constexpr unsigned kDeadAfterMs = 30'000;  // sent and not acknowledged by the peer's kernel

constexpr std::string_view kHead =
    "HTTP/1.1 200 OK\r\n"
    "Content-Type: text/event-stream\r\n"
    "Cache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Accel-Buffering: no\r\n"
    "Connection: close\r\n\r\n";

std::string frame(std::string_view type, std::string_view data, std::optional<std::uint64_t> id) {
  std::string out;
  if (id) out += "id: " + std::to_string(*id) + "\n";
  out.append("event: ").append(type).append("\n");
  while (!data.empty() && data.back() == '\n') data.remove_suffix(1);
  // A line break in the data begins another data line.
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = std::min(data.find('\n', begin), data.size());
    out.append("data: ").append(data.substr(begin, end - begin)).append("\n");
    if (end == data.size()) break;
    begin = end + 1;
  }
  return out += "\n";
}

}  // namespace

EventStream::EventStream(EventLimits limits, std::uint64_t first_id)
    : limits_(limits), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), next_id_(first_id) {
  thread_ = std::thread([this] { run(); });
}

EventStream::~EventStream() { stop(); }

void EventStream::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void EventStream::wake() {
  const std::uint64_t one = 1;
  // It fails only when it is awake already.
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

std::shared_ptr<EventStream::Seat> EventStream::take_seat() {
  if (++taken_ <= limits_.watchers) return std::make_shared<Seat>(taken_);
  --taken_;
  ++refused_;
  return nullptr;
}

void EventStream::add(Fd connection, std::shared_ptr<Seat> seat, std::optional<std::uint64_t> last_id) {
  ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  ::setsockopt(connection.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kDeadAfterMs, sizeof kDeadAfterMs);
  Watcher watcher;
  watcher.socket = std::move(connection);
  watcher.seat = std::move(seat);
  watcher.moved = steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    watcher.saying = std::make_shared<const std::string>(greeting(watcher, last_id));
    coming_.push_back(std::move(watcher));
  }
  wake();
}

// With the lock held.
std::string EventStream::greeting(Watcher& watcher, std::optional<std::uint64_t> last_id) const {
  const std::uint64_t newest = next_id_ - 1, oldest = next_id_ - kept_.size();
  std::string out(kHead);
  out += "retry: " + std::to_string(limits_.retry.count()) + "\n\n";
  watcher.next_id = next_id_;
  watcher.state_seen = state_version_;
  if (last_id && *last_id + 1 >= oldest && *last_id <= newest) {
    watcher.next_id = *last_id + 1;
    watcher.state_seen = 0;
    return out;
  }
  if (last_id) {
    const std::string data = R"({"schema":1,"last_event_id":")" + std::to_string(*last_id) + R"(","oldest":")" +
                             std::to_string(oldest) + R"(","newest":")" + std::to_string(newest) + "\"}";
    out += frame("gap", data, newest);
  }
  // With the id, so that it can resume even when nothing happens until it is cut off.
  if (state_) out += frame(state_type_, state_data_, newest);
  return out;
}

void EventStream::publish(std::string_view type, std::string_view data) {
  {
    std::lock_guard lock(mutex_);
    kept_.push_back(std::make_shared<const std::string>(frame(type, data, next_id_++)));
    kept_bytes_ += kept_.back()->size();
    while (kept_.size() > limits_.kept || (kept_bytes_ > limits_.kept_bytes && kept_.size() > 1)) {
      kept_bytes_ -= kept_.front()->size();
      kept_.pop_front();
    }
  }
  ++published_;
  wake();
}

void EventStream::set_state(std::string_view type, std::string_view data) {
  {
    std::lock_guard lock(mutex_);
    state_type_ = type;
    state_data_ = data;
    state_ = std::make_shared<const std::string>(frame(type, data, std::nullopt));
    ++state_version_;
  }
  wake();
}

// With the lock held.
bool EventStream::next(Watcher& watcher, steady_clock::time_point now) const {
  static const auto kHeartbeat = std::make_shared<const std::string>(":\n\n");
  watcher.said = 0;
  watcher.saying = nullptr;
  if (watcher.next_id < next_id_) {
    const std::uint64_t oldest = next_id_ - kept_.size();
    if (watcher.next_id < oldest) return false;
    watcher.saying = kept_[watcher.next_id++ - oldest];
  } else if (watcher.state_seen != state_version_ && state_) {
    watcher.state_seen = state_version_;
    watcher.saying = state_;
  } else if (now - watcher.moved >= limits_.heartbeat) {
    watcher.saying = kHeartbeat;
  }
  return true;
}

bool EventStream::serve(Watcher& watcher, short events) {
  if ((events & (POLLERR | POLLNVAL)) != 0) return false;
  if ((events & (POLLIN | POLLHUP | POLLRDHUP)) != 0) {
    // It has nothing to say; what it says nevertheless is dropped, and its end ends it.
    std::array<char, 512> dropped;
    const ssize_t got = ::recv(watcher.socket.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
  }
  while (true) {
    const auto now = steady_clock::now();
    if (!watcher.saying) {
      std::lock_guard lock(mutex_);
      if (!next(watcher, now)) {
        ++cut_;
        return false;
      }
      if (!watcher.saying) return true;
    }
    const ssize_t sent = ::send(watcher.socket.get(), watcher.saying->data() + watcher.said,
                                watcher.saying->size() - watcher.said, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      watcher.moved = now;
      watcher.blocked.reset();
      watcher.said += static_cast<std::size_t>(sent);
      if (watcher.said == watcher.saying->size()) watcher.saying = nullptr;
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return false;
    if (!watcher.blocked) watcher.blocked = now;
    if (now - *watcher.blocked < limits_.stall) return true;
    ++cut_;
    return false;
  }
}

void EventStream::run() {
  std::vector<Watcher> watchers;
  std::vector<pollfd> polled;
  const auto look = static_cast<int>(std::min(limits_.heartbeat, limits_.stall).count() / 4 + 1);
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (Watcher& watcher : coming_) watchers.push_back(std::move(watcher));
      coming_.clear();
    }
    std::size_t left = 0;
    for (std::size_t i = 0; i < watchers.size(); ++i) {
      const short events = i + 1 < polled.size() ? polled[i + 1].revents : short{0};
      if (!serve(watchers[i], events)) continue;
      if (left != i) watchers[left] = std::move(watchers[i]);
      ++left;
    }
    watchers.resize(left);
    polled.assign(1, {wake_.get(), POLLIN, 0});
    for (const Watcher& watcher : watchers) {
      polled.push_back(
          {watcher.socket.get(), static_cast<short>(POLLIN | POLLRDHUP | (watcher.saying ? POLLOUT : 0)), 0});
    }
    ::poll(polled.data(), polled.size(), look);
    std::uint64_t times = 0;
    static_cast<void>(!::read(wake_.get(), &times, sizeof times));
  }
}

}  // namespace weft::http
