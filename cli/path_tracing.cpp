#include "cli/path_tracing.h"

#include <algorithm>

namespace weft::cli {

probes::TraceRequest request_for(const HostAddress& host, const Direct::Place& place,
                                 const probes::ProbeOutcome& outcome, std::uint8_t traffic_class) {
  probes::TraceRequest request;
  request.from = outcome.key.from;
  request.to = host.name;
  request.from_address = place.local.address;
  request.to_address = host.address;
  request.netdev = place.local.netdev;
  request.source_port = outcome.key.forward_port;
  if (!place.local.rdma) request.destination_port = outcome.key.return_port;
  request.traffic_class = traffic_class;
  if (outcome.forward_hop_limit && *outcome.forward_hop_limit <= 64) {
    request.hops = static_cast<std::uint8_t>(64 - *outcome.forward_hop_limit);
  }
  return request;
}

PathTracing::PathTracing(std::uint8_t traffic_class, const Clock& clock) : traffic_class_(traffic_class) {
  auto socket = probes::open_trace_socket();
  if (!socket) {
    note_ = "paths not traced: " + socket.error().message();
    return;
  }
  auto tracer = probes::Tracer::start(probes::TraceLimits{}, std::move(*socket), clock);
  if (!tracer) {
    note_ = "paths not traced: " + tracer.error().message();
    return;
  }
  tracer_ = std::move(*tracer);
}

void PathTracing::see(const HostAddress& host, const Direct::Place& place, const probes::ProbeOutcome& outcome) {
  // Only an answered probe tells the hop count, without which the trace would walk into the host.
  if (!tracer_ || !outcome.forward_hop_limit || requests_.size() >= kMaxTraces) return;
  const std::uint16_t destination = place.local.rdma ? std::uint16_t{0} : outcome.key.return_port;
  const auto [it, fresh] = requests_.try_emplace({host.name, Ports{outcome.key.forward_port, destination}});
  if (!fresh) return;
  it->second = request_for(host, place, outcome, traffic_class_);
  if (auto added = tracer_->add(it->second); !added) {
    note_ = "paths not traced: " + added.error().message();
  }
}

void PathTracing::suspect(const std::string& host, const std::map<Ports, double>& probes_per_hop_per_s) {
  if (!tracer_) return;
  for (auto& [key, request] : requests_) {
    if (key.first != host) continue;
    const auto wanted = probes_per_hop_per_s.find(key.second);
    const double rate = wanted == probes_per_hop_per_s.end() ? 0 : wanted->second;
    if (request.probes_per_hop_per_s == rate) continue;
    request.probes_per_hop_per_s = rate;
    if (auto changed = tracer_->add(request); !changed) note_ = "paths not traced: " + changed.error().message();
  }
}

bool PathTracing::finished() const {
  if (!tracer_) return true;
  const auto views = tracer_->views();
  return std::all_of(views.begin(), views.end(), [](const auto& v) { return v.finished; });
}

std::vector<model::PathTrace> PathTracing::take() {
  return tracer_ ? tracer_->take_traces() : std::vector<model::PathTrace>();
}

std::map<std::uint16_t, WayThere> PathTracing::paths(const std::string& host, const RouteNames& names) const {
  std::map<std::uint16_t, WayThere> out;
  if (!tracer_) return out;
  for (const auto& view : tracer_->views()) {
    if (view.trace.to == host) out[view.trace.source_port] = names.path(view.trace);
  }
  return out;
}

}  // namespace weft::cli
