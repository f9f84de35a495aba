#include "lib/client/change_watch.h"

#include <future>
#include <thread>

#include "lib/http/bounded_server.h"
#include "lib/http/event_stream.h"
#include "tests/unit/catch.h"

using weft::client::ChangeWatch;
using weft::http::BoundedServer;
using weft::http::EventStream;

namespace {

constexpr std::chrono::minutes kNever{10};
constexpr std::chrono::seconds kDeadline{60};

struct Server {
  EventStream events{{}, 1};
  BoundedServer server{{}};
  int port = 0;
  std::thread thread;
  explicit Server(bool knows_events = true) {
    events.set_state("status", "{}");
    server.Get("/api/v1/events", [this, knows_events](const httplib::Request&, httplib::Response& response) {
      if (!knows_events) {
        response.status = 404;
        response.set_content("{}", "application/problem+json");
        return;
      }
      BoundedServer::hand_over([this, seat = events.take_seat()](weft::Fd connection) {
        events.add(std::move(connection), seat, std::nullopt);
      });
    });
    port = server.bind_to_any_port("127.0.0.1");
    thread = std::thread([this] { server.listen_after_bind(); });
    while (!server.is_running()) std::this_thread::yield();
  }
  ~Server() {
    server.stop();
    thread.join();
  }
  weft::client::Endpoint endpoint() const { return {"127.0.0.1", static_cast<std::uint16_t>(port)}; }
};

void wait_until_heard(ChangeWatch& watch) {
  while (!watch.hears()) watch.wait(std::chrono::milliseconds(100), {});
}

}  // namespace

TEST_CASE("change watch: it hears of findings at once, and of a status that changes nothing not at all", "[client]") {
  Server server;
  ChangeWatch watch(server.endpoint());
  wait_until_heard(watch);
  for (const char* type : {"finding_raised", "finding_updated", "finding_cleared", "gap"}) {
    CAPTURE(type);
    watch.wait(std::chrono::milliseconds(0), {});  // what was told before
    auto waited = std::async(std::launch::async, [&] { watch.wait(kNever, {}); });
    server.events.set_state("status", "{\"finding_raised\":1}");
    server.events.publish(type, R"({"a": "event: finding_raised"})");
    REQUIRE(waited.wait_for(kDeadline) == std::future_status::ready);
  }
  CHECK(watch.hears());
}

TEST_CASE("change watch: an end of the stream is told, so that its user asks again", "[client]") {
  auto server = std::make_unique<Server>();
  ChangeWatch watch(server->endpoint());
  wait_until_heard(watch);
  watch.wait(std::chrono::milliseconds(0), {});
  auto waited = std::async(std::launch::async, [&] { watch.wait(kNever, {}); });
  server.reset();
  REQUIRE(waited.wait_for(kDeadline) == std::future_status::ready);
  CHECK_FALSE(watch.hears());
}

TEST_CASE("change watch: what knows no events is not heard, and waiting ends in time or by a stop", "[client]") {
  Server server(false);
  ChangeWatch watch(server.endpoint());
  watch.wait(std::chrono::milliseconds(300), {});
  CHECK_FALSE(watch.hears());
  auto waited = std::async(std::launch::async, [&] { watch.wait(kNever, [] { return true; }); });
  REQUIRE(waited.wait_for(kDeadline) == std::future_status::ready);
}
