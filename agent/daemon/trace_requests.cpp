#include "agent/daemon/trace_requests.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lib/rdma/source_port.h"

namespace weft::agent {
namespace {

constexpr std::size_t kOwnSuspects = 4, kMaxTrouble = 4096;
constexpr Nanos kTroubleFor = 5 * kSecond;
constexpr double kProbesPerHop = 5;  // a second
// Queues mark and delay on healthy days too. Marks count from here on; delay is left to the aggregator, which sees
// whether others are late as well: a host that is short of CPU finds all its paths late, and tracing them takes more
// CPU.
constexpr double kMarkedShare = 0.2;

}  // namespace

void TraceRequests::watch(const EngineReport& report, Nanos now) {
  for (const model::PathWindow& window : report.windows) {
    if (window.sent == 0 || window.key.forward_port == 0) continue;
    const double lost = window.forward.lost + window.back.lost + window.lost_unknown;
    double weight = lost / window.sent;
    for (const model::DirectionCounts* way : {&window.forward, &window.back}) {
      const double marked = way->ecn_capable == 0 ? 0 : double(way->ce) / way->ecn_capable;
      if (marked >= kMarkedShare) weight = std::max(weight, marked);
    }
    if (weight <= 0) continue;
    const PathId id{window.key.from, window.key.to, window.key.forward_port,
                    report.spec.rdma ? rdma::kRoceUdpPort : window.key.return_port};
    if (trouble_.size() >= kMaxTrouble && trouble_.count(id) == 0) continue;
    trouble_[id] = {now + kTroubleFor, weight};
  }
}

std::set<TraceRequests::PathId> TraceRequests::own_suspects(Nanos now) {
  std::erase_if(trouble_, [&](const auto& row) { return row.second.until <= now; });
  std::vector<std::pair<double, PathId>> worst;
  for (const auto& [id, trouble] : trouble_) worst.emplace_back(-trouble.weight, id);
  std::sort(worst.begin(), worst.end());
  std::set<PathId> out;
  for (std::size_t i = 0; i < worst.size() && i < kOwnSuspects; ++i) out.insert(worst[i].second);
  return out;
}

std::vector<probes::TraceRequest> TraceRequests::make(
    const std::vector<EngineReport>& reports, const std::map<std::string, std::vector<model::PlanTarget>>& targets,
    const std::vector<model::PlanTrace>& suspects, Nanos now) {
  for (const EngineReport& report : reports) watch(report, now);
  const std::set<PathId> own = own_suspects(now);
  std::vector<probes::TraceRequest> suspected, used, spare;
  std::set<std::pair<std::string, std::string>> pairs;
  for (const EngineReport& report : reports) {
    const std::string from = host_ + "/" + report.spec.device;
    for (const model::PathWindow& window : report.windows) {
      if (window.forward.hops) hops_[{window.key.from, window.key.to}][window.key.forward_port] = *window.forward.hops;
    }
    const auto add = [&](std::vector<probes::TraceRequest>& out, const std::string& to, const std::string& to_address,
                         std::uint16_t port, std::uint16_t destination_port) {
      probes::TraceRequest request;
      request.from = from;
      request.to = to;
      request.from_address = report.endpoint.address;
      request.to_address = to_address;
      request.netdev = report.spec.netdev;
      request.source_port = port;
      request.traffic_class = traffic_class_;
      request.destination_port = destination_port;
      if (const auto known = hops_.find({from, to}); known != hops_.end() && !known->second.empty()) {
        const auto same = known->second.find(port);
        request.hops = same != known->second.end() ? same->second : known->second.begin()->second;
      }
      pairs.insert({from, to});
      out.push_back(std::move(request));
    };
    std::set<std::tuple<std::string, std::uint16_t, std::uint16_t>> counted;
    for (const model::PlanTrace& suspect : suspects) {
      // A port of RoCE's for an endpoint that has gone over to UDP: an order from before.
      if (suspect.from_device != report.spec.device || (suspect.destination_port == 0) != report.spec.rdma) continue;
      const std::uint16_t destination = report.spec.rdma ? rdma::kRoceUdpPort : suspect.destination_port;
      if (!counted.insert({suspect.to, suspect.source_port, destination}).second) continue;
      add(suspected, suspect.to, suspect.to_address, suspect.source_port, destination);
      suspected.back().probes_per_hop_per_s = suspect.probes_per_hop_per_s;
    }
    const auto once = [&](std::vector<probes::TraceRequest>& out, const std::string& to, const std::string& to_address,
                          std::uint16_t port, std::uint16_t destination_port) {
      if (counted.count({to, port, destination_port}) != 0) return;
      const bool troubled = own.count({from, to, port, destination_port}) != 0;
      add(troubled ? suspected : out, to, to_address, port, destination_port);
      if (troubled) suspected.back().probes_per_hop_per_s = kProbesPerHop;
    };
    const auto mine = targets.find(report.spec.device);
    if (mine != targets.end()) {
      for (const model::PlanTarget& target : mine->second) {
        std::set<std::uint16_t> wanted;
        for (const model::PlanPath& path : target.paths) wanted.insert(path.forward_port);
        const auto peer = std::find_if(report.peers.begin(), report.peers.end(),
                                       [&](const probes::PeerStatus& p) { return p.to == target.to; });
        if (!report.spec.rdma && (peer == report.peers.end() || peer->return_ports.empty())) continue;
        const std::vector<std::uint16_t>& own_ports = report.endpoint.prober_ports;
        for (const std::uint16_t port : own_ports) {
          const std::uint16_t destination =
              report.spec.rdma ? rdma::kRoceUdpPort
                               : peer->return_ports[model::udp_partner(own_ports, port, peer->return_ports.size())];
          once(wanted.count(port) != 0 || wanted.count(0) != 0 ? used : spare, target.to, target.to_address, port,
               destination);
        }
      }
    }
    for (const probes::RegisteredPeer& peer : report.registered) {
      for (const probes::RegisteredPeer::Ports& ports : peer.ports) {
        once(used, peer.name, peer.address, ports.own, ports.theirs);
      }
      if (!report.spec.rdma) continue;
      for (const std::uint16_t port : report.endpoint.responder_ports) {
        once(used, peer.name, peer.address, port, rdma::kRoceUdpPort);
      }
    }
  }
  for (auto it = hops_.begin(); it != hops_.end();) it = pairs.count(it->first) != 0 ? std::next(it) : hops_.erase(it);
  suspected.insert(suspected.end(), std::make_move_iterator(used.begin()), std::make_move_iterator(used.end()));
  suspected.insert(suspected.end(), std::make_move_iterator(spare.begin()), std::make_move_iterator(spare.end()));
  left_out_ = suspected.size() > max_requests_ ? suspected.size() - max_requests_ : 0;
  if (left_out_ > 0) suspected.resize(max_requests_);
  return suspected;
}

}  // namespace weft::agent
