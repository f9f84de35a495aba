#include "agent/daemon/metrics_server.h"

#include <httplib.h>

#include <mutex>
#include <thread>

#include "lib/base/thread_name.h"
#include "lib/metrics/exposition.h"

namespace weft::agent {
namespace {

constexpr Nanos kHangsAfter = 10 * kSecond;

}  // namespace

struct MetricsServer::Impl {
  explicit Impl(const Clock& c) : clock(c), published_ns(c.monotonic_ns()) {}
  const Clock& clock;
  httplib::Server server;
  std::thread thread;
  std::uint16_t port = 0;
  metrics::Exposition exposition{"weftd"};
  std::mutex mutex;
  std::shared_ptr<const std::vector<model::MetricSample>> samples =
      std::make_shared<const std::vector<model::MetricSample>>();
  Nanos published_ns;
  bool healthy = false;
  std::string reason = "starting";
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const ListenAddress& listen, const Clock& clock) {
  auto impl = std::make_unique<Impl>(clock);
  httplib::Server& server = impl->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(2); };
  // httplib polls 100 times a second for the next request of a kept connection; one connection a scrape is cheaper.
  server.set_keep_alive_max_count(1);
  server.set_read_timeout(5);
  server.set_write_timeout(5);
  server.set_payload_max_length(4096);
  // httplib's default is SO_REUSEPORT, with which a second weftd would silently share the port.
  server.set_socket_options([](socket_t fd) {
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  Impl* raw = impl.get();
  server.Get("/metrics", [raw](const httplib::Request&, httplib::Response& response) {
    std::shared_ptr<const std::vector<model::MetricSample>> samples;
    {
      std::lock_guard lock(raw->mutex);
      samples = raw->samples;
    }
    response.set_content(raw->exposition.render(*samples), std::string(metrics::kContentType).c_str());
  });
  server.Get("/healthz", [raw](const httplib::Request&, httplib::Response& response) {
    std::lock_guard lock(raw->mutex);
    const bool hangs = raw->clock.monotonic_ns() - raw->published_ns > kHangsAfter;
    const bool good = raw->healthy && !hangs;
    response.status = good ? 200 : 503;
    response.set_content((good ? "ok" : hangs ? "the main loop does not move" : raw->reason) + "\n", "text/plain");
  });
  errno = 0;
  int port = listen.port;
  const bool bound = listen.port != 0 ? server.bind_to_port(listen.host.c_str(), listen.port)
                                      : (port = server.bind_to_any_port(listen.host.c_str())) > 0;
  if (!bound) {
    const int why = errno;
    return errno_error(why, "cannot listen on " + listen.host + ":" + std::to_string(listen.port) +
                                " for metrics (another weftd? set metrics.listen)");
  }
  impl->port = static_cast<std::uint16_t>(port);
  impl->thread = std::thread([raw] {
    name_this_thread("weft-metrics");
    raw->server.listen_after_bind();
  });
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() {
  // stop() before the thread entered its loop would be forgotten.
  while (!impl_->server.is_running()) std::this_thread::yield();
  impl_->server.stop();
  impl_->thread.join();
}

std::uint16_t MetricsServer::port() const { return impl_->port; }

void MetricsServer::publish(std::vector<model::MetricSample> samples, bool healthy, std::string reason) {
  auto page = std::make_shared<const std::vector<model::MetricSample>>(std::move(samples));
  std::lock_guard lock(impl_->mutex);
  impl_->samples = std::move(page);
  impl_->published_ns = impl_->clock.monotonic_ns();
  impl_->healthy = healthy;
  impl_->reason = std::move(reason);
}

}  // namespace weft::agent
