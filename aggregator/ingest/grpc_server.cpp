#include "aggregator/ingest/grpc_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lib/wire/codec.h"
#include "weft/v1/stream.grpc.pb.h"

namespace weft::aggregator {
namespace {

class AgentStream;

// Every stream that is not done yet.
class StreamTable {
 public:
  explicit StreamTable(std::size_t bound) : bound_(bound) {}
  bool add(const std::shared_ptr<AgentStream>& stream);
  void remove(const AgentStream* stream);
  std::vector<std::shared_ptr<AgentStream>> all() const;

 private:
  const std::size_t bound_;
  mutable std::mutex mutex_;
  std::map<const AgentStream*, std::shared_ptr<AgentStream>> streams_;
};

class AgentStream final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::AggregatorMessage>,
                          public StreamLink,
                          public std::enable_shared_from_this<AgentStream> {
 public:
  AgentStream(grpc::CallbackServerContext* context, StreamTable& table, MessageQueue& queue, const Clock& clock)
      : context_(context), table_(table), queue_(queue), clock_(clock), opened_ns_(clock.monotonic_ns()) {}

  void begin() {
    std::lock_guard lock(mutex_);
    StartRead(&incoming_);
  }

  void welcome(const wire::Welcome& welcome) override {
    say([&] { welcome_ = welcome; });
  }
  void ack(const wire::Ack& ack) override {
    say([&] {
      const std::uint32_t rejected = ack_ ? ack_->rejected_records : 0;
      ack_ = ack;
      ack_->rejected_records += rejected;
    });
  }
  void plan(const model::ProbePlan& plan) override {
    say([&] { plan_ = plan; });
  }
  void end(End why, const std::string& text) override { finish(status_of(why, text)); }

  void resume() override {
    std::lock_guard lock(mutex_);
    // StartRead under the lock: none may follow Finish.
    if (!finish_called_ && !gone_) StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      closed(false);
      finish(grpc::Status::OK);
      return;
    }
    Result<wire::AgentWord> word = wire::decode(incoming_);
    incoming_.Clear();
    if (!word) {
      if (word.error().kind == Error::Kind::NoData) {
        resume();
      } else {
        broke_rules(word.error().context);
      }
      return;
    }
    std::visit([this](auto& body) { take(body); }, *word);
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      if (!ok) gone_ = true;
    }
    pump();
  }

  void OnCancel() override {
    {
      std::lock_guard lock(mutex_);
      gone_ = true;
    }
    closed(false);
    finish(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    closed(false);
    {
      std::lock_guard lock(context_mutex_);
      context_ = nullptr;
    }
    // The table holds the last reference unless judging has one.
    table_.remove(this);
  }

  // From sweep.
  void check(Nanos now, const GrpcLimits& limits) {
    bool cancel = false;
    {
      std::lock_guard lock(mutex_);
      if (finish_ && now - finish_asked_ns_ > limits.end_within_ns && !finish_called_) cancel = true;
    }
    if (cancel) {
      std::lock_guard lock(context_mutex_);
      if (context_ != nullptr) context_->TryCancel();
    } else if (!said_hello_.load() && now - opened_ns_ > limits.hello_within_ns) {
      broke_rules("no hello in time");
    }
  }

 private:
  static grpc::Status status_of(End why, const std::string& text) {
    switch (why) {
      case End::Refused:
        return {grpc::StatusCode::FAILED_PRECONDITION, text};
      case End::Replaced:
        return {grpc::StatusCode::ABORTED, text};
      case End::Protocol:
        return {grpc::StatusCode::INVALID_ARGUMENT, text};
      case End::SendAgain:
      case End::Stopping:
        return {grpc::StatusCode::UNAVAILABLE, text};
    }
    return {grpc::StatusCode::INTERNAL, text};
  }

  Received now() const { return {clock_.monotonic_ns(), clock_.wall_ns()}; }

  void take(wire::Hello& hello) {
    if (said_hello_.exchange(true)) return broke_rules("hello twice");
    agent_ = hello.agent;
    queue_.push(Opened{shared_from_this(), std::move(hello), now()});
  }

  void take(wire::Batch& batch) {
    if (!said_hello_.load()) return broke_rules("batch before hello");
    Arrived message;
    message.link = shared_from_this();
    message.sequence = batch.sequence;
    message.at = now();
    for (std::string& bytes : batch.records) {
      Result<wire::Decoded> decoded = wire::decode_record(bytes, agent_);
      if (decoded) {
        message.malformed += decoded->rejected_parts;
        message.records.push_back({std::move(decoded->record), std::move(bytes)});
      } else if (decoded.error().kind == Error::Kind::NoData) {
        ++message.unknown;
      } else if (decoded.error().kind == Error::Kind::Permission) {
        ++message.foreign;
      } else {
        ++message.malformed;
      }
    }
    queue_.push(std::move(message));
  }

  void take(wire::Goodbye& goodbye) {
    if (!said_hello_.load()) return broke_rules("goodbye before hello");
    queue_.push(Left{shared_from_this(), std::move(goodbye), now()});
  }

  void broke_rules(const std::string& text) {
    closed(true);
    finish({grpc::StatusCode::INVALID_ARGUMENT, text});
  }

  void closed(bool by_agent) {
    if (!close_told_.exchange(true)) queue_.push(Closed{shared_from_this(), by_agent, now()});
  }

  template <typename Change>
  void say(Change change) {
    {
      std::lock_guard lock(mutex_);
      if (gone_ || finish_called_) return;
      change();
    }
    pump();
  }

  void finish(grpc::Status status) {
    {
      std::lock_guard lock(mutex_);
      if (!finish_) {
        finish_ = std::move(status);
        finish_asked_ns_ = clock_.monotonic_ns();
      }
    }
    pump();
  }

  // Starts the next write, or ends the stream when nothing is left to say. At most one of either is under way.
  void pump() {
    std::optional<grpc::Status> last;
    {
      std::lock_guard lock(mutex_);
      if (writing_ || finish_called_) return;
      if (!gone_ && next_word()) {
        writing_ = true;
        StartWrite(&outgoing_);
        return;
      }
      if (!finish_) return;
      finish_called_ = true;
      last = *finish_;
    }
    // Outside the lock: OnDone may follow at once.
    Finish(*last);
  }

  bool next_word() {
    if (welcome_) {
      wire::encode(wire::AggregatorWord{*std::exchange(welcome_, std::nullopt)}, outgoing_);
    } else if (ack_) {
      wire::encode(wire::AggregatorWord{*std::exchange(ack_, std::nullopt)}, outgoing_);
    } else if (plan_ && !finish_) {
      wire::encode(wire::AggregatorWord{*std::exchange(plan_, std::nullopt)}, outgoing_);
    } else {
      return false;
    }
    return true;
  }

  std::mutex context_mutex_;
  grpc::CallbackServerContext* context_;  // null after OnDone
  StreamTable& table_;
  MessageQueue& queue_;
  const Clock& clock_;
  const Nanos opened_ns_;
  v1::AgentMessage incoming_;
  v1::AggregatorMessage outgoing_;
  std::string agent_;  // written once, before the first batch is read
  std::atomic<bool> said_hello_{false};
  std::atomic<bool> close_told_{false};

  std::mutex mutex_;
  bool writing_ = false;
  bool finish_called_ = false;
  bool gone_ = false;  // nothing more can be sent
  Nanos finish_asked_ns_ = 0;
  std::optional<grpc::Status> finish_;
  std::optional<wire::Welcome> welcome_;
  std::optional<wire::Ack> ack_;
  std::optional<model::ProbePlan> plan_;
};

bool StreamTable::add(const std::shared_ptr<AgentStream>& stream) {
  std::lock_guard lock(mutex_);
  if (streams_.size() >= bound_) return false;
  streams_.emplace(stream.get(), stream);
  return true;
}

void StreamTable::remove(const AgentStream* stream) {
  std::shared_ptr<AgentStream> last;  // destroyed after the lock is gone
  std::lock_guard lock(mutex_);
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  last = std::move(it->second);
  streams_.erase(it);
}

std::vector<std::shared_ptr<AgentStream>> StreamTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<AgentStream>> out;
  for (const auto& [key, stream] : streams_) out.push_back(stream);
  return out;
}

