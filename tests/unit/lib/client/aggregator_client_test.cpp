#include "lib/client/aggregator_client.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>
#include <tuple>

#include "lib/base/fd.h"
#include "tests/unit/catch.h"

namespace client = weft::client;
using weft::Error;

namespace {

// A server on a free loopback port that answers as told.
class Server {
 public:
  explicit Server(std::function<void(const httplib::Request&, httplib::Response&)> handler) {
    server_.set_pre_routing_handler([handler](const httplib::Request& request, httplib::Response& response) {
      handler(request, response);
      return httplib::Server::HandlerResponse::Handled;
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~Server() {
    server_.stop();
    thread_.join();
  }
  client::AggregatorClient connect(std::chrono::milliseconds deadline = std::chrono::seconds(3)) {
    return std::move(*client::AggregatorClient::create({"http://" + address(), deadline, {}}));
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

// Takes one connection and does with it as told, instead of speaking HTTP.
class Deaf {
 public:
  explicit Deaf(std::function<void(int)> with) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(socket_.get(), 1) == 0);
    REQUIRE(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this, with] {
      const weft::Fd peer(::accept(socket_.get(), nullptr, nullptr));
      taken_.set_value();
      if (peer) with(peer.get());
    });
  }
  ~Deaf() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void wait_for_client() { taken_.get_future().wait(); }

 private:
  weft::Fd socket_;
  int port_ = 0;
  std::promise<void> taken_;
  std::thread thread_;
};

Server fixed(int status, const std::string& body) {
  return Server([=](const httplib::Request&, httplib::Response& response) {
    response.status = status;
    response.set_content(body, "application/json");
  });
}

}  // namespace

TEST_CASE("client: an address that is none is refused with what is wrong", "[client]") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "it is empty"},
      {"7470", "it has no host"},
      {":7470", "it has no host"},
      {"http://", "it has no host"},
      {"http://:7470", "it has no host"},
      {"h1", "it has no port"},
      {"a/b:1", "only a host and a port belong into it"},
      {"http://a/b", "only a host and a port belong into it"},
      {"http://a b", "only a host and a port belong into it"},
      {"http://u@h", "only a host and a port belong into it"},
      {"http://h?x", "only a host and a port belong into it"},
      {"//h:1", "only a host and a port belong into it"},
      {"ftp://x", "only http:// works"},
      {"https://x:7470", "only http:// works"},
      {"h1:", "its port is no number from 1 to 65535"},
      {"h1:0", "its port is no number from 1 to 65535"},
      {"h1:65536", "its port is no number from 1 to 65535"},
      {"http://h1:74x", "its port is no number from 1 to 65535"},
      {"h1:-1", "its port is no number from 1 to 65535"},
      {"::1:7470", "an IPv6 address needs brackets, like [::1]:7470"},
      {"[::1:7470", "the bracket of its IPv6 address is not closed"},
      {"[::1]7470", "after the IPv6 address only a port belongs into it"},
  };
  for (const auto& [url, why] : cases) {
    CAPTURE(url);
    const auto client = client::AggregatorClient::create({url, std::chrono::seconds(1), {}});
    REQUIRE_FALSE(client);
    CHECK(client.error().kind == Error::Kind::Invalid);
    CHECK(client.error().context.find(std::string(": ") + why + ";") != std::string::npos);
    CHECK(client.error().context.find("127.0.0.1:7470") != std::string::npos);
  }
}

TEST_CASE("client: host and port do without a scheme", "[client]") {
  const std::tuple<const char*, const char*, int> cases[] = {
      {"127.0.0.1:7470", "127.0.0.1", 7470},
      {"agg.example:1", "agg.example", 1},
      {"h1:7470/", "h1", 7470},
      {"http://h1", "h1", 80},
      {"http://h1:7470/", "h1", 7470},
      {"[fe80::a]:7470", "fe80::a", 7470},
      {"http://[::1]", "::1", 80},
  };
  for (const auto& [url, host, port] : cases) {
    CAPTURE(url);
    const auto to = client::parse_endpoint(url);
    REQUIRE(to);
    CHECK(to->host == host);
    CHECK(to->port == port);
  }
  Server server = fixed(200, "{\"schema\":1}");
  auto client = client::AggregatorClient::create({server.address(), std::chrono::seconds(3), {}});
  REQUIRE(client);
  CHECK(client->status());
}

TEST_CASE("client: with no aggregator the error says what to do", "[client]") {
  auto none = client::AggregatorClient::create({"http://127.0.0.1:1", std::chrono::seconds(1), {}});
  const auto status = none->status();
  REQUIRE_FALSE(status);
  CHECK(status.error().kind == Error::Kind::Transient);
  CHECK(status.error().context == "no aggregator answers at http://127.0.0.1:1: is it running? use --aggregator URL");
}

TEST_CASE("client: what is no aggregator is said so", "[client]") {
  for (const char* body : {"<html>", "[]", "{}", "{\"schema\":2}", "{\"schema\":\"1\"}"}) {
    CAPTURE(body);
    Server server = fixed(200, body);
    const auto status = server.connect().status();
    REQUIRE_FALSE(status);
    CHECK(status.error().kind == Error::Kind::Malformed);
  }
}

