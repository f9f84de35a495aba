#include "aggregator/app.h"

#include <chrono>
#include <utility>

#include "aggregator/export/http_server.h"
#include "aggregator/ingest/grpc_server.h"
#include "aggregator/state/core.h"
#include "aggregator/store/writer.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"

namespace weft::aggregator {
namespace {

// Streams have at most one message each in it, so this is far above what can come.
constexpr std::size_t kQueueBound = 65'536;
constexpr Nanos kJudgeInterval = kSecond / 2;
constexpr Nanos kCommitInterval = 200 * kMillisecond;
constexpr std::size_t kMaxPendingBytes = 64 * 1024 * 1024;
// Judging is not put off by a flood of messages for longer than this many.
constexpr unsigned kDrain = 4096;

void warn_if_remote(const std::string& address, std::uint16_t usual_port, const char* what) {
  const auto where = parse_host_port(address, usual_port);
  if (where && !is_loopback(where->host)) {
    log::warning("listen", "reachable from elsewhere without TLS or authentication: trusted networks only",
                 {{"what", what}, {"address", address}});
  }
}

}  // namespace

struct App::Impl {
  Impl(AggregatorConfig c, const Clock& k) : config(std::move(c)), clock(k), queue(kQueueBound) {}

  AggregatorConfig config;
  const Clock& clock;
  MessageQueue queue;
  std::unique_ptr<Writer> writer;
  std::unique_ptr<Core> core;
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<HttpServer> http;
};

App::App(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
App::~App() = default;

Result<std::unique_ptr<App>> App::start(AggregatorConfig config, const std::string& version, const Clock& clock) {
  auto impl = std::make_unique<Impl>(std::move(config), clock);
  DatabaseLimits limits;
  limits.journal_retention_ns = impl->config.retention_ns;
  Result<Database> database = Database::open(impl->config.store_path, limits, clock.wall_ns());
  if (!database) {
    return make_error(Error::Kind::Invalid, database.error().message());
  }
  if (auto trimmed = database->trim(clock.wall_ns()); !trimmed) {
    log::warning("store", "could not drop what is old", {{"why", trimmed.error().message()}});
  }
  const Result<Recovered> recovered = database->load(clock.wall_ns());
  if (!recovered) return recovered.error();
  MessageQueue& queue = impl->queue;
  impl->writer = std::make_unique<Writer>(std::move(*database), limits, kCommitInterval, kMaxPendingBytes, clock,
                                          [&queue](const std::vector<AgentRow>& rows) { queue.push(Stored{rows}); });
  CoreConfig core;
  core.fabric = impl->config.fabric;
  impl->core = std::make_unique<Core>(core, localise::Localiser::create, impl->config.localiser, impl->config.topology,
                                      *impl->writer, queue, clock);
  impl->core->restore(*recovered);

  warn_if_remote(impl->config.listen_grpc, kUsualGrpcPort, "grpc");
  warn_if_remote(impl->config.listen_http, kUsualHttpPort, "http");
  Core& judging = *impl->core;
  auto http = HttpServer::start(
      impl->config.listen_http, HttpLimits{}, [&judging] { return judging.snapshot(); }, queue, clock, version);
  if (!http) return http.error();
  impl->http = std::move(*http);
  auto grpc = GrpcServer::start(impl->config.listen_grpc, GrpcLimits{}, queue, clock);
  if (!grpc) return grpc.error();
  impl->grpc = std::move(*grpc);
  return std::unique_ptr<App>(new App(std::move(impl)));
}

int App::grpc_port() const { return impl_->grpc->port(); }
int App::http_port() const { return impl_->http->port(); }

void App::run(const std::atomic<bool>& stop, std::atomic<bool>& reload,
              const std::function<Result<AggregatorConfig>()>& load, const std::function<void()>& alive) {
  Nanos next = impl_->clock.monotonic_ns();
  while (!stop.load()) {
    if (reload.exchange(false)) {
      Result<AggregatorConfig> fresh = load();
      if (fresh) {
        impl_->core->handle(Reload{fresh->localiser, std::move(fresh->topology)});
      } else {
        impl_->core->config_rejected();
        log::error("config", "not reloaded, the old one stays", {{"why", fresh.error().message()}});
      }
    }
    const Nanos now = impl_->clock.monotonic_ns();
    if (now >= next) {
      impl_->core->turned_away(impl_->grpc->take_turned_away());
      impl_->core->tick();
      impl_->grpc->sweep();
      alive();
      // Late ticks are not made up for.
      next = std::max(next + kJudgeInterval, now + kJudgeInterval / 2);
    }
    const Nanos wait = std::clamp<Nanos>(next - impl_->clock.monotonic_ns(), 0, 100 * kMillisecond);
    std::optional<Message> message = impl_->queue.pop_for(std::chrono::nanoseconds(wait));
    for (unsigned i = 0; message && i < kDrain; ++i) {
      impl_->core->handle(std::move(*message));
      message = i + 1 < kDrain ? impl_->queue.try_pop() : std::nullopt;
    }
    impl_->http->published();
  }
}

bool App::shut_down() {
  impl_->core->stop();
  impl_->grpc->stop(500 * kMillisecond);
  const bool clean = impl_->http->stop(std::chrono::milliseconds(300));
  impl_->writer->stop();
  return clean;
}

}  // namespace weft::aggregator
