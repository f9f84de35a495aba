// Hosts and their devices: what explains lost probes before any link is asked.
#include <algorithm>
#include <cstdio>

#include "lib/localise/judge.h"
#include "lib/model/subject.h"

namespace weft::localise {
namespace {

constexpr std::size_t kMaxVictims = 64;
constexpr Nanos kNeverSeenAfter = 60 * kSecond;
constexpr Nanos kStartGrace = 5 * kSecond;

std::string seconds(Nanos ns) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f s", static_cast<double>(ns) / 1e9);
  return buffer;
}

model::Finding make(model::FindingKind kind, std::string subject, std::string summary, double sure) {
  model::Finding finding;
  finding.kind = kind;
  finding.subject = std::move(subject);
  finding.severity = model::finding_info(kind).severity;
  finding.summary = std::move(summary);
  finding.confidence = sure;
  return finding;
}

// What the host itself says of the device or one of its ports: it names GID and step.
std::string why_not(const Host& host, const std::string& rnic) {
  const std::string port = "port:" + rnic.substr(rnic.find(':') + 1) + "/";
  if (host.inventory) {
    for (const model::Limitation& limitation : host.inventory->limitations) {
      if (limitation.subject == rnic || limitation.subject.starts_with(port)) return ": " + limitation.why;
    }
  }
  return "; see weft status there";
}

}  // namespace

void Judge::judge_hosts(Nanos now, std::vector<Verdict>& out) {
  const auto tell = [&](model::Finding finding, Nanos since) {
    finding.since_ns = since;  // what holds for as long as it stands, and no longer
    out.push_back({std::move(finding)});
  };
  for (const std::string& name : fabric_.topology().hosts()) static_cast<void>(hosts_.touch(name, now));
  for (const auto& [name, host] : hosts_.all()) {
    const std::string subject = model::host_subject(name);
    switch (hosts_.state(host, now)) {
      case HostState::Silent: {
        const Nanos last = host.last_contact.value_or(host.first_seen);
        if (now - std::max(last, resumed_) <= hosts_.silence_allowed(host, now)) break;
        const bool probed = host.last_probed && now - *host.last_probed < 5 * kSecond;
        model::Finding finding = make(model::FindingKind::HostSilent, subject,
                                      name + " is silent: no report" + (probed ? " and no answer to probes" : "") +
                                          " for " + seconds(now - last) + ", no stop was announced",
                                      probed ? 0.95 : 0.75);
        finding.evidence.push_back({"silence", double(now - last) / 1e9, "seconds", double(now - last) / 1e9});
        if (!probed) finding.not_checked.push_back("Whether it answers probes: no other host probes it now.");
        finding.not_checked.push_back("Whether the host itself is up: weftd alone may have stopped.");
        tell(std::move(finding), last);
        break;
      }
      case HostState::Unreachable: {
        model::Finding finding = make(model::FindingKind::CannotMeasure, subject,
                                      name + " answers probes but its reports do not arrive for " +
                                          seconds(now - *host.last_contact) + "; check the management network",
                                      0.9);
        finding.evidence.push_back({"silence", double(now - *host.last_contact) / 1e9, "seconds", 0});
        tell(std::move(finding), *host.last_contact);
        break;
      }
      case HostState::NeverSeen:
        if (now - host.first_seen > kNeverSeenAfter) {
          tell(make(model::FindingKind::CannotMeasure, subject,
                    "no agent of " + name + " has reported; start weftd there, or take the host out of the topology",
                    0.9),
               host.first_seen);
        }
        break;
      case HostState::Reporting: {
        if (!host.overloaded) break;
        Nanos worst = 0;
        double share = 0;
        unsigned bad = 0;
        for (const Host::Beat& beat : host.beats) {
          worst = std::max(worst, beat.max_gap_ns);
          share += beat.late_share / static_cast<double>(host.beats.size());
          bad += beat.max_gap_ns >= HostBook::kOverloadGap / 2 || beat.starved || beat.peers_complain ? 1 : 0;
        }
        std::size_t slow = 0;
        for (const auto& [second, probers] : host.slow_answers) slow += probers.size() >= 2 ? 1 : 0;
        char text[160];
        if (bad > 0) {
          std::snprintf(text, sizeof text,
                        " schedules weftd up to %.0f ms late (%u of %zu windows); its timeouts accuse nobody",
                        static_cast<double>(worst) / 1e6, bad, host.beats.size());
        } else {
          std::snprintf(text, sizeof text, " answers late (%zu s in which several peers waited for its software)",
                        slow);
        }
        model::Finding finding = make(model::FindingKind::HostOverloaded, subject, name + text, bad >= 5 ? 0.95 : 0.85);
        finding.evidence.push_back({"max_gap", double(worst) / 1e9, "seconds", double(host.beats.size())});
        finding.evidence.push_back({"late_share", share, "ratio", double(host.beats.size())});
        finding.evidence.push_back({"bad_windows", double(bad), "windows", double(host.beats.size())});
        if (host.health && host.health->cpu_pressure_some) {
          finding.evidence.push_back({"cpu_pressure_some", *host.health->cpu_pressure_some, "ratio", 10});
        }
        finding.not_checked.push_back("Links and devices of " + name + ": its evidence does not count meanwhile.");
        tell(std::move(finding), host.overloaded_since);
        break;
      }
      case HostState::Restarting:
        break;
      case HostState::Stopped:
        // A stop that was announced is nobody's fault. Without a topology nobody says that the host is still expected.
        if (fabric_.topology().empty()) break;
        tell(make(model::FindingKind::CannotMeasure, subject,
                  "weftd of " + name + " was stopped and has not started again: nothing of " + name +
                      " is measured; start it, or take the host out of the topology",
                  0.9),
             *host.goodbye);
        break;
    }
  }
}

