#include "aggregator/export/http_server.h"

#include <httplib.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/raw_client.h"

using nlohmann::json;
using weft::FakeClock;
using weft::kSecond;
using weft::test::ask;
using weft::test::Drip;
using weft::test::EventReader;
using weft::test::say;
using namespace weft::aggregator;

namespace {

struct Fixture {
  FakeClock clock;
  MessageQueue queue{64};
  std::shared_ptr<Snapshot> snapshot = std::make_shared<Snapshot>();
  std::unique_ptr<HttpServer> server;
  explicit Fixture(HttpLimits limits = {}) {
    snapshot->fabric = "lab";
    snapshot->monotonic_ns = clock.monotonic_ns();
    snapshot->wall_ns = clock.wall_ns();
    snapshot->views = std::make_shared<Snapshot::Views>();
    snapshot->cleared = std::make_shared<std::vector<weft::model::Finding>>();
    auto started = HttpServer::start(
        "127.0.0.1:0", limits, [this] { return snapshot; }, queue, clock, "0.1.0");
    REQUIRE(started);
    server = std::move(*started);
  }
  httplib::Client client() { return httplib::Client("127.0.0.1", server->port()); }
};

}  // namespace

TEST_CASE("http: a client too slow to send its request is cut off, and the page says so", "[aggregator]") {
  HttpLimits limits;
  limits.connections.threads = 1;  // the next is served when the one before has ended
  limits.connections.request_patience = std::chrono::minutes(10);
  limits.connections.request = std::chrono::milliseconds(200);
  Fixture f(limits);
  const weft::Fd slow = say(f.server->port(), "GET /metrics HTTP/1.1\r\nX: ");
  const Drip drip({slow.get()});
  auto client = f.client();
  client.set_read_timeout(60);
  const auto page = client.Get("/metrics");
  REQUIRE(page);
  CHECK_THAT(page->body, ContainsSubstring("weft_http_connections_cut_total 1\n"));
}

TEST_CASE("http: 500 half-open requests delay no answer by more than seconds", "[aggregator]") {
  Fixture f;
  std::vector<weft::Fd> held;
  for (int i = 0; i < 500; ++i) held.push_back(say(f.server->port(), "GET / HTTP/1.1\r\nX: "));
  auto client = f.client();
  client.set_connection_timeout(60);
  client.set_read_timeout(60);
  const auto asked = std::chrono::steady_clock::now();
  const auto page = client.Get("/api/v1/status");
  REQUIRE(page);
  CHECK(page->status == 200);
  // 3 s by the limits; it was 24 s when each thread waited a second.
  CHECK(std::chrono::steady_clock::now() - asked < std::chrono::seconds(15));
}

TEST_CASE("http: an address that is none, or is taken, is an error that names it", "[aggregator]") {
  Fixture f;
  const auto none = HttpServer::start(
      "7470", {}, [&] { return f.snapshot; }, f.queue, f.clock, "0.1.0");
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().context, ContainsSubstring("'7470' is no HOST:PORT"));
  const std::string taken = "127.0.0.1:" + std::to_string(f.server->port());
  auto second = HttpServer::start(
      taken, {}, [&] { return f.snapshot; }, f.queue, f.clock, "0.1.0");
  REQUIRE_FALSE(second);
  CHECK_THAT(second.error().context, ContainsSubstring(taken));
}

