#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/direct.h"
#include "cli/format.h"
#include "cli/option_files.h"
#include "cli/path_tracing.h"
#include "cli/stop.h"
#include "cli/trace_report.h"

namespace weft::cli {
namespace {

constexpr Nanos kHelloWait = 4 * kSecond;  // five tries take 3.4 s, and then say what they found

// Asks the host's responder with a few probes: which ports are there, how many routers.
class Scout {
 public:
  Scout(const TraceOptions& options, HostAddress host, const probes::FabricKey& key, const Clock& clock)
      : o_(options), host_(std::move(host)), key_(key), clock_(clock) {}

  // Requests for every port that answered; empty with the reason in trouble when none did.
  Result<std::vector<probes::TraceRequest>> run(Nanos deadline) {
    EngineNeeds needs;
    needs.key = key_;
    needs.ports = o_.port != 0 ? 1 : o_.ports;
    needs.probes_per_s = 10.0 * needs.ports;
    // Half of what is left: a device that blocks still leaves time to trace without it.
    needs.open_within_ns = std::min(needs.open_within_ns, (deadline - clock_.monotonic_ns()) / 2);
    auto opened = Direct::open(o_.direct, {host_}, needs, clock_);
    if (!opened) return opened.error();
    Direct& direct = **opened;
    notes = direct.notes();
    Direct::Place& place = direct.place_of(0);
    label = place.label;
    local_address = place.local.address;
    ports = o_.port != 0 ? std::vector{o_.port} : direct.ports(place, o_.ports);
    model::PlanTarget target{place.local.device, host_.name, host_.address, o_.direct.hello_port, {}};
    for (std::uint16_t port : ports) target.paths.push_back({port, 0, 10});
    place.engine->set_targets({target});

    std::map<std::uint16_t, probes::TraceRequest> found;
    const Nanos until = std::min(deadline, clock_.monotonic_ns() + kHelloWait);
    while (clock_.monotonic_ns() < until && found.size() < ports.size() && !stop_asked()) {
      while (auto placed = direct.outcomes().try_pop()) {
        if (!placed->outcome.forward_hop_limit) continue;
        auto request = request_for(host_, place, placed->outcome, o_.direct.traffic_class);
        if (o_.to_port != 0) request.destination_port = o_.to_port;
        found.emplace(request.source_port, std::move(request));
      }
      const auto peer = peer_status(*place.engine, host_.name);
      if (peer && peer->state != probes::PeerState::Ready) trouble = peer->reason;
      if (peer && peer->state == probes::PeerState::Refused) break;
      sleep_until(clock_, clock_.monotonic_ns() + 20 * kMillisecond);
    }
    std::vector<probes::TraceRequest> out;
    for (auto& [port, request] : found) out.push_back(std::move(request));
    return out;
  }

  std::string label, local_address, trouble;
  std::vector<std::string> notes;
  std::vector<std::uint16_t> ports;

 private:
  const TraceOptions& o_;
  const HostAddress host_;
  const probes::FabricKey key_;
  const Clock& clock_;
};

}  // namespace

ExitCode run_trace(const TraceOptions& o, Output& output, const Clock& clock) {
  const Nanos deadline = clock.monotonic_ns() + o.deadline_ns;
  auto files = read_option_files(o.direct);
  if (!files) return output.fail("trace", files.error());
  auto socket = probes::open_trace_socket();
  if (!socket) return output.fail("trace", socket.error());
  auto host = resolve_host(o.host, o.deadline_ns);
  if (!host) return output.fail("trace", host.error());

  TraceReport report;
  report.host = host->name;
  report.address = host->address;
  std::vector<probes::TraceRequest> requests;
  if (!o.no_probe) {
    Scout scout(o, *host, files->key, clock);
    auto found = scout.run(deadline);
    for (const std::string& note : scout.notes) output.say("weft trace: " + printable(note));
    if (found) {
      requests = std::move(*found);
      report.local = scout.label;
      report.scouted = !requests.empty();
      if (requests.empty()) {
        report.note = "the host's responder did not answer" +
                      (scout.trouble.empty() ? "" : " (" + scout.trouble + ")") + ": hop count not known";
      } else if (requests.size() < scout.ports.size()) {
        report.note = count_of(scout.ports.size() - requests.size(), "port") + " got no answer from the host";
      }
    } else if (found.error().kind == Error::Kind::Invalid || found.error().kind == Error::Kind::NotFound) {
      return output.fail("trace", cannot_measure(found.error()));
    } else {
      report.note = found.error().message() + ": hop count not known";
    }
  }
  if (requests.empty()) {
    auto source =
        o.direct.source.empty() ? probes::source_address_for(host->address) : Result<std::string>(o.direct.source);
    if (!source) return output.fail("trace", source.error());
    if (report.local.empty()) report.local = *source;
    const unsigned count = o.port != 0 ? 1 : o.ports;
    for (unsigned i = 0; i < count; ++i) {
      probes::TraceRequest request;
      request.from = own_host_name();
      request.to = host->name;
      request.from_address = *source;
      request.to_address = host->address;
      request.source_port = o.port != 0 ? o.port : static_cast<std::uint16_t>(49152 + i);
      if (o.to_port != 0) request.destination_port = o.to_port;
      request.traffic_class = o.direct.traffic_class;
      requests.push_back(std::move(request));
    }
  }
  if (!output.json) {
    output.say("tracing " + count_of(requests.size(), "port") + " to " + host->address + " from " + report.local +
               "; routers answer about once a second, so this takes a while");
  }
  probes::TraceLimits limits;
  limits.routers.trial_packets = 0;  // one look does not pay for learning what the routers bear
  auto traced =
      probes::trace_once(requests, limits, **socket, clock, deadline, [&] { return stop_asked() || output.closed(); });
  if (!traced) return output.fail("trace", traced.error());
  report.views = std::move(traced->views);
  report.stats = traced->stats;
  report.finished = traced->finished;
  report.send_error = traced->send_error;
  report.stopped = stop_asked();
  const ExitCode code = trace_exit(report);
  if (output.json) {
    auto body = trace_json(report, files->names);
    if (code == ExitCode::CannotMeasure) {
      body["error"] = {{"kind", "cannot_measure"},
                       {"message", report.send_error.empty() ? "no router answered" : report.send_error}};
    } else if (code == ExitCode::Deadline) {
      body["error"] = {{"kind", "timeout"}, {"message", "the deadline passed before every hop was asked"}};
    }
    return output.finish_json("trace", code, std::move(body));
  }
  output.out << trace_report(report, files->names, output.paint) << std::flush;
  return code;
}

}  // namespace weft::cli
