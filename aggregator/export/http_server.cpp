#include "aggregator/export/http_server.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "aggregator/config.h"
#include "aggregator/export/api_routes.h"
#include "aggregator/export/event_feed.h"
#include "aggregator/export/metrics_page.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/metrics/exposition.h"

namespace weft::aggregator {
namespace {

constexpr std::size_t kMaxPath = 2048;

// Above every id that a former process gave: no clock of a host is set back by as many milliseconds as it gave events.
std::uint64_t first_event_id(const Clock& clock) {
  return static_cast<std::uint64_t>(clock.wall_ns() / kMillisecond) * 1000;
}

// Of the pages that this server serves itself, and of no other.
bool from_own_page(const httplib::Request& request) {
  const std::string host = request.get_header_value("Host");
  if (request.get_header_value("Origin") != "http://" + host) return false;
  // A foreign name that is made to point here would pass as ours; an address or this machine's name would not.
  const std::string name = host.substr(0, host.rfind(']') == std::string::npos ? host.find(':') : host.rfind(']') + 1);
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  in_addr address{};
  const bool v6 = name.size() > 1 && name.front() == '[' && name.back() == ']';
  return v6 || name == "localhost" || (!name.empty() && name == own.data()) ||
         ::inet_pton(AF_INET, name.c_str(), &address) == 1;
}

}  // namespace

struct HttpServer::Impl {
  Impl(HttpLimits l, GetSnapshot get, MessageQueue& queue, const Clock& c, std::string v)
      : limits(l),
        snapshot(std::move(get)),
        clock(c),
        version(std::move(v)),
        events(l.events, first_event_id(clock)),
        feed(events, version),
        api({snapshot, [this](metrics::PageFormat format) { return metrics_page(format); }, queue, clock, events,
             version, l.command_wait, l.stale_after_ns}),
        server(l.connections) {}

  const HttpLimits limits;
  const GetSnapshot snapshot;
  const Clock& clock;
  const std::string version;
  http::EventStream events;
  EventFeed feed;
  std::shared_ptr<const Snapshot> fed;  // what the feed saw last
  Api api;
  metrics::Exposition exposition{"weft-aggregator"};
  std::array<std::atomic<std::uint64_t>, 6> counts{};
  http::BoundedServer server;
  int port = 0;
  std::thread thread;
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;