TEST_CASE("client: a refusal carries the aggregator's own words, cleaned", "[client]") {
  Server server = fixed(400, "{\"status\":400,\"title\":\"Bad Request\",\"detail\":\"kind: \\u001b[31m no\"}");
  const auto findings = server.connect().findings({});
  REQUIRE_FALSE(findings);
  CHECK(findings.error().kind == Error::Kind::Invalid);
  CHECK(findings.error().context == "kind: ?[31m no");
}

TEST_CASE("client: an answer that drips ends by the deadline", "[client]") {
  Server server([](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("application/json", [](std::size_t, httplib::DataSink& sink) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return sink.write(" ", 1);
    });
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto status = server.connect(std::chrono::milliseconds(200)).status();
  REQUIRE_FALSE(status);
  CHECK(status.error().kind == Error::Kind::Timeout);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}

TEST_CASE("client: headers that drip end by the deadline", "[client]") {
  Deaf server([](int peer) {
    while (::send(peer, "x", 1, MSG_NOSIGNAL) == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  auto client = client::AggregatorClient::create({server.address(), std::chrono::milliseconds(200), {}});
  const auto begin = std::chrono::steady_clock::now();
  const auto status = client->status();
  REQUIRE_FALSE(status);
  CHECK(status.error().kind == Error::Kind::Timeout);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("client: a stop ends a call that nobody answers, long before its deadline", "[client]") {
  Deaf server([](int peer) {
    char sink[4096];
    while (::recv(peer, sink, sizeof sink, 0) > 0) {
    }
  });
  std::atomic<bool> stop = false;
  auto client =
      client::AggregatorClient::create({server.address(), std::chrono::minutes(10), [&] { return stop.load(); }});
  std::thread person([&] {
    server.wait_for_client();
    stop = true;
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto status = client->status();
  person.join();
  REQUIRE_FALSE(status);
  CHECK(status.error().kind == Error::Kind::Transient);
  CHECK(status.error().context == "stopped before the aggregator at " + server.address() + " answered");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

TEST_CASE("client: an answer that breaks off is no timeout", "[client]") {
  Deaf server([](int) {});
  auto client = client::AggregatorClient::create({server.address(), std::chrono::minutes(1), {}});
  const auto status = client->status();
  REQUIRE_FALSE(status);
  CHECK(status.error().kind == Error::Kind::Transient);
  CHECK(status.error().context.find("broke off") != std::string::npos);
}

TEST_CASE("client: odd fields are defaults, not crashes", "[client]") {
  Server server =
      fixed(200,
            "{\"schema\":1,\"fabric\":7,\"agents\":[],\"coverage\":{\"links\":-3,\"covered\":1e30,\"ready\":1},"
            "\"findings\":[1,{},{\"id\":\"f1\",\"kind\":\"nope\",\"severity\":\"critical\"}],\"total\":-1}");
  const auto status = server.connect().status();
  REQUIRE(status);
  CHECK(status->fabric.empty());
  CHECK(status->links == 0);
  CHECK_FALSE(status->ready);
  const auto findings = server.connect().findings({});
  REQUIRE(findings);
  CHECK(findings->findings.empty());
}

TEST_CASE("client: a finding comes back whole", "[client]") {
  std::string asked;
  Server server([&](const httplib::Request& request, httplib::Response& response) {
    asked = request.get_param_value("subject") + " " + request.get_param_value("since");
    response.set_content(
        R"({"schema":1,"total":1,"findings":[{"id":"f1-0","kind":"link_loss","subject":"link:s1>l2",
        "severity":"critical","state":"active","since":"2026-12-01T18:00:00.500Z","raised_at":"2026-12-01T18:00:02.000Z",
        "until":null,"confidence":0.9,"summary":"lost","evidence":[{"name":"lost","value":12,"unit":"probes",
        "window_s":20}],"victims":["pair:h1>h3"],"not_checked":["x"],"acknowledged":true}]})",
        "application/json");
  });
  client::FindingsFilter filter;
  filter.subject = "link:s1>l2 &x=1";
  filter.since = "10m";
  const auto answer = server.connect().findings(filter);
  REQUIRE(answer);
  CHECK(asked == "link:s1>l2 &x=1 10m");
  REQUIRE(answer->findings.size() == 1);
  const auto& finding = answer->findings[0];
  CHECK(finding.active());
  CHECK(finding.subject == "link:s1>l2");
  CHECK(finding.raised_ns - finding.since_ns == 1'500'000'000);
  CHECK(finding.evidence.at(0).value == 12);
  CHECK(finding.victims.at(0) == "pair:h1>h3");
  CHECK(finding.acknowledged);
}

TEST_CASE("client: an id that would be another path is never sent", "[client]") {
  Server server([](const httplib::Request&, httplib::Response&) { FAIL_CHECK("asked"); });
  CHECK_FALSE(server.connect().acknowledge("../clear"));
  CHECK_FALSE(server.connect().acknowledge(""));
}
