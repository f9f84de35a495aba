#include "aggregator/export/api_routes.h"

#include <charconv>
#include <future>
#include <string_view>
#include <utility>

#include "aggregator/console/console.h"
#include "lib/http/bounded_server.h"
#include "lib/metrics/page_format.h"

namespace weft::aggregator {
namespace {

constexpr std::string_view kId = "{id}";
constexpr const char* kTooLate = "judging did not answer in time; look at /api/v1/findings whether it was done";

// Nothing from elsewhere, nothing inline: even text that came to be markup could do nothing.
constexpr const char* kConsolePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

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

void answer(httplib::Response& response, std::string body) {
  response.status = 200;
  response.set_header("Cache-Control", "no-store");
  response.set_content(std::move(body), "application/json");
}

// The part of the path that stands for {id}, empty where there is none to fill.
std::optional<std::string> match(std::string_view route, const std::string& path) {
  const std::size_t at = route.find(kId);
  if (at == std::string_view::npos) return route == path ? std::optional<std::string>("") : std::nullopt;
  const std::string_view before = route.substr(0, at), after = route.substr(at + kId.size());
  if (path.size() <= before.size() + after.size() || path.compare(0, before.size(), before) != 0 ||
      path.compare(path.size() - after.size(), after.size(), after) != 0) {
    return std::nullopt;
  }
  std::string id = path.substr(before.size(), path.size() - before.size() - after.size());
  if (id.find('/') != std::string::npos) return std::nullopt;
  return id;
}

// Nothing when judging does not answer in time.
template <typename T>
std::optional<T> wait_for(std::future<T>& future, std::chrono::milliseconds most) {
  if (future.wait_for(most) != std::future_status::ready) return std::nullopt;
  return future.get();
}

}  // namespace

void refuse(httplib::Response& response, Problem problem) {
  problem.title = title_of(problem.status);
  response.status = problem.status;
  response.set_content(problem_json(problem), "application/problem+json");
}

void refuse(httplib::Response& response, int status, const std::string& detail) {
  refuse(response, {status, "", detail, "", {}});
}

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> kRoutes{
      {"GET", "/api/v1/status", &Api::status},
      {"GET", "/api/v1/findings", &Api::findings},
      {"POST", "/api/v1/findings/clear", &Api::clear},
      {"GET", "/api/v1/findings/{id}", &Api::finding},
      {"POST", "/api/v1/findings/{id}/ack", &Api::acknowledge},
      {"GET", "/api/v1/mesh", &Api::mesh},
      {"GET", "/api/v1/paths", &Api::paths},
      {"GET", "/api/v1/links", &Api::links},
      {"GET", "/api/v1/hosts", &Api::hosts},
      {"GET", "/api/v1/hosts/{id}", &Api::host},
      {"GET", "/api/v1/events", &Api::watch},
      {"GET", "/", &Api::console},
      {"GET", "/console/{id}", &Api::console},
      {"GET", "/healthz", &Api::health},
      {"GET", "/metrics", &Api::page},
  };
  return kRoutes;
}

std::vector<std::string> Api::known() {
  std::vector<std::string> out;
  for (const Route& route : routes()) out.push_back(std::string(route.method) + " " + route.path);
  return out;
}

