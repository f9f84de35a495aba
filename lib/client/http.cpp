#include "lib/client/http.h"

#include <fcntl.h>
#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "lib/base/fd.h"

namespace weft::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{50};  // how often a stop is looked for
constexpr milliseconds kEnd{250};  // what a request that was cut off may take to end
constexpr const char* kDigits = "0123456789";

Error invalid(std::string why) { return make_error(Error::Kind::Invalid, std::move(why)); }

// Shared with a thread that may outlive the call: the resolver cannot be interrupted.
struct Call {
  explicit Call(const HttpRequest& asked) : request(asked) { request.stopped = nullptr; }

  void run();
  void cut_off();

  HttpRequest request;
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  HttpOutcome outcome;
  Fd socket;  // a duplicate, so that the number cannot have become another file's
};

HttpFailure failure_of(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
    case httplib::Error::BindIPAddress:
      return HttpFailure::NoConnection;
    case httplib::Error::Canceled:
      return HttpFailure::TooLarge;
    default:
      return HttpFailure::Broken;
  }
}

void Call::run() {
  HttpOutcome out;
  try {
    httplib::Client http(request.to.host, request.to.port);
    const auto silence = request.silence.count() > 0 ? request.silence : request.deadline;
    http.set_connection_timeout(silence);
    http.set_read_timeout(silence);
    http.set_write_timeout(request.deadline);
    http.set_socket_options([this](int made) {
      const std::lock_guard lock(mutex);
      socket.reset(::fcntl(made, F_DUPFD_CLOEXEC, 0));
    });
    httplib::Request asked;
    asked.method = request.method;
    asked.path = request.path;
    if (asked.method == "POST") asked.set_header("Content-Length", "0");
    asked.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
      if (request.part) {
        request.part({data, size});
        return true;
      }
      if (out.answer.body.size() + size > request.max_body_bytes) return false;
      out.answer.body.append(data, size);
      return true;
    };
    const httplib::Result result = http.send(asked);
    out.answered = static_cast<bool>(result);
    if (result) {
      out.answer.status = result->status;
    } else {
      out.failure = failure_of(result.error());
    }
  } catch (const std::exception&) {
    out.answered = false;
    out.failure = HttpFailure::Broken;
  }
  const std::lock_guard lock(mutex);
  outcome = std::move(out);
  socket.reset();
  done = true;
  ended.notify_all();
}

// With the lock held.
void Call::cut_off() {
  if (socket) ::shutdown(socket.get(), SHUT_RDWR);
}

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& text) {
  if (text.empty()) return invalid("it is empty");
  std::string rest = text;
  bool schemeless = true;
  if (const auto at = rest.find("://"); at != std::string::npos) {
    if (rest.compare(0, at, "http") != 0) return invalid("only http:// works");
    rest.erase(0, at + 3);
    schemeless = false;
  }
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  if (rest.find_first_of("/?#@ \t") != std::string::npos || rest.find("//") != std::string::npos) {
    return invalid("only a host and a port belong into it");
  }
  Endpoint out;
  std::string port;
  bool has_port = false;
  if (!rest.empty() && rest.front() == '[') {
    const auto end = rest.find(']');
    if (end == std::string::npos) return invalid("the bracket of its IPv6 address is not closed");
    out.host = rest.substr(1, end - 1);
    const std::string after = rest.substr(end + 1);
    if (!after.empty() && after.front() != ':') return invalid("after the IPv6 address only a port belongs into it");
    has_port = !after.empty();
    if (has_port) port = after.substr(1);
  } else {
    const auto colon = rest.find(':');
    if (colon != std::string::npos && rest.find(':', colon + 1) != std::string::npos) {
      return invalid("an IPv6 address needs brackets, like [::1]:7470");
    }
    out.host = rest.substr(0, colon);
    has_port = colon != std::string::npos;
    if (has_port) port = rest.substr(colon + 1);
  }
  if (out.host.empty()) return invalid("it has no host");
  if (has_port) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
    if (error != std::errc{} || end != port.data() + port.size() || value == 0 || value > 65535) {
      return invalid("its port is no number from 1 to 65535");
    }
    out.port = static_cast<std::uint16_t>(value);
  } else if (schemeless) {
    return invalid(out.host.find_first_not_of(kDigits) == std::string::npos ? "it has no host" : "it has no port");
  }
  return out;
}

HttpOutcome http_ask(const HttpRequest& request) {
  const auto until = steady_clock::now() + request.deadline;
  const auto call = std::make_shared<Call>(request);
  std::thread([call] { call->run(); }).detach();
  std::unique_lock lock(call->mutex);
  const auto done = [&] { return call->done; };
  HttpFailure cut = HttpFailure::Deadline;
  while (true) {
    if (call->ended.wait_until(lock, std::min(until, steady_clock::now() + kLook), done)) {
      return std::move(call->outcome);
    }
    if (steady_clock::now() >= until) break;
    lock.unlock();
    const bool stopped = request.stopped && request.stopped();
    lock.lock();
    if (stopped) {
      cut = HttpFailure::Stopped;
      break;
    }
  }
  call->cut_off();
  call->ended.wait_for(lock, kEnd, done);
  HttpOutcome out;
  out.failure = cut;
  return out;
}

}  // namespace weft::client