// Refuses a stream that there is no room for.
class FullStream final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::AggregatorMessage> {
 public:
  FullStream() { Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many streams"}); }
  void OnDone() override { delete this; }
};

class FabricService final : public v1::Fabric::CallbackService {
 public:
  FabricService(StreamTable& table, MessageQueue& queue, const Clock& clock)
      : table_(table), queue_(queue), clock_(clock) {}

  grpc::ServerBidiReactor<v1::AgentMessage, v1::AggregatorMessage>* Stream(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<AgentStream>(context, table_, queue_, clock_);
    if (!table_.add(stream)) {
      ++turned_away_;
      return new FullStream();
    }
    stream->begin();
    return stream.get();
  }
  std::uint64_t take_turned_away() { return turned_away_.exchange(0); }

 private:
  std::atomic<std::uint64_t> turned_away_{0};
  StreamTable& table_;
  MessageQueue& queue_;
  const Clock& clock_;
};

}  // namespace

struct GrpcServer::Impl {
  Impl(GrpcLimits l, MessageQueue& queue, const Clock& c)
      : limits(l), clock(c), table(l.max_streams), service(table, queue, c) {}
  const GrpcLimits limits;
  const Clock& clock;
  StreamTable table;
  FabricService service;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() { stop(0); }

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(const std::string& address, GrpcLimits limits,
                                                      MessageQueue& queue, const Clock& clock) {
  auto impl = std::make_unique<Impl>(limits, queue, clock);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &impl->port);
  builder.RegisterService(&impl->service);
  builder.SetMaxReceiveMessageSize(static_cast<int>(wire::kMaxMessageBytes));
  builder.SetMaxSendMessageSize(static_cast<int>(wire::kMaxMessageBytes));
  grpc::ResourceQuota quota("weft-ingest");
  quota.Resize(limits.max_memory_bytes);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, wire::kKeepalivePingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, wire::kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, wire::kKeepaliveMinimumMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // With it a second aggregator on the same port would silently take half of the agents.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port == 0) {
    return make_error(Error::Kind::Invalid, "cannot listen for agents on " + address +
                                                ": address in use or not local; see [listen] grpc or --listen-grpc");
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

int GrpcServer::port() const { return impl_->port; }
std::uint64_t GrpcServer::take_turned_away() { return impl_->service.take_turned_away(); }

void GrpcServer::sweep() {
  const Nanos now = impl_->clock.monotonic_ns();
  for (const auto& stream : impl_->table.all()) stream->check(now, impl_->limits);
}

void GrpcServer::stop(Nanos wait_ns) {
  if (impl_->server == nullptr) return;
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(wait_ns));
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace weft::aggregator
