#include "aggregator/ingest/grpc_server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lib/wire/codec.h"
#include "tests/unit/catch.h"
#include "weft/v1/stream.grpc.pb.h"

using namespace weft;
using namespace weft::aggregator;

namespace {

constexpr auto kPatience = std::chrono::seconds(20);

// One stream of an agent that says hello and waits; cut off when it goes.
class Agent {
 public:
  Agent(int port, const std::string& name)
      : stub_(v1::Fabric::NewStub(
            grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()))) {
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    context_.set_wait_for_ready(true);
    stream_ = stub_->Stream(&context_);
    wire::Hello hello;
    hello.fabric = "test";
    hello.agent = name;
    hello.epoch = 1;
    hello.first_unacknowledged = 1;
    v1::AgentMessage message;
    wire::encode(wire::AgentWord(hello), message);
    stream_->Write(message);
  }
  ~Agent() {
    if (ended_) return;
    context_.TryCancel();
    end();
  }
  grpc::Status end() {
    ended_ = true;
    v1::AggregatorMessage message;
    while (stream_->Read(&message)) {
    }
    return stream_->Finish();
  }

 private:
  std::unique_ptr<v1::Fabric::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::AggregatorMessage>> stream_;
  bool ended_ = false;
};

struct Rig {
  explicit Rig(GrpcLimits limits) {
    auto started = GrpcServer::start("127.0.0.1:0", limits, queue, clock);
    REQUIRE(started);
    server = std::move(*started);
  }
  // The next message of this kind.
  template <typename T>
  T next() {
    for (;;) {
      std::optional<Message> message = queue.pop_for(kPatience);
      REQUIRE(message);
      if (T* body = std::get_if<T>(&*message)) return std::move(*body);
    }
  }
  SystemClock clock;
  MessageQueue queue{64};
  std::unique_ptr<GrpcServer> server;
};

}  // namespace

TEST_CASE("ingest: a stream over the bound is refused and counted, those within go on, and one that ends makes room",
          "[aggregator]") {
  GrpcLimits limits;
  limits.max_streams = 2;
  Rig rig(limits);
  auto first = std::make_unique<Agent>(rig.server->port(), "h1");
  CHECK(rig.next<Opened>().hello.agent == "h1");
  Agent second(rig.server->port(), "h2");
  CHECK(rig.next<Opened>().hello.agent == "h2");
  CHECK(rig.server->take_turned_away() == 0);

  for (int i = 0; i < 3; ++i) {
    const grpc::Status refused = Agent(rig.server->port(), "h3").end();
    CHECK(refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    CHECK(refused.error_message() == "too many streams");
  }
  CHECK(rig.server->take_turned_away() == 3);
  CHECK(rig.server->take_turned_away() == 0);  // each is told once
  CHECK_FALSE(rig.queue.try_pop());            // nothing of the refused came through, and nobody was cut off for them

  first.reset();
  rig.next<Closed>();
  // The stream leaves the table a moment after it is told to be closed.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  bool in = false;
  while (!in && std::chrono::steady_clock::now() < deadline) {
    Agent third(rig.server->port(), "h3");
    const auto message = rig.queue.pop_for(std::chrono::milliseconds(100));
    in = message && std::holds_alternative<Opened>(*message);
  }
  CHECK(in);
}