TEST_CASE("http: errors are problem documents", "[aggregator]") {
  Fixture f;
  auto client = f.client();
  const auto check = [](const httplib::Result& result, int status) {
    REQUIRE(result);
    CHECK(result->status == status);
    CHECK(result->get_header_value("Content-Type") == "application/problem+json");
    const json document = json::parse(result->body);
    CHECK(document["status"] == status);
    CHECK(document["title"].is_string());
    CHECK_FALSE(document["detail"].get<std::string>().empty());
  };
  check(client.Get("/nowhere"), 404);
  check(client.Get("/api/v1/findings?limit=x"), 400);
  check(client.Get("/api/v1/mesh?since=1m"), 400);
  check(client.Get("/api/v1/status?x=1"), 400);
  check(client.Get("/api/v1/hosts/none"), 404);
  check(client.Get("/api/v1/events", {{"Last-Event-ID", "soon"}}), 400);
  check(client.Get("/api/v1/findings/f1/ack"), 405);
  check(client.Get("/api/v1/findings/none"), 404);
  check(client.Get("/" + std::string(3000, 'a')), 414);
  check(client.Delete("/api/v1/findings/f1"), 405);
  check(client.Post("/api/v1/findings/clear", {{"Origin", "http://evil.example"}}, "", "text/plain"), 403);
  check(client.Post("/api/v1/findings/f1/burn"), 404);
  check(client.Post("/api/v1/findings/clear", std::string(100'000, 'x'), "text/plain"), 413);
  // Forms have a bound of their own in httplib; curl -d sends one.
  check(client.Post("/api/v1/findings/clear", std::string(10'000, 'x'), "application/x-www-form-urlencoded"), 413);
  check(client.Get("/" + std::string(9000, 'a')), 414);
}

TEST_CASE("http: a problem names the parameter, the methods or the paths that would do", "[aggregator]") {
  Fixture f;
  auto client = f.client();
  CHECK(json::parse(client.Get("/api/v1/findings?limit=x")->body)["parameter"] == "limit");
  CHECK(json::parse(client.Get("/api/v1/links?cursor=9")->body)["parameter"] == "cursor");
  const auto wrong = client.Get("/api/v1/findings/clear/ack");
  CHECK(wrong->status == 405);
  CHECK(wrong->get_header_value("Allow") == "POST");
  const json nowhere = json::parse(client.Get("/nowhere")->body);
  CHECK(nowhere["known"].size() > 10);
  CHECK_FALSE(nowhere.contains("parameter"));
}

TEST_CASE("http: commands of our own page are taken where no foreign name can pass for ours", "[aggregator]") {
  Fixture f;
  auto client = f.client();
  const std::string port = ":" + std::to_string(f.server->port());
  const auto status = [&](const std::string& host, const std::string& origin) {
    // There is no such command, so what is let in ends with 404.
    return client.Post("/nowhere", {{"Host", host}, {"Origin", origin}}, "", "text/plain")->status;
  };
  for (const std::string host : {"127.0.0.1", "localhost", "[::1]"}) {
    CAPTURE(host);
    CHECK(status(host + port, "http://" + host + port) == 404);
  }
  CHECK(status("evil.example" + port, "http://evil.example" + port) == 403);
  CHECK(status("127.0.0.1" + port, "http://127.0.0.1:1") == 403);
  CHECK(status("127.0.0.1" + port, "null") == 403);
  CHECK(status("[", "http://[") == 403);
  CHECK(status("", "http://") == 403);
}

TEST_CASE("http: watchers are told what is raised, changes and clears, and resume where they were", "[aggregator]") {
  Fixture f;
  const auto step = [&](const std::vector<weft::model::Finding>& active,
                        const std::vector<weft::model::Finding>& gone) {
    f.clock.advance(10 * kSecond);
    auto next = std::make_shared<Snapshot>(*f.snapshot);
    next->monotonic_ns = f.clock.monotonic_ns();
    next->active = active;
    next->cleared = std::make_shared<std::vector<weft::model::Finding>>(gone);
    f.snapshot = std::move(next);
    f.server->published();
  };
  weft::model::Finding finding;
  finding.id = "f1";
  finding.subject = "link:s1>l2";
  step({}, {});
  const weft::Fd socket = say(f.server->port(), "GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n");
  EventReader watcher(socket.get());
  CHECK(watcher.until("\r\n\r\n").find("text/event-stream") != std::string::npos);
  const std::string hello = watcher.until("}\n\n");
  CHECK_THAT(hello, ContainsSubstring("event: status\n"));
  const std::uint64_t start = std::stoull(hello.substr(hello.find("id: ") + 4));

  step({finding}, {});
  CHECK_THAT(watcher.until("event: finding_raised"), ContainsSubstring("id: " + std::to_string(start + 1) + "\n"));
  CHECK_THAT(watcher.until("}\n\n"), ContainsSubstring("\"subject\":\"link:s1>l2\""));
  finding.evidence = {{"lost", 7, "probes", 20}};
  step({finding}, {});  // evidence alone is no news
  finding.acknowledged = true;
  step({finding}, {});
  watcher.until("event: finding_updated");
  finding.until_ns = f.clock.wall_ns();
  step({}, {finding});
  CHECK_THAT(watcher.until("event: finding_cleared"), ContainsSubstring("id: " + std::to_string(start + 3) + "\n"));

  EventReader again(
      say(f.server->port(), "GET /api/v1/events HTTP/1.1\r\nLast-Event-ID: " + std::to_string(start + 2) + "\r\n\r\n"));
  CHECK_THAT(again.until("event: finding_cleared"), !ContainsSubstring("event: finding_updated"));
  EventReader former(say(f.server->port(), "GET /api/v1/events HTTP/1.1\r\nLast-Event-ID: 7\r\n\r\n"));
  former.until("event: gap");
}

TEST_CASE("http: watchers have a bound of their own and take no thread from requests", "[aggregator]") {
  HttpLimits limits;
  limits.connections.threads = 1;
  limits.events.watchers = 3;
  Fixture f(limits);
  f.server->published();
  std::vector<weft::Fd> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(say(f.server->port(), "GET /api/v1/events HTTP/1.1\r\n\r\n"));
    EventReader(held.back().get()).until("event: status");
  }
  const auto refused = f.client().Get("/api/v1/events");
  REQUIRE(refused);
  CHECK(refused->status == 503);
  CHECK(refused->get_header_value("Retry-After") == "5");
  CHECK(refused->get_header_value("Content-Type") == "application/problem+json");
  const auto page = f.client().Get("/metrics");
  REQUIRE(page);
  CHECK_THAT(page->body, ContainsSubstring("weft_http_watchers 3\n"));
  CHECK_THAT(page->body, ContainsSubstring("weft_http_watchers_refused_total 1\n"));
  // A place is free again once one has gone.
  held.pop_back();
  std::string head;
  do {
    EventReader next(say(f.server->port(), "GET /api/v1/events HTTP/1.1\r\n\r\n"));
    head = next.until("\r\n\r\n");
  } while (head.find("text/event-stream") == std::string::npos);
}

TEST_CASE("http: the console is served whole, and what it may do is told to the browser", "[aggregator]") {
  Fixture f;
  const auto page = f.client().Get("/");
  REQUIRE(page);
  CHECK(page->status == 200);
  CHECK(page->get_header_value("Content-Type") == "text/html; charset=utf-8");
  const std::string policy = page->get_header_value("Content-Security-Policy");
  CHECK_THAT(policy, ContainsSubstring("default-src 'none'"));
  CHECK_THAT(policy, !ContainsSubstring("unsafe"));
  CHECK(page->get_header_value("X-Content-Type-Options") == "nosniff");
  // Every file that the page names, and every module that these import.
  std::vector<std::string> unread{"/console/console.css", "/console/icon.svg", "/console/main.js"};
  for (const std::string& path : unread) CHECK_THAT(page->body, ContainsSubstring("\"" + path + "\""));
  std::set<std::string> seen(unread.begin(), unread.end());
  while (!unread.empty()) {
    const std::string path = unread.back();
    unread.pop_back();
    CAPTURE(path);
    const auto file = f.client().Get(path);
    REQUIRE(file);
    CHECK(file->status == 200);
    CHECK(file->get_header_value("Content-Type") != "text/html; charset=utf-8");
    const std::regex imports("from \"\\./([a-z]+\\.js)\"");
    for (std::sregex_iterator it(file->body.begin(), file->body.end(), imports), end; it != end; ++it) {
      const std::string next = "/console/" + (*it)[1].str();
      if (seen.insert(next).second) unread.push_back(next);
    }
  }
  CHECK(seen.size() > 8);
  CHECK(f.client().Get("/console/nothing.js")->status == 404);
}

TEST_CASE("http: watchers do not hold up the end", "[aggregator]") {
  Fixture f;
  f.server->published();
  EventReader watcher(say(f.server->port(), "GET /api/v1/events HTTP/1.1\r\n\r\n"));
  watcher.until("event: status");
  CHECK(f.server->stop(std::chrono::seconds(60)));
  CHECK(watcher.ends());
}

TEST_CASE("http: what is no request is told how one begins", "[aggregator]") {
  Fixture f;
  for (const char* words : {"FOO / HTTP/1.1\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"}) {
    CAPTURE(words);
    const std::string answer = ask(f.server->port(), words);
    CHECK_THAT(answer, ContainsSubstring("HTTP/1.1 400 "));
    const std::size_t body = answer.find("\r\n\r\n");
    REQUIRE(body != std::string::npos);
    CHECK_THAT(json::parse(answer.substr(body + 4))["detail"].get<std::string>(),
               ContainsSubstring("GET, HEAD or POST"));
  }
}

TEST_CASE("http: a Range is ignored, and one that cannot be read gets its whole problem document", "[aggregator]") {
  Fixture f;
  auto client = f.client();
  const auto page = client.Get("/api/v1/status", {{"Range", "bytes=0-1,0-1"}});
  REQUIRE(page);
  CHECK(page->status == 200);
  CHECK(json::parse(page->body)["schema"] == 1);
  // A part of the second can be read.
  for (const char* range : {"lines=1-2", "bytes=0-1,5-2"}) {
    CAPTURE(range);
    const auto answer = client.Get("/api/v1/status", {{"Range", range}});
    REQUIRE(answer);
    CHECK(answer->status == 416);
    REQUIRE(json::accept(answer->body));
    CHECK_THAT(json::parse(answer->body)["detail"].get<std::string>(), ContainsSubstring("Range"));
  }
}

TEST_CASE("http: every page answers, with no-store and the right type", "[aggregator]") {
  Fixture f;
  auto client = f.client();
  for (const char* path : {"/api/v1/status", "/api/v1/findings", "/api/v1/mesh", "/api/v1/paths", "/api/v1/links",
                           "/api/v1/hosts", "/api/v1/mesh?group=leaf"}) {
    CAPTURE(path);
    const auto result = client.Get(path);
    REQUIRE(result);
    CHECK(result->status == 200);
    CHECK(result->get_header_value("Content-Type") == "application/json");
    CHECK(json::parse(result->body)["schema"] == 1);
  }
  const auto metrics = client.Get("/metrics");
  REQUIRE(metrics);
  CHECK_THAT(metrics->get_header_value("Content-Type"), ContainsSubstring("version=0.0.4"));
  CHECK_THAT(metrics->body, ContainsSubstring("weft_http_requests_total{code=\"2xx\"}"));
}

TEST_CASE("http: health fails once judging stands still", "[aggregator]") {
  Fixture f;
  CHECK(f.client().Get("/healthz")->status == 200);
  f.clock.advance(11 * kSecond);
  CHECK(f.client().Get("/healthz")->status == 503);
}

TEST_CASE("http: commands go to judging and carry its answer", "[aggregator]") {
  Fixture f;
  std::thread judging([&] {
    for (int i = 0; i < 3; ++i) {
      auto message = f.queue.pop_for(std::chrono::seconds(10));
      if (!message) return;
      if (auto* ack = std::get_if<AcknowledgeFinding>(&*message)) {
        weft::model::Finding finding;
        finding.id = ack->id;
        finding.acknowledged = true;
        if (ack->id == "f1") {
          ack->answer->set_value(finding);
        } else {
          ack->answer->set_value(weft::make_error(weft::Error::Kind::NotFound, "none"));
        }
      }
      if (auto* clear = std::get_if<ClearFindings>(&*message)) clear->answer->set_value(3);
    }
  });
  auto client = f.client();
  const auto acknowledged = client.Post("/api/v1/findings/f1/ack");
  REQUIRE(acknowledged);
  CHECK(json::parse(acknowledged->body)["finding"]["acknowledged"] == true);
  CHECK(client.Post("/api/v1/findings/f2/ack")->status == 404);
  CHECK(json::parse(client.Post("/api/v1/findings/clear")->body)["cleared"] == 3);
  judging.join();
}

TEST_CASE("http: a command that judging does not answer ends with 503", "[aggregator]") {
  HttpLimits limits;
  limits.command_wait = std::chrono::milliseconds(50);
  Fixture f(limits);
  const auto result = f.client().Post("/api/v1/findings/clear");
  REQUIRE(result);
  CHECK(result->status == 503);
}

TEST_CASE("http: the page of metrics is OpenMetrics where that is asked for", "[aggregator]") {
  Fixture f;
  f.clock.advance(2 * kSecond);
  auto client = f.client();
  const auto text = client.Get("/metrics");
  REQUIRE(text);
  CHECK(text->get_header_value("Content-Type") == "text/plain; version=0.0.4; charset=utf-8");
  CHECK_THAT(text->body, ContainsSubstring("weft_page_age_seconds 2\n"));
  const auto open = client.Get("/metrics", {{"Accept", "application/openmetrics-text; version=1.0.0"}});
  REQUIRE(open);
  CHECK(open->get_header_value("Content-Type") == "application/openmetrics-text; version=1.0.0; charset=utf-8");
  CHECK(open->get_header_value("Vary") == "Accept");
  CHECK(open->body.ends_with("# EOF\n"));
}
