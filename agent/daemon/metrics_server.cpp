#include "agent/daemon/metrics_server.h"

#include <chrono>
#include <mutex>
#include <thread>

#include "lib/base/thread_name.h"
#include "lib/http/bounded_server.h"
#include "lib/metrics/exposition.h"

namespace weft::agent {
namespace {

constexpr Nanos kHangsAfter = 10 * kSecond;
// One or two scrapers, near by. 500 connections that only wait are gone in 500 / 4 * 25 ms = 3 s, well within the 10 s
// that Prometheus waits for a scrape.
constexpr http::ConnectionLimits kLimits{.threads = 4,
                                         .waiting = 32,
                                         .request = std::chrono::milliseconds(2'000),
                                         .answer = std::chrono::milliseconds(5'000),
                                         .request_patience = std::chrono::milliseconds(25),
                                         .answer_patience = std::chrono::milliseconds(25)};

}  // namespace

struct MetricsServer::Impl {
  explicit Impl(const Clock& c) : clock(c), published_ns(c.monotonic_ns()) {}
  const Clock& clock;
  http::BoundedServer server{kLimits};
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

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const HostPort& listen, const Clock& clock) {
  auto impl = std::make_unique<Impl>(clock);
  http::BoundedServer& server = impl->server;
  server.set_payload_max_length(4096);
  Impl* raw = impl.get();
  server.Get("/metrics", [raw](const httplib::Request& request, httplib::Response& response) {
    std::shared_ptr<const std::vector<model::MetricSample>> samples;
    Nanos age_ns = 0;
    {
      std::lock_guard lock(raw->mutex);
      samples = raw->samples;
      age_ns = raw->clock.monotonic_ns() - raw->published_ns;
    }
    const metrics::PageFormat format = metrics::choose_format(request.get_header_value("Accept"));
    response.set_header("Vary", "Accept");
    response.set_content(raw->exposition.render(*samples, format, age_ns), std::string(metrics::content_type(format)));
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
  model::MetricSample cut;
  cut.name = "weft_http_connections_cut_total";
  cut.value = static_cast<double>(impl_->server.cut());
  samples.push_back(std::move(cut));
  auto page = std::make_shared<const std::vector<model::MetricSample>>(std::move(samples));
  std::lock_guard lock(impl_->mutex);
  impl_->samples = std::move(page);
  impl_->published_ns = impl_->clock.monotonic_ns();
  impl_->healthy = healthy;
  impl_->reason = std::move(reason);
}

}  // namespace weft::agent