std::vector<std::string> Judge::peers_of(EndpointId endpoint) const {
  std::set<std::string> pairs;
  for (const Path& path : evidence_.paths()) {
    if (path.from != endpoint && path.to != endpoint) continue;
    pairs.insert(model::pair_subject(fabric_.endpoint(path.from).host, fabric_.endpoint(path.to).host));
    if (pairs.size() >= kMaxVictims) break;
  }
  return {pairs.begin(), pairs.end()};
}

void Judge::judge_devices(Nanos now, std::vector<Verdict>& out) {
  for (const auto& [name, host] : hosts_.all()) {
    if (hosts_.state(host, now) != HostState::Reporting) continue;
    if (host.started && now - *host.started < kStartGrace) continue;
    for (const auto& [device, port] : host.endpoints) {
      if (!port.trouble()) continue;
      const std::string rnic = model::rnic_subject(name, device);
      const auto endpoint = fabric_.find_endpoint(name + "/" + device);
      model::Finding finding;
      if (port.device_gone) {
        finding = make(model::FindingKind::RnicUnreachable, rnic,
                       name + "/" + device + " is gone from its host, which itself reports", 0.97);
      } else if (port.port_down) {
        std::string cable;
        for (LinkId id = 0; endpoint && id < fabric_.link_count() && cable.empty(); ++id) {
          if (fabric_.link(id).host_end == *endpoint) cable = fabric_.undirected_subject(id);
        }
        const std::string why = name + " reports the port of " + device + " down";
        if (cable.empty()) {
          finding = make(model::FindingKind::RnicUnreachable, rnic, why, 0.9);
          finding.not_checked.push_back("The cable: the switch at its other end is not known.");
        } else {
          finding = make(model::FindingKind::LinkDown, cable, "link " + cable.substr(5) + " is down: " + why, 0.97);
        }
      } else {
        finding = make(
            model::FindingKind::CannotMeasure, rnic,
            name + "/" + device + " is there, but weftd offers no probe endpoint on it" + why_not(host, rnic), 0.9);
      }
      finding.evidence.push_back({"reported_by_host", 1, "inventories", double(now - port.since) / 1e9});
      if (endpoint && finding.kind != model::FindingKind::CannotMeasure) finding.victims = peers_of(*endpoint);
      finding.since_ns = remember(finding.kind, finding.subject, port.since, now);
      out.push_back({std::move(finding)});
    }
  }
}

}  // namespace weft::localise
