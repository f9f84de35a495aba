#include "agent/daemon/metrics_server.h"

#include <httplib.h>

#include <vector>

#include "tests/unit/raw_client.h"

using namespace weft;
using namespace weft::agent;

namespace {

model::MetricSample connected() {
  model::MetricSample sample;
  sample.name = "weft_stream_connected";
  sample.value = 1;
  return sample;
}

}  // namespace

TEST_CASE("metrics server: a port already taken is an error that names it", "[agent]") {
  const SystemClock clock;
  const auto first = MetricsServer::start({"127.0.0.1", 0}, clock);
  REQUIRE(first);
  const auto second = MetricsServer::start({"127.0.0.1", (*first)->port()}, clock);
  REQUIRE_FALSE(second);
  CHECK_THAT(second.error().message(), ContainsSubstring("127.0.0.1:" + std::to_string((*first)->port())));
}

TEST_CASE("metrics server: 500 half-open requests keep no scrape from its answer, and the page counts them",
          "[agent]") {
  const SystemClock clock;
  const auto server = MetricsServer::start({"127.0.0.1", 0}, clock);
  REQUIRE(server);
  std::vector<Fd> held;
  std::vector<int> dripping;  // every other one
  for (int i = 0; i < 500; ++i) {
    held.push_back(test::say((*server)->port(), "GET / HTTP/1.1\r\nX: "));
    if (i % 2 == 0) dripping.push_back(held.back().get());
  }
  const test::Drip drip(dripping, std::chrono::milliseconds(200));
  httplib::Client client("127.0.0.1", (*server)->port());
  client.set_connection_timeout(60);
  client.set_read_timeout(60);
  const auto first = client.Get("/metrics");
  (*server)->publish({}, true, "");
  const auto second = client.Get("/metrics");
  REQUIRE(first);
  CHECK(first->status == 200);
  REQUIRE(second);
  CHECK_THAT(second->body, ContainsSubstring("weft_http_connections_cut_total "));
  CHECK_THAT(second->body, !ContainsSubstring("weft_http_connections_cut_total 0\n"));
}

TEST_CASE("metrics server: healthz says what is wrong, then ok, then that the loop hangs", "[agent]") {
  FakeClock clock;
  const auto server = MetricsServer::start({"127.0.0.1", 0}, clock);
  REQUIRE(server);
  httplib::Client client("127.0.0.1", (*server)->port());
  auto answer = client.Get("/healthz");
  REQUIRE(answer);
  CHECK(answer->status == 503);
  CHECK(answer->body == "starting\n");
  (*server)->publish({}, true, "");
  answer = client.Get("/healthz");
  REQUIRE(answer);
  CHECK(answer->status == 200);
  clock.advance(11 * kSecond);
  answer = client.Get("/healthz");
  REQUIRE(answer);
  CHECK(answer->status == 503);
  CHECK_THAT(answer->body, ContainsSubstring("main loop"));
}

TEST_CASE("metrics server: the last published page is served", "[agent]") {
  FakeClock clock;
  const auto server = MetricsServer::start({"127.0.0.1", 0}, clock);
  REQUIRE(server);
  (*server)->publish({connected()}, true, "");
  httplib::Client client("127.0.0.1", (*server)->port());
  const auto answer = client.Get("/metrics");
  REQUIRE(answer);
  CHECK(answer->status == 200);
  CHECK_THAT(answer->body, ContainsSubstring("weft_stream_connected 1"));
}

TEST_CASE("metrics server: Prometheus gets OpenMetrics where it asks for it, and text else", "[agent]") {
  const SystemClock clock;
  const auto server = MetricsServer::start({"127.0.0.1", 0}, clock);
  REQUIRE(server);
  httplib::Client client("127.0.0.1", (*server)->port());
  const auto text = client.Get("/metrics");
  REQUIRE(text);
  CHECK(text->get_header_value("Content-Type") == "text/plain; version=0.0.4; charset=utf-8");
  CHECK(text->get_header_value("Vary") == "Accept");
  CHECK(text->body.find("# EOF") == std::string::npos);
  const auto open =
      client.Get("/metrics", {{"Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}});
  REQUIRE(open);
  CHECK(open->get_header_value("Content-Type") == "application/openmetrics-text; version=1.0.0; charset=utf-8");
  CHECK(open->body.ends_with("# EOF\n"));
}

TEST_CASE(
    "metrics server: while the main loop hangs a scrape gets the last page at once, with its age "
    "(node_exporter 1841)",
    "[agent]") {
  FakeClock clock;
  const auto server = MetricsServer::start({"127.0.0.1", 0}, clock);
  REQUIRE(server);
  (*server)->publish({connected()}, true, "");
  clock.advance(95 * kSecond);
  httplib::Client client("127.0.0.1", (*server)->port());
  const auto answer = client.Get("/metrics");
  REQUIRE(answer);
  CHECK_THAT(answer->body, ContainsSubstring("weft_stream_connected 1\n"));
  CHECK_THAT(answer->body, ContainsSubstring("weft_page_age_seconds 95\n"));
}
