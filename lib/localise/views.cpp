#include "lib/localise/views.h"

#include <algorithm>
#include <map>
#include <set>

namespace weft::localise {
namespace {

constexpr Nanos kRateWindow = 6 * kSecond;
// Senders pace to their plan, and windows come when they come: a little under the goal is the goal.
constexpr double kCoveredShare = 0.8;
constexpr std::size_t kMaxUncovered = 64;
constexpr Nanos kTracesDue = 30 * kSecond;  // of a host that can trace

struct PathSums {
  std::uint64_t sent = 0, out = 0, back = 0, unknown = 0, ce_out = 0, ce_back = 0, ecn_out = 0, ecn_back = 0;
  std::vector<Nanos> medians, p90s;
};

PathSums sums_of(const Path& path, Nanos oldest) {
  PathSums sums;
  for (const Bucket& b : path.ring) {
    if (b.slot < 0 || b.received <= oldest) continue;
    sums.sent += b.sent;
    sums.out += b.lost_out;
    sums.back += b.lost_back;
    sums.unknown += b.lost_unknown;
    sums.ce_out += b.ce_out;
    sums.ce_back += b.ce_back;
    sums.ecn_out += b.ecn_out;
    sums.ecn_back += b.ecn_back;
    if (b.rtt_median >= 0) sums.medians.push_back(b.rtt_median);
    if (b.rtt_p90 >= 0) sums.p90s.push_back(b.rtt_p90);
  }
  return sums;
}

std::optional<Nanos> median(std::vector<Nanos>& values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<MeshCell> Views::mesh(Nanos now) const {
  struct Work {
    MeshCell cell;
    std::vector<Nanos> medians, p90s;
    bool late = false;
  };
  std::map<std::pair<EndpointId, EndpointId>, Work> cells;
  for (const Path& path : evidence_.paths()) {
    PathSums s = sums_of(path, now - config_.window_ns);
    Work& work = cells[{path.from, path.to}];
    MeshCell& cell = work.cell;
    cell.sent += s.sent;
    cell.lost += s.out + s.back + s.unknown;
    cell.ce += s.ce_out + s.ce_back;
    cell.ecn_capable += s.ecn_out + s.ecn_back;
    if (s.sent > 0) ++cell.paths;
    work.medians.insert(work.medians.end(), s.medians.begin(), s.medians.end());
    work.p90s.insert(work.p90s.end(), s.p90s.begin(), s.p90s.end());
    for (const Route* route : {&fabric_.route(path.from, path.to, path.ports_out()),
                               &fabric_.route(path.to, path.from, path.ports_back())}) {
      for (const LinkId id : route->links) work.late = work.late || judge_.is_late(id);
    }
  }
  std::vector<MeshCell> out;
  out.reserve(cells.size());
  for (auto& [key, work] : cells) {
    MeshCell& cell = work.cell;
    cell.from = fabric_.endpoint(key.first).name;
    cell.to = fabric_.endpoint(key.second).name;
    if (const auto leaf = fabric_.leaf_of(key.first)) cell.from_leaf = fabric_.node_name(*leaf);
    if (const auto leaf = fabric_.leaf_of(key.second)) cell.to_leaf = fabric_.node_name(*leaf);
    cell.rtt_median_ns = median(work.medians);
    cell.rtt_p90_ns = median(work.p90s);
    const auto away = [&](EndpointId id) {
      const Host* host = hosts_.find(fabric_.endpoint(id).host);
      return host == nullptr || hosts_.state(*host, now) != HostState::Reporting;
    };
    const auto share = [](std::uint64_t part, std::uint64_t whole) {
      return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    if (away(key.first) || away(key.second)) {
      cell.state = "silent";
    } else if (cell.sent == 0) {
      cell.state = "unknown";
    } else if (cell.lost >= 2 && share(cell.lost, cell.sent) >= config_.loss_ratio_raise) {
      cell.state = "loss";
    } else if (work.late) {
      cell.state = "late";
    } else if (cell.ce >= 2 && share(cell.ce, cell.ecn_capable) >= config_.ce_ratio_raise) {
      cell.state = "ce";
    } else {
      cell.state = "ok";
    }
    out.push_back(std::move(cell));
  }
  return out;
}

std::vector<PathView> Views::paths(Nanos now) const {
  std::vector<PathView> out;
  out.reserve(evidence_.paths().size());
  for (const Path& path : evidence_.paths()) {
    PathSums s = sums_of(path, now - config_.window_ns);
    PathView view;
    view.key = {fabric_.endpoint(path.from).name, fabric_.endpoint(path.to).name, path.forward_port, path.return_port};
    const auto names = [&](const Route* route, std::vector<std::string>& to) {
      if (route == nullptr || !route->traced) return;
      for (const NodeId node : route->nodes) to.push_back(fabric_.node_name(node));
    };
    names(fabric_.traced(path.from, path.to, path.ports_out()), view.forward);
    names(fabric_.traced(path.to, path.from, path.ports_back()), view.back);
    view.sent = s.sent;
    view.lost_forward = s.out;
    view.lost_back = s.back;
    view.lost_unknown = s.unknown;
    view.ce_forward = s.ce_out;
    view.ce_back = s.ce_back;
    view.ecn_forward = s.ecn_out;
    view.ecn_back = s.ecn_back;
    view.rtt_median_ns = median(s.medians);
    out.push_back(std::move(view));
  }
  return out;
}

std::vector<LinkView> Views::links(Nanos now) const {
  std::vector<LinkView> by_link(fabric_.link_count());
  std::vector<double> recent(fabric_.link_count(), 0);
  // Laying a route may add a (virtual) link: lay them all first.
  for (const Path& path : evidence_.paths()) {
    fabric_.route(path.from, path.to, path.ports_out());
    fabric_.route(path.to, path.from, path.ports_back());
  }
  by_link.resize(fabric_.link_count());
  recent.resize(fabric_.link_count(), 0);
  for (const Path& path : evidence_.paths()) {
    const PathSums s = sums_of(path, now - config_.window_ns);
    const PathSums fresh = sums_of(path, now - kRateWindow);
    for (const LinkId id : fabric_.route(path.from, path.to, path.ports_out()).links) {
      by_link[id].crossed += s.sent;
      by_link[id].lost += s.out + s.unknown;
      by_link[id].ce += s.ce_out;
      by_link[id].ecn_capable += s.ecn_out;
      recent[id] += static_cast<double>(fresh.sent);
    }
    for (const LinkId id : fabric_.route(path.to, path.from, path.ports_back()).links) {
      by_link[id].crossed += s.sent - std::min(s.sent, s.out);
      by_link[id].lost += s.back + s.unknown;
      by_link[id].ce += s.ce_back;
      by_link[id].ecn_capable += s.ecn_back;
      recent[id] += static_cast<double>(fresh.sent - std::min(fresh.sent, fresh.out));
    }
  }
  std::vector<LinkView> out;
  for (const LinkId id : fabric_.known_links()) {
    LinkView view = by_link[id];
    view.from = fabric_.from_label(id);
    view.to = fabric_.to_label(id);
    view.probes_per_s = recent[id] / (static_cast<double>(kRateWindow) / 1e9);
    view.covered = view.probes_per_s >= kCoveredShare * config_.link_probes_per_s;
    out.push_back(std::move(view));
  }
  return out;
}

std::vector<HostView> Views::hosts(Nanos now) const {
  std::vector<HostView> out;
  for (const auto& [name, host] : hosts_.all()) {
    HostView view;
    view.host = name;
    switch (hosts_.state(host, now)) {
      case HostState::Reporting:
        view.state = "reporting";
        break;
      case HostState::Restarting:
        view.state = "restarting";
        break;
      case HostState::Stopped:
        view.state = "stopped";
        break;
      case HostState::NeverSeen:
      case HostState::Silent:
      case HostState::Unreachable:
        view.state = "silent";
        break;
    }
    const HostPlace place = fabric_.topology().place_of(name);
    view.rail = place.rail;
    view.pod = place.pod;
    view.last_contact_ns = host.last_contact.value_or(0);
    view.inventory = host.inventory;
    view.health = host.health;
    out.push_back(std::move(view));
  }
  return out;
}

Coverage Views::coverage(Nanos now) const {
  Coverage coverage;
  for (const LinkView& link : links(now)) {
    ++coverage.links;
    if (link.covered) {
      ++coverage.covered;
    } else if (coverage.uncovered.size() < kMaxUncovered) {
      coverage.uncovered.push_back("link:" + link.from + ">" + link.to);
    }
  }
  std::set<std::string> expected(fabric_.topology().hosts().begin(), fabric_.topology().hosts().end());
  for (const auto& [name, host] : hosts_.all()) {
    const HostState state = hosts_.state(host, now);
    if (state == HostState::Stopped && fabric_.topology().empty()) continue;
    if (state == HostState::Reporting) ++coverage.agents_reporting;
    expected.insert(name);
  }
  coverage.agents_expected = static_cast<unsigned>(expected.size());
  const bool judged = coverage.links > 0 ? coverage.covered == coverage.links : all_probed(now);
  coverage.ready = judged && coverage.agents_expected > 0 && coverage.agents_reporting == coverage.agents_expected;
  return coverage;
}

bool Views::all_probed(Nanos now) const {
  std::set<std::string> probing, probed;
  for (const Path& path : evidence_.paths()) {
    const PathSums sums = sums_of(path, now - kRateWindow);
    if (sums.medians.empty()) continue;
    // Its trace found no router; where nobody can trace, none comes.
    const bool traced = fabric_.traced(path.from, path.to, path.ports_out()) != nullptr;
    const Host* from = hosts_.find(fabric_.endpoint(path.from).host);
    if (!traced && (from == nullptr || now - from->first_seen < kTracesDue)) continue;
    probing.insert(fabric_.endpoint(path.from).host);
    probed.insert(fabric_.endpoint(path.to).host);
  }
  std::size_t reporting = 0;
  for (const auto& [name, host] : hosts_.all()) {
    if (hosts_.state(host, now) != HostState::Reporting) continue;
    ++reporting;
    if (probing.count(name) == 0 || probed.count(name) == 0) return false;
  }
  return reporting >= 2;
}

}  // namespace weft::localise
