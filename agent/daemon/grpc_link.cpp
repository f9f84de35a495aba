#include "agent/daemon/grpc_link.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "lib/wire/codec.h"
#include "weft/v1/stream.grpc.pb.h"

namespace weft::agent {
namespace {

constexpr auto kEndWithin = std::chrono::seconds(1);

std::shared_ptr<grpc::Channel> make_channel(const std::string& address) {
  grpc::ChannelArguments args;
  // The session has its own back-off: each attempt must really try, not inherit the wait of the one before.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, wire::kKeepalivePingMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, wire::kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetMaxReceiveMessageSize(static_cast<int>(wire::kMaxMessageBytes));
  // A proxy named in the environment is for the web, not for the management network.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
}

}  // namespace

// What is left of calls that have ended, and how many have not.
struct GrpcLinks::Calls : std::enable_shared_from_this<Calls> {
  std::mutex mutex;
  std::condition_variable ended;
  unsigned running = 0;
  std::vector<std::shared_ptr<void>> dead;
  Post post;

  void begin() {
    std::lock_guard lock(mutex);
    ++running;
  }
  void bury(std::shared_ptr<void> call) {
    {
      std::lock_guard lock(mutex);
      dead.push_back(std::move(call));
    }
    // Not only before the next call: until it is destroyed its channel goes on trying to connect, and would hold a
    // connection that nobody uses.
    post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->reap();
    });
    {
      std::lock_guard lock(mutex);
      --running;
    }
    ended.notify_all();
  }
  void reap() {
    std::vector<std::shared_ptr<void>> gone;
    {
      std::lock_guard lock(mutex);
      gone.swap(dead);
    }
    // Destroyed here, outside of the lock: gRPC may join its threads now.
  }
};

namespace {

// Owns itself from start() until OnDone, so that cancelling never waits.
class Call final : public grpc::ClientBidiReactor<v1::AgentMessage, v1::AggregatorMessage>,
                   public std::enable_shared_from_this<Call> {
 public:
  using Bury = std::function<void(std::shared_ptr<void>)>;
  Call(Post post, std::function<void(LinkEvent)> events, Bury bury)
      : post_(std::move(post)), events_(std::move(events)), bury_(std::move(bury)) {}

  void start(const std::string& address, const wire::Hello& hello) {
    self_ = shared_from_this();
    channel_ = make_channel(address);
    stub_ = v1::Fabric::NewStub(channel_);
    stub_->async()->Stream(&context_, this);
    wire::encode(wire::AgentWord(hello), outgoing_);
    // Writes come from outside of reactions, so the call must not end between two of them (grpc AddHold rule).
    AddHold();
    StartRead(&incoming_);
    StartWrite(&outgoing_);
    StartCall();
  }

  void write(const wire::AgentWord& word, bool last) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    // Welcome can be read before the write of the hello is reported done; gRPC allows one write at a time.
    if (writing_) {
      next_ = {word, last};
      return;
    }
    begin_write(word, last);
  }

  void cancel() {
    {
      std::lock_guard lock(mutex_);
      silent_ = true;
    }
    context_.TryCancel();
    end();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      end();
      return;
    }
    auto word = wire::decode(incoming_);
    if (word) {
      std::visit([this](auto& value) { emit(LinkEvent(std::move(value))); }, *word);
      StartRead(&incoming_);
      return;
    }
    // A newer aggregator may say things this build does not know; anything else that breaks the rules ends the call.
    if (word.error().kind == Error::Kind::NoData) {
      StartRead(&incoming_);
      return;
    }
    {
      std::lock_guard lock(mutex_);
      why_ = "the aggregator sent a malformed message: " + word.error().message();
    }
    context_.TryCancel();
    end();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      end();
      return;
    }
    const bool hello = !hello_written_;
    hello_written_ = true;
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      if (next_ && !ended_) {
        begin_write(next_->first, next_->second);
        next_.reset();
      }
    }
    emit(hello ? LinkEvent(LinkOpened{}) : LinkEvent(LinkWritten{}));
  }

  void OnDone(const grpc::Status& status) override {
    std::string reason;
    {
      std::lock_guard lock(mutex_);
      reason = why_;
    }
    if (reason.empty()) reason = status.ok() ? "the aggregator closed the stream" : status.error_message();
    emit(LinkClosed{reason});
    // Another thread may delete this as soon as it is buried.
    const Bury bury = std::move(bury_);
    bury(std::move(self_));
  }

 private:
  // Under mutex_.
  void begin_write(const wire::AgentWord& word, bool last) {
    writing_ = true;
    outgoing_.Clear();
    wire::encode(word, outgoing_);
    if (last) {
      StartWriteLast(&outgoing_, grpc::WriteOptions());
    } else {
      StartWrite(&outgoing_);
    }
  }

  // No more writes; lets the call finish. Once.
  void end() {
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      ended_ = true;
    }
    RemoveHold();
  }

  void emit(LinkEvent event) {
    {
      std::lock_guard lock(mutex_);
      if (silent_) return;
    }
    post_([events = events_, event = std::move(event)]() mutable { events(std::move(event)); });
  }

  Post post_;
  std::function<void(LinkEvent)> events_;
  Bury bury_;
  std::shared_ptr<Call> self_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Fabric::Stub> stub_;
  grpc::ClientContext context_;
  v1::AgentMessage outgoing_;       // untouched from StartWrite to OnWriteDone
  v1::AggregatorMessage incoming_;  // likewise for reads
  bool hello_written_ = false;      // by write reactions only
  std::mutex mutex_;
  bool writing_ = true;  // the hello, from start()
  std::optional<std::pair<wire::AgentWord, bool>> next_;
  bool ended_ = false;
  bool silent_ = false;
  std::string why_;
};

class GrpcLink final : public StreamLink {
 public:
  explicit GrpcLink(std::shared_ptr<Call> call, std::function<void()> begin)
      : call_(std::move(call)), begin_(std::move(begin)) {}
  ~GrpcLink() override {
    if (started_) call_->cancel();
  }
  void open(const std::string& address, const wire::Hello& hello) override {
    started_ = true;
    begin_();
    call_->start(address, hello);
  }
  void send(const wire::Batch& batch) override { call_->write(wire::AgentWord(batch), false); }
  void send_goodbye(const wire::Goodbye& goodbye) override { call_->write(wire::AgentWord(goodbye), true); }

 private:
  std::shared_ptr<Call> call_;
  std::function<void()> begin_;
  bool started_ = false;
};

}  // namespace

GrpcLinks::GrpcLinks(Post post) : post_(std::move(post)), calls_(std::make_shared<Calls>()) { calls_->post = post_; }

GrpcLinks::~GrpcLinks() {
  {
    std::unique_lock lock(calls_->mutex);
    calls_->ended.wait_for(lock, kEndWithin, [this] { return calls_->running == 0; });
  }
  calls_->reap();
}

std::unique_ptr<StreamLink> GrpcLinks::make(std::function<void(LinkEvent)> events) {
  auto call = std::make_shared<Call>(post_, std::move(events),
                                     [calls = calls_](std::shared_ptr<void> dead) { calls->bury(std::move(dead)); });
  return std::make_unique<GrpcLink>(std::move(call), [calls = calls_] { calls->begin(); });
}

}  // namespace weft::agent
