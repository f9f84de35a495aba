#include "agent/daemon/real_parts.h"

#include <algorithm>

#include "agent/daemon/trace_relay.h"
#include "lib/base/log.h"
#include "probes/ping/engine.h"
#include "probes/ping/udp_transport.h"
#include "probes/rdma/rdma_transport.h"
#include "probes/trace/tracer.h"

namespace weft::agent {
namespace {

Result<std::unique_ptr<probes::Transport>> open_transport(const EndpointSpec& spec, const Settings& settings,
                                                          const Clock& clock) {
  const ProbeSettings& probe = settings.probe;
  if (spec.rdma) {
    probes::RdmaTransportOptions options;
    options.device = spec.rdma_device;
    options.port = spec.rdma_port;
    options.prober_ports = probe.lanes;
    options.responder_ports = probe.responder_lanes;
    options.max_payload_bytes = std::max(options.max_payload_bytes, probe.payload_bytes);
    options.clock = &clock;
    return probes::open_rdma_transport(options);
  }
  const auto local = model::Gid::parse(spec.address);
  if (!local) return local.error();
  probes::UdpTransportOptions options;
  options.local = *local;
  options.interface = spec.netdev;
  options.prober_ports.assign(probe.lanes, 0);
  options.responder_ports.assign(probe.responder_lanes, 0);
  return probes::open_udp_transport(options, clock);
}

class BackgroundTracer final : public TraceSource {
 public:
  explicit BackgroundTracer(std::unique_ptr<probes::Tracer> tracer) : tracer_(std::move(tracer)) {}
  void set_requests(const std::vector<probes::TraceRequest>& requests) override {
    const auto done = tracer_->set_requests(requests);
    refused_ = done ? "" : done.error().message();
    if (!done) log::warning("trace", "some paths are not traced", {{"reason", refused_}});
  }
  std::vector<model::PathTrace> take_traces() override { return tracer_->take_traces(); }
  std::string problem() override {
    // One send error a second is kept for as long as it lasts; a single one while a link flaps is not worth a word.
    const std::string error = tracer_->take_send_error();
    bad_seconds_ = error.empty() ? 0 : bad_seconds_ + 1;
    if (bad_seconds_ >= 10) return error;
    return refused_;
  }
  probes::TraceStats stats() override { return tracer_->stats(); }

 private:
  std::unique_ptr<probes::Tracer> tracer_;
  std::string refused_;
  unsigned bad_seconds_ = 0;
};

}  // namespace

EngineFactory real_engines(const Settings& settings, const Clock& clock) {
  return [settings, &clock](const EndpointSpec& spec) -> Result<std::unique_ptr<probes::Engine>> {
    auto transport = open_transport(spec, settings, clock);
    if (!transport) return transport.error();
    probes::EngineOptions options;
    options.host = settings.agent_name;
    options.device = spec.device;
    options.hello_port = settings.probe.hello_port;
    options.key = settings.key;
    options.traffic_class = settings.probe.traffic_class;
    options.timeout_ns = settings.probe.timeout_ns;
    options.skip_late_ns = 3 * options.overslept_ns;
    options.payload_bytes = settings.probe.payload_bytes;
    options.max_probes_per_s = settings.probe.max_probes_per_s;
    options.max_link_share = settings.probe.max_link_share;
    options.rate_bits_per_s = spec.rate_bits_per_s;
    return probes::Engine::start(std::move(options), std::move(*transport), clock);
  };
}

Result<std::unique_ptr<TraceSource>> real_tracer(const Settings& settings, const Clock& clock) {
  auto socket = probes::open_trace_socket();
  if (!socket) return socket.error();
  probes::TraceLimits limits;
  limits.rate_per_s = settings.trace_probes_per_s;
  limits.burst = std::max(1.0, std::min(limits.burst, settings.trace_probes_per_s));
  auto tracer = probes::Tracer::start(limits, std::move(*socket), clock);
  if (!tracer) return tracer.error();
  return std::unique_ptr<TraceSource>(
      std::make_unique<TraceRelay>(std::make_unique<BackgroundTracer>(std::move(*tracer))));
}

}  // namespace weft::agent
