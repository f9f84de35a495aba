#include "lib/http/bounded_server.h"

#include <array>
#include <future>
#include <thread>
#include <vector>

#include "tests/unit/raw_client.h"

using weft::http::BoundedServer;
using weft::http::ConnectionLimits;
using weft::test::Drip;
using weft::test::say;

namespace {

using std::chrono::milliseconds;
constexpr std::chrono::minutes kNever{10};
constexpr std::chrono::seconds kDeadline{60};
constexpr std::size_t kLarge = 64 * 1024 * 1024;

struct Fixture {
  BoundedServer server;
  int port = 0;
  std::thread thread;
  std::promise<weft::Fd> taken;  // of /mine
  explicit Fixture(ConnectionLimits limits) : server(limits) {
    server.Get("/digits", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("0123456789", "text/plain");
    });
    server.Get("/large", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(std::string(kLarge, 'x'), "text/plain");
    });
    server.Get("/mine", [this](const httplib::Request&, httplib::Response&) {
      BoundedServer::hand_over([this](weft::Fd connection) { taken.set_value(std::move(connection)); });
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
  // Of a server with one thread: only when it has ended the client before.
  bool serves_the_next() {
    const auto answer = client().Get("/digits");
    return answer && answer->status == 200;
  }
};

}  // namespace

TEST_CASE("bounded server: 64 clients that drip their requests keep nobody else from an answer", "[http]") {
  ConnectionLimits limits;
  limits.threads = 4;
  limits.request_patience = milliseconds(100);
  limits.request = kNever;  // only impatience ends them here
  Fixture f(limits);
  std::vector<weft::Fd> slow;
  std::vector<int> sockets;
  for (int i = 0; i < 64; ++i) sockets.push_back(slow.emplace_back(say(f.port, "GET /dig")).get());
  const Drip drip(sockets);
  const auto answer = f.client().Get("/digits");
  REQUIRE(answer);
  CHECK(answer->status == 200);
  CHECK(f.server.cut() > 0);
}

TEST_CASE("bounded server: a request that never ends has one time for all of it", "[http]") {
  ConnectionLimits limits;
  limits.threads = 1;
  limits.request_patience = kNever;
  limits.request = milliseconds(200);
  Fixture f(limits);
  const weft::Fd slow = say(f.port, "GET /digits HTTP/1.1\r\nX: ");
  const Drip drip({slow.get()});
  REQUIRE(f.serves_the_next());
  CHECK(f.server.cut() == 1);
}

TEST_CASE("bounded server: an answer that nobody takes ends, and is counted", "[http]") {
  ConnectionLimits limits;
  limits.threads = 1;
  limits.answer_patience = kNever;
  limits.answer = milliseconds(200);
  Fixture f(limits);
  const weft::Fd slow = say(f.port, "GET /large HTTP/1.1\r\n\r\n");
  REQUIRE(f.serves_the_next());
  CHECK(f.server.cut() == 1);
}

TEST_CASE("bounded server: haste with requests is none with a long answer that is being read", "[http]") {
  ConnectionLimits limits;
  limits.threads = 1;
  limits.request_patience = milliseconds(1);
  limits.answer = limits.answer_patience = kNever;
  Fixture f(limits);
  const weft::Fd reader = say(f.port, "GET /large HTTP/1.1\r\n\r\n");
  std::array<char, 65536> part;
  ssize_t got = ::recv(reader.get(), part.data(), part.size(), 0);
  REQUIRE(got > 0);
  auto waiting = std::async(std::launch::async, [&] { return f.serves_the_next(); });
  std::size_t taken = 0;
  while (got > 0) {
    taken += static_cast<std::size_t>(got);
    got = ::recv(reader.get(), part.data(), part.size(), 0);
  }
  CHECK(taken > kLarge);
  CHECK(waiting.get());
  CHECK(f.server.cut() == 0);
}

TEST_CASE("bounded server: it stops at once, whatever is held and waits", "[http]") {
  ConnectionLimits limits;
  limits.threads = limits.waiting = 1;
  limits.request = limits.request_patience = kNever;
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

TEST_CASE("bounded server: an answer is never compressed by what takes a second of CPU", "[http]") {
  Fixture f({});
  for (const auto& [wanted, given] : {std::pair{"br", ""}, std::pair{"gzip, deflate, br", "gzip"}, std::pair{"", ""}}) {
    CAPTURE(wanted);
    const auto answer = f.client().Get("/digits", {{"Accept-Encoding", wanted}});
    REQUIRE(answer);
    CHECK(answer->get_header_value("Content-Encoding") == given);
    CHECK(answer->body == "0123456789");
  }
}

TEST_CASE("bounded server: a connection handed over is the taker's, and the thread serves the next", "[http]") {
  ConnectionLimits limits;
  limits.threads = 1;
  Fixture f(limits);
  weft::test::EventReader reader(say(f.port, "GET /mine HTTP/1.1\r\n\r\n"));
  const weft::Fd connection = f.taken.get_future().get();
  REQUIRE(f.serves_the_next());
  REQUIRE(::send(connection.get(), "hello", 5, MSG_NOSIGNAL) == 5);
  CHECK(reader.until("hello") == "hello");
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