  void set_up();
  std::string detail_of(int status) const;
  bool route(const httplib::Request& request, httplib::Response& response);
  std::string metrics_page(metrics::PageFormat format);
};

bool HttpServer::Impl::route(const httplib::Request& request, httplib::Response& response) {
  if (request.path.size() > kMaxPath) {
    refuse(response, 414, "the path is longer than " + std::to_string(kMaxPath) + " bytes");
    return true;
  }
  if (request.method == "GET" || request.method == "HEAD") {
    api.serve(request, response);
    return true;
  }
  if (request.method != "POST") {
    response.set_header("Allow", "GET, HEAD, POST");
    refuse(response, 405, "only GET, HEAD and POST");
    return true;
  }
  // A page in a browser must not be able to clear findings behind its reader's back.
  if (request.has_header("Origin") && !from_own_page(request)) {
    refuse(response, 403,
           "requests from other web pages are refused, and from ours unless it was opened by address, as localhost or "
           "by the name of the host it runs on");
    return true;
  }
  // No command has a body. Without a length httplib would wait for one until its timeout (curl -X POST sends none).
  const std::string length = request.get_header_value("Content-Length");
  if ((length.empty() || length == "0") && !request.has_header("Transfer-Encoding")) {
    api.serve(request, response);
    return true;
  }
  return false;
}

std::string HttpServer::Impl::metrics_page(metrics::PageFormat format) {
  HttpCounts http;
  for (std::size_t i = 0; i < http.answers.size(); ++i) http.answers[i] = counts[i].load();
  http.cut = server.cut();
  http.watchers = events.watchers();
  http.watchers_refused = events.refused();
  http.watchers_cut = events.cut();
  http.events = events.published();
  const std::shared_ptr<const Snapshot> now = snapshot();
  return exposition.render(metric_samples(*now, version, process_cpu_time(), http), format,
                           clock.monotonic_ns() - now->monotonic_ns);
}

// What httplib refuses by itself, before any handler.
std::string HttpServer::Impl::detail_of(int status) const {
  switch (status) {
    case 400:
      return "this is no HTTP request that can be read: it begins with METHOD PATH HTTP/1.1, METHOD is GET, HEAD or "
             "POST, and each header line has at most " +
             std::to_string(CPPHTTPLIB_HEADER_MAX_LENGTH) + " bytes";
    case 413:
      return "the body is too long: no request needs one, and at most " +
             std::to_string(std::min<std::size_t>(limits.body_bytes, CPPHTTPLIB_FORM_URL_ENCODED_PAYLOAD_MAX_LENGTH)) +
             " bytes are always read";
    case 414:
      return "the request line is longer than " + std::to_string(CPPHTTPLIB_REQUEST_URI_MAX_LENGTH) +
             " bytes; a path has at most " + std::to_string(kMaxPath);
    case 416:
      return "the Range header is not of the form bytes=FIRST-LAST; leave it out, as answers are always whole";
    default:
      return status >= 500 ? "see the log of the aggregator" : "the request cannot be served";
  }
}

void HttpServer::Impl::set_up() {
  server.set_payload_max_length(limits.body_bytes);
  server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    return route(request, response) ? httplib::Server::HandlerResponse::Handled
                                    : httplib::Server::HandlerResponse::Unhandled;
  });
  server.Post(".*",
              [this](const httplib::Request& request, httplib::Response& response) { api.serve(request, response); });
  server.set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    // Of a Range that it cannot read httplib keeps what it could, and would cut the problem document by it.
    const_cast<httplib::Request&>(request).ranges.clear();
    refuse(response, response.status, detail_of(response.status));
  });
  server.set_exception_handler([](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
    refuse(response, 500, "see the log of the aggregator");
    log::error("http", "a handler threw");
  });
  server.set_logger([this](const httplib::Request&, const httplib::Response& response) {
    const auto status = static_cast<std::size_t>(response.status < 0 ? 0 : response.status / 100);
    if (status < counts.size()) ++counts[status];
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  impl_->events.stop();
  impl_->server.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, HttpLimits limits,
                                                      GetSnapshot snapshot, MessageQueue& queue, const Clock& clock,
                                                      std::string version) {
  const auto where = parse_host_port(address, kUsualHttpPort);
  if (!where) return where.error();
  auto impl = std::make_unique<Impl>(limits, std::move(snapshot), queue, clock, std::move(version));
  impl->set_up();
  impl->port = where->port == 0 ? impl->server.bind_to_any_port(where->host)
                                : (impl->server.bind_to_port(where->host, where->port) ? where->port : -1);
  if (impl->port <= 0) {
    return make_error(Error::Kind::Invalid, "cannot serve HTTP on " + address +
                                                ": address in use or not local; see [listen] http or "
                                                "--listen-http");
  }
  Impl* raw = impl.get();
  impl->thread = std::thread([raw] {
    raw->server.listen_after_bind();
    std::lock_guard lock(raw->mutex);
    raw->done = true;
    raw->ended.notify_all();
  });
  // stop() before the loop runs would be lost.
  while (!impl->server.is_running()) std::this_thread::yield();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

int HttpServer::port() const { return impl_->port; }

void HttpServer::published() {
  auto now = impl_->snapshot();
  if (now == impl_->fed) return;
  impl_->feed.look(*now);
  impl_->fed = std::move(now);
}

bool HttpServer::stop(std::chrono::milliseconds wait) {
  impl_->events.stop();
  impl_->server.stop();
  std::unique_lock lock(impl_->mutex);
  return impl_->ended.wait_for(lock, wait, [&] { return impl_->done; });
}

}  // namespace weft::aggregator
