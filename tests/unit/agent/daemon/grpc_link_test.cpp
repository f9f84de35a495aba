#include "agent/daemon/grpc_link.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>

#include "lib/base/bounded_queue.h"
#include "lib/wire/codec.h"
#include "tests/unit/catch.h"
#include "weft/v1/stream.grpc.pb.h"

using namespace weft;
using namespace weft::agent;

namespace {

constexpr auto kPatience = std::chrono::seconds(20);

// A real gRPC server on a loopback port that hands everything it hears to the test and says what the test tells it.
class Server final : public v1::Fabric::Service {
 public:
  explicit Server(const std::string& address = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_);
  }
  ~Server() override {
    replies.close();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status Stream(grpc::ServerContext*,
                      grpc::ServerReaderWriter<v1::AggregatorMessage, v1::AgentMessage>* stream) override {
    v1::AgentMessage message;
    while (stream->Read(&message)) {
      auto word = wire::decode(message);
      if (!word) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, word.error().message());
      const bool goodbye = std::holds_alternative<wire::Goodbye>(*word);
      heard.push(std::move(*word));
      if (goodbye) return grpc::Status::OK;
      const auto reply = replies.pop_for(kPatience);
      if (!reply) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the test is over");
      stream->Write(*reply);
    }
    return grpc::Status::OK;
  }
  void say(const wire::AggregatorWord& word) {
    v1::AggregatorMessage message;
    wire::encode(word, message);
    replies.push(message);
  }

  BoundedQueue<wire::AgentWord> heard{16};
  BoundedQueue<v1::AggregatorMessage> replies{16};

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The test's thread is the main loop.
struct Client {
  // Shared with gRPC's threads, which may still be at it when the client goes.
  using Work = BoundedQueue<std::function<void()>>;
  std::shared_ptr<Work> posted = std::make_shared<Work>(64);
  std::deque<LinkEvent> events;
  std::shared_ptr<int> held = std::make_shared<int>();  // by each call
  GrpcLinks links{[posted = posted](std::function<void()> work) { posted->push(std::move(work)); }};
  std::unique_ptr<StreamLink> link = fresh();
  std::unique_ptr<StreamLink> fresh() {
    return links.make([this, held = held](LinkEvent event) { events.push_back(std::move(event)); });
  }
  void run_next() {
    const auto work = posted->pop_for(kPatience);
    REQUIRE(work);
    (*work)();
  }
  LinkEvent any() {
    while (events.empty()) run_next();
    LinkEvent event = std::move(events.front());
    events.pop_front();
    return event;
  }
  template <typename T>
  T next() {
    const LinkEvent event = any();
    REQUIRE(std::holds_alternative<T>(event));
    return std::get<T>(event);
  }
};

wire::Hello hello() {
  wire::Hello out;
  out.fabric = "default";
  out.agent = "h1";
  out.epoch = 7;
  out.first_unacknowledged = 1;
  return out;
}

template <typename T>
T heard(Server& server) {
  const auto word = server.heard.pop_for(kPatience);
  REQUIRE(word);
  REQUIRE(std::holds_alternative<T>(*word));
  return std::get<T>(*word);
}

}  // namespace

TEST_CASE("grpc link: an address where nobody listens closes with the reason", "[agent]") {
  Client client;
  client.link->open("127.0.0.1:1", hello());
  CHECK_FALSE(client.next<LinkClosed>().reason.empty());
}

TEST_CASE("grpc link: hello, batch, acknowledgement and goodbye pass, and the server's end is heard", "[agent]") {
  Server server;
  Client client;
  server.say(wire::Welcome{3, kSecond, ""});
  client.link->open(server.address(), hello());
  CHECK(heard<wire::Hello>(server).epoch == 7);
  // Which of the two is reported first is gRPC's choice.
  bool opened = false, welcomed = false;
  for (int i = 0; i < 2; ++i) {
    const LinkEvent event = client.any();
    opened = opened || std::holds_alternative<LinkOpened>(event);
    if (const auto* welcome = std::get_if<wire::Welcome>(&event)) {
      welcomed = true;
      CHECK(welcome->last_stored == 3);
    }
  }
  CHECK(opened);
  CHECK(welcomed);

  wire::Batch batch;
  batch.sequence = 4;
  batch.records = {wire::encode_record(wire::Gap{9})};
  server.say(wire::Ack{4, 0});
  client.link->send(batch);
  CHECK(heard<wire::Batch>(server) == batch);
  bool written = false, acked = false;
  for (int i = 0; i < 2; ++i) {
    const LinkEvent event = client.any();
    written = written || std::holds_alternative<LinkWritten>(event);
    acked = acked || std::holds_alternative<wire::Ack>(event);
  }
  CHECK(written);
  CHECK(acked);

  client.link->send_goodbye({30 * kSecond, "stopping"});
  CHECK(heard<wire::Goodbye>(server).restart_allowance_ns == 30 * kSecond);
  client.next<LinkWritten>();
  CHECK(client.next<LinkClosed>().reason == "the aggregator closed the stream");
}

TEST_CASE("grpc link: a server that goes away closes the link, and a new link reaches its successor", "[agent]") {
  std::string address;
  {
    Client client;
    {
      Server server;
      address = server.address();
      client.link->open(address, hello());
      heard<wire::Hello>(server);
    }
    client.next<LinkOpened>();
    client.next<LinkClosed>();
  }
  Server successor(address);
  Client client;
  client.link->open(address, hello());
  heard<wire::Hello>(successor);
}

TEST_CASE("grpc link: the only channel of the process may end again and again", "[agent]") {
  Client client;
  for (int round = 0; round < 5; ++round) {
    {
      Server server;
      client.link->open(server.address(), hello());
      heard<wire::Hello>(server);
      client.next<LinkOpened>();
    }
    client.next<LinkClosed>();
    client.link.reset();
    client.link = client.fresh();
  }
}

TEST_CASE("grpc link: dropping it in the middle is silent and waits for nothing (rpingmesh PR 8)", "[agent]") {
  Server server;
  Client client;
  client.link->open(server.address(), hello());
  heard<wire::Hello>(server);
  client.next<LinkOpened>();
  client.link.reset();
  while (client.held.use_count() > 1) client.run_next();
  CHECK(client.events.empty());
}

TEST_CASE(
    "grpc link: what is left of a call that failed is freed on the loop's thread, without another call being made",
    "[agent]") {
  Client client;
  client.link->open("127.0.0.1:1", hello());
  client.next<LinkClosed>();
  client.link.reset();
  while (client.held.use_count() > 1) client.run_next();
}
