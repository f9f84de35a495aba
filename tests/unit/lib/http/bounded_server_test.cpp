#include "lib/http/bounded_server.h"

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "tests/unit/raw_client.h"

using weft::http::BoundedServer;
using weft::http::ConnectionLimits;
using weft::test::say;

namespace {

using std::chrono::milliseconds;
constexpr std::chrono::minutes kNever{10};
constexpr std::chrono::seconds kDeadline{60};

struct Fixture {
  BoundedServer server;
  int port = 0;
  std::thread thread;
  explicit Fixture(ConnectionLimits limits) : server(limits) {
    server.Get("/digits", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("0123456789", "text/plain");
    });
    server.Get("/large", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(std::string(64 * 1024 * 1024, 'x'), "text/plain");
    });
    port = server.bind_to_any_port("127.0.0.1");
    REQUIRE(port > 0);
    thread = std::thread([this] { server.listen_after_bind(); });
    while (!server.is_running()) std::this_thread::yield();
  }
  ~Fixture() {
    server.stop();
    thread.join();
  }
  httplib::Client client() {
    httplib::Client out("127.0.0.1", port);
    out.set_connection_timeout(kDeadline);
    out.set_read_timeout(kDeadline);
    return out;
  }
  bool cut_within_deadline(std::uint64_t many) const {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (server.cut() < many && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
    return server.cut() == many;
  }
};

}  // namespace

TEST_CASE("bounded server: 64 clients that drip their requests keep nobody else from an answer", "[http]") {
  ConnectionLimits limits;
  limits.threads = 4;
  limits.patience = milliseconds(100);
  limits.request = kNever;  // only impatience ends them here
  Fixture f(limits);
  std::vector<weft::Fd> slow;
  for (int i = 0; i < 64; ++i) slow.push_back(say(f.port, "GET /dig"));
  std::atomic<bool> enough = false;
  std::thread drip([&] {
    while (!enough) {
      for (const weft::Fd& one : slow) ::send(one.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  const auto answer = f.client().Get("/digits");
  enough = true;
  drip.join();
  REQUIRE(answer);
  CHECK(answer->status == 200);
  CHECK(f.server.cut() > 0);
}

TEST_CASE("bounded server: a request that never ends has one time for all of it", "[http]") {
  ConnectionLimits limits;
  limits.request = milliseconds(200);
  Fixture f(limits);
  const weft::Fd slow = say(f.port, "GET /digits HTTP/1.1\r\nX: ");
  char byte = 0;
  while (::send(slow.get(), "x", 1, MSG_NOSIGNAL) == 1) {
    if (::recv(slow.get(), &byte, 1, MSG_DONTWAIT) == 0) break;
    std::this_thread::sleep_for(milliseconds(10));
  }
  CHECK(f.cut_within_deadline(1));
}

TEST_CASE("bounded server: an answer that nobody takes ends, and is counted", "[http]") {
  ConnectionLimits limits;
  limits.answer = milliseconds(200);
  Fixture f(limits);
  const weft::Fd slow = say(f.port, "GET /large HTTP/1.1\r\n\r\n");
  CHECK(f.cut_within_deadline(1));
}

TEST_CASE("bounded server: it stops at once, whatever is held and waits", "[http]") {
  ConnectionLimits limits;
  limits.threads = limits.waiting = 1;
  limits.request = limits.patience = kNever;
  std::vector<weft::Fd> held;
  auto f = std::make_unique<Fixture>(limits);
  for (int i = 0; i < 20; ++i) held.push_back(say(f->port, "GET /digits HTTP/1.1\r\nX: "));
  auto stopped = std::async(std::launch::async, [&] { f.reset(); });
  REQUIRE(stopped.wait_for(kDeadline) == std::future_status::ready);
}

TEST_CASE("bounded server: its port is its own", "[http]") {
  Fixture f({});
  BoundedServer second({});
  CHECK_FALSE(second.bind_to_port("127.0.0.1", f.port));
}

TEST_CASE("bounded server: ranges are ignored, so that no small request asks for a large answer", "[http]") {
  Fixture f({});
  for (const char* range : {"bytes=2-4", "bytes=-1", "bytes=20-30", "bytes=0-,0-,0-,0-"}) {
    CAPTURE(range);
    const auto answer = f.client().Get("/digits", {{"Range", range}});
    REQUIRE(answer);
    CHECK(answer->status == 200);
    CHECK(answer->body == "0123456789");
    CHECK(answer->get_header_value("Accept-Ranges") == "none");
  }
}
