#include "aggregator/export/http_server.h"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "aggregator/config.h"
#include "aggregator/export/api_json.h"
#include "aggregator/export/metrics_page.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/metrics/exposition.h"

namespace weft::aggregator {
namespace {

constexpr std::size_t kMaxPath = 2048;

constexpr const char* title_of(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 416:
      return "Range Not Satisfiable";
    case 503:
      return "Service Unavailable";
    default:
      return status >= 500 ? "Internal Server Error" : "Error";
  }
}

void problem(httplib::Response& response, int status, const std::string& detail) {
  response.status = status;
  response.set_content(problem_json(status, title_of(status), detail), "application/problem+json");
}

void answer(httplib::Response& response, std::string body) {
  response.status = 200;
  response.set_header("Cache-Control", "no-store");
  response.set_content(std::move(body), "application/json");
}

constexpr const char* kPaths =
    "known: /api/v1/status, /api/v1/findings, /api/v1/findings/ID, /api/v1/mesh, /api/v1/paths, /api/v1/links, "
    "/api/v1/hosts, /healthz, /metrics; POST /api/v1/findings/ID/ack, /api/v1/findings/clear";

}  // namespace

struct HttpServer::Impl {
  Impl(HttpLimits l, GetSnapshot get, MessageQueue& q, const Clock& c, std::string v)
      : limits(l), snapshot(std::move(get)), queue(q), clock(c), version(std::move(v)), server(l.connections) {}

  const HttpLimits limits;
  const GetSnapshot snapshot;
  MessageQueue& queue;
  const Clock& clock;
  const std::string version;
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
  void get(const httplib::Request& request, httplib::Response& response);
  void post(const httplib::Request& request, httplib::Response& response);
  void get_table(const httplib::Request& request, httplib::Response& response,
                 std::string (*body)(const Snapshot&, std::size_t));
  void health(httplib::Response& response);
  void page(const httplib::Request& request, httplib::Response& response);
  void acknowledge(const std::string& id, httplib::Response& response);
  void clear(httplib::Response& response);
};

bool HttpServer::Impl::route(const httplib::Request& request, httplib::Response& response) {
  if (request.path.size() > kMaxPath) {
    problem(response, 414, "the path is longer than " + std::to_string(kMaxPath) + " bytes");
    return true;
  }
  if (request.method == "GET" || request.method == "HEAD") {
    get(request, response);
    return true;
  }
  if (request.method != "POST") {
    problem(response, 405, "only GET, HEAD and POST");
    return true;
  }
  // A page in a browser must not be able to clear findings behind its reader's back.
  if (request.has_header("Origin")) {
    problem(response, 403, "requests from web pages are refused");
    return true;
  }
  // No command has a body. Without a length httplib would wait for one until its timeout (curl -X POST sends none).
  const std::string length = request.get_header_value("Content-Length");
  if ((length.empty() || length == "0") && !request.has_header("Transfer-Encoding")) {
    post(request, response);
    return true;
  }
  return false;
}

void HttpServer::Impl::post(const httplib::Request& request, httplib::Response& response) {
  constexpr std::string_view kFinding = "/api/v1/findings/";
  constexpr std::string_view kAck = "/ack";
  const std::string& path = request.path;
  if (path == "/api/v1/findings/clear") {
    clear(response);
  } else if (path.size() > kFinding.size() + kAck.size() && path.compare(0, kFinding.size(), kFinding) == 0 &&
             path.compare(path.size() - kAck.size(), kAck.size(), kAck) == 0) {
    acknowledge(path.substr(kFinding.size(), path.size() - kFinding.size() - kAck.size()), response);
  } else {
    problem(response, 404, kPaths);
  }
}

void HttpServer::Impl::get(const httplib::Request& request, httplib::Response& response) {
  const std::string& path = request.path;
  const std::shared_ptr<const Snapshot> now = snapshot();
  constexpr std::string_view kFinding = "/api/v1/findings/";
  if (path == "/api/v1/status") {
    answer(response, status_json(*now, version));
  } else if (path == "/api/v1/findings") {
    const auto query = parse_findings_query(request.params, clock.wall_ns());
    query ? answer(response, findings_json(*now, *query)) : problem(response, 400, query.error().context);
  } else if (path.compare(0, kFinding.size(), kFinding) == 0) {
    const std::string id = path.substr(kFinding.size());
    const auto body = finding_json(*now, id);
    body ? answer(response, *body) : problem(response, 404, "no finding has this id; see /api/v1/findings");
  } else if (path == "/api/v1/mesh") {
    get_table(request, response, mesh_json);
  } else if (path == "/api/v1/paths") {
    get_table(request, response, paths_json);
  } else if (path == "/api/v1/links") {
    get_table(request, response, links_json);
  } else if (path == "/api/v1/hosts") {
    get_table(request, response, hosts_json);
  } else if (path == "/healthz") {
    health(response);
  } else if (path == "/metrics") {
    page(request, response);
  } else {
    problem(response, 404, kPaths);
  }
}