void Api::serve(const httplib::Request& request, httplib::Response& response) {
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string allowed;
  for (const Route& route : routes()) {
    auto id = match(route.path, request.path);
    if (!id) continue;
    if (route.method == method) {
      (this->*route.serve)({request, response, std::move(*id)});
      return;
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  if (allowed.empty()) {
    refuse(response, {404, "", "nothing is here; see \"known\"", "", known()});
    return;
  }
  response.set_header("Allow", allowed);
  refuse(response, 405, request.path + " takes " + allowed);
}

bool Api::refused(const Call& call) {
  const auto bad = refuse_any(call.request.params);
  if (bad) refuse(call.response, {400, "", bad->detail, bad->name, {}});
  return bad.has_value();
}

template <typename Query, typename Body>
void Api::list(const Call& call, Parsed<Query> query, Body body) {
  if (!query) {
    refuse(call.response, {400, "", query.error().detail, query.error().name, {}});
    return;
  }
  httplib::Params kept = call.request.params;
  kept.erase("cursor");
  const std::string& path = call.request.path;
  const std::string base = kept.empty() ? path + "?" : httplib::append_query_params(path, kept) + "&";
  if constexpr (std::is_same_v<Query, Page>) {
    query->base = base;
  } else {
    query->page.base = base;
  }
  answer(call.response, body(*parts_.snapshot(), *query));
}

void Api::status(const Call& call) {
  if (!refused(call)) answer(call.response, status_json(*parts_.snapshot(), parts_.version));
}

void Api::findings(const Call& call) {
  list(call, parse_findings_query(call.request.params, parts_.clock.wall_ns()), findings_json);
}

void Api::finding(const Call& call) {
  if (refused(call)) return;
  auto body = finding_json(*parts_.snapshot(), call.id);
  body ? answer(call.response, std::move(*body))
       : refuse(call.response, 404, "no finding has this id; see /api/v1/findings");
}

void Api::acknowledge(const Call& call) {
  if (refused(call)) return;
  auto promise = std::make_shared<std::promise<Result<model::Finding>>>();
  auto future = promise->get_future();
  parts_.queue.push(AcknowledgeFinding{call.id, std::move(promise)});
  const auto finding = wait_for(future, parts_.command_wait);
  if (!finding) {
    refuse(call.response, 503, kTooLate);
  } else if (!*finding) {
    refuse(call.response, 404, finding->error().context);
  } else {
    answer(call.response, finding_json(**finding));
  }
}

void Api::clear(const Call& call) {
  if (refused(call)) return;
  auto promise = std::make_shared<std::promise<std::size_t>>();
  auto future = promise->get_future();
  parts_.queue.push(ClearFindings{std::move(promise)});
  const auto count = wait_for(future, parts_.command_wait);
  count ? answer(call.response, cleared_json(*count)) : refuse(call.response, 503, kTooLate);
}

void Api::mesh(const Call& call) { list(call, parse_mesh_query(call.request.params), mesh_json); }
void Api::paths(const Call& call) { list(call, parse_page(call.request.params), paths_json); }
void Api::links(const Call& call) { list(call, parse_page(call.request.params), links_json); }
void Api::hosts(const Call& call) { list(call, parse_hosts_query(call.request.params), hosts_json); }

void Api::host(const Call& call) {
  if (refused(call)) return;
  auto body = host_json(*parts_.snapshot(), call.id);
  body ? answer(call.response, std::move(*body))
       : refuse(call.response, 404, "no host has this name; see /api/v1/hosts");
}

void Api::watch(const Call& call) {
  if (refused(call)) return;
  const std::string text = call.request.get_header_value("Last-Event-ID");
  std::optional<std::uint64_t> last;
  if (!text.empty()) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
      refuse(call.response, {400, "", "Last-Event-ID: the id of an event, a number", "Last-Event-ID", {}});
      return;
    }
    last = value;
  }
  if (call.request.method == "HEAD") {
    call.response.status = 200;
    call.response.set_header("Content-Type", "text/event-stream");
    return;
  }
  auto seat = parts_.events.take_seat();
  if (!seat) {
    call.response.set_header("Retry-After", "5");
    refuse(call.response, 503, "as many watch as this aggregator serves; ask /api/v1/findings instead, or try again");
    return;
  }
  call.response.status = 200;
  http::BoundedServer::hand_over([&events = parts_.events, seat = std::move(seat), last](Fd connection) {
    events.add(std::move(connection), seat, last);
  });
}

void Api::console(const Call& call) {
  const std::string_view name = call.id.empty() ? "index.html" : std::string_view(call.id);
  for (const ConsoleFile& file : console_files()) {
    if (file.name != name) continue;
    call.response.status = 200;
    call.response.set_header("Cache-Control", "no-cache");
    call.response.set_header("Content-Security-Policy", kConsolePolicy);
    call.response.set_header("X-Content-Type-Options", "nosniff");
    call.response.set_header("Referrer-Policy", "no-referrer");
    call.response.set_content(std::string(file.text), std::string(file.type));
    return;
  }
  refuse(call.response, 404, "the console has no such file; it begins at /");
}

void Api::health(const Call& call) {
  const Nanos age = parts_.clock.monotonic_ns() - parts_.snapshot()->monotonic_ns;
  if (age > parts_.stale_after_ns) {
    refuse(call.response, 503, "no judgement for " + std::to_string(age / kSecond) + " s");
    return;
  }
  call.response.status = 200;
  call.response.set_content("ok\n", "text/plain");
}

void Api::page(const Call& call) {
  const metrics::PageFormat format = metrics::choose_format(call.request.get_header_value("Accept"));
  call.response.status = 200;
  call.response.set_header("Vary", "Accept");
  call.response.set_content(parts_.metrics(format), std::string(metrics::content_type(format)));
}

}  // namespace weft::aggregator