void HttpServer::Impl::get_table(const httplib::Request& request, httplib::Response& response,
                                 std::string (*body)(const Snapshot&, std::size_t)) {
  const auto limit = parse_limit(request.params);
  limit ? answer(response, body(*snapshot(), *limit)) : problem(response, 400, limit.error().context);
}

void HttpServer::Impl::health(httplib::Response& response) {
  const Nanos age = clock.monotonic_ns() - snapshot()->monotonic_ns;
  if (age > limits.stale_after_ns) {
    problem(response, 503, "no judgement for " + std::to_string(age / kSecond) + " s");
    return;
  }
  response.status = 200;
  response.set_content("ok\n", "text/plain");
}

void HttpServer::Impl::page(const httplib::Request& request, httplib::Response& response) {
  HttpCounts http;
  for (std::size_t i = 0; i < http.answers.size(); ++i) http.answers[i] = counts[i].load();
  http.cut = server.cut();
  const std::shared_ptr<const Snapshot> now = snapshot();
  const metrics::PageFormat format = metrics::choose_format(request.get_header_value("Accept"));
  response.status = 200;
  response.set_header("Vary", "Accept");
  response.set_content(exposition.render(metric_samples(*now, version, process_cpu_time(), http), format,
                                         clock.monotonic_ns() - now->monotonic_ns),
                       std::string(metrics::content_type(format)));
}

void HttpServer::Impl::acknowledge(const std::string& id, httplib::Response& response) {
  auto promise = std::make_shared<std::promise<Result<model::Finding>>>();
  std::future<Result<model::Finding>> future = promise->get_future();
  queue.push(AcknowledgeFinding{id, std::move(promise)});
  if (future.wait_for(limits.command_wait) != std::future_status::ready) {
    problem(response, 503, "judging did not answer in time; look at /api/v1/findings whether it was done");
    return;
  }
  const Result<model::Finding> finding = future.get();
  finding ? answer(response, finding_json(*finding)) : problem(response, 404, finding.error().context);
}

void HttpServer::Impl::clear(httplib::Response& response) {
  auto promise = std::make_shared<std::promise<std::size_t>>();
  std::future<std::size_t> future = promise->get_future();
  queue.push(ClearFindings{std::move(promise)});
  if (future.wait_for(limits.command_wait) != std::future_status::ready) {
    problem(response, 503, "judging did not answer in time; look at /api/v1/findings whether it was done");
    return;
  }
  answer(response, cleared_json(future.get()));
}

// What httplib refuses by itself, before any handler.
std::string HttpServer::Impl::detail_of(int status) const {
  switch (status) {
    case 400:
      return "this is no HTTP request that can be read: it begins with METHOD PATH HTTP/1.1, METHOD is GET, HEAD or "
             "POST, and each header line has at most " +
             std::to_string(CPPHTTPLIB_HEADER_MAX_LENGTH) + " bytes";
    case 404:
      return kPaths;
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
  server.Post(".*", [this](const httplib::Request& request, httplib::Response& response) { post(request, response); });
  server.set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    // Of a Range that it cannot read httplib keeps what it could, and would cut the problem document by it.
    const_cast<httplib::Request&>(request).ranges.clear();
    problem(response, response.status, detail_of(response.status));
  });
  server.set_exception_handler([](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
    problem(response, 500, "see the log of the aggregator");
    log::error("http", "a handler threw");
  });
  server.set_logger([this](const httplib::Request&, const httplib::Response& response) {
    const auto status = static_cast<std::size_t>(response.status < 0 ? 0 : response.status / 100);
    if (status < counts.size()) ++counts[status];
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
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

bool HttpServer::stop(std::chrono::milliseconds wait) {
  impl_->server.stop();
  std::unique_lock lock(impl_->mutex);
  return impl_->ended.wait_for(lock, wait, [&] { return impl_->done; });
}

}  // namespace weft::aggregator
