#include "cli/status_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/format.h"

namespace weft::cli {
namespace {

Style state_style(model::PortState state) {
  if (state == model::PortState::Active) return Style::Good;
  return state == model::PortState::Unknown ? Style::Warn : Style::Bad;
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

}  // namespace

std::string status_report(const StatusReport& r, std::size_t width, const Paint& paint) {
  std::string out = paint(Style::Bold, printable(r.inventory.host));
  if (!r.inventory.kernel.empty()) out += "  Linux " + printable(r.inventory.kernel);
  out += "  weftd: " + paint(r.agent.answers ? Style::Good : Style::Dim, printable(r.agent.text)) + "\n\n";
  if (r.inventory.devices.empty()) {
    out += "no RDMA device here: weft measures over UDP, timestamps by " +
           format_timestamps(model::TimestampRung::KernelSoftware) + '\n';
  } else {
    Table ports({{"device"},
                 {"port"},
                 {"state"},
                 {"rate", Align::Right},
                 {"link"},
                 {"MTU", Align::Right},
                 {"netdev"},
                 {"driver"},
                 {"firmware"}});
    Table gids({{"device/port"}, {"GID", Align::Right}, {"address"}, {"type"}, {"netdev"}, {""}});
    std::string reasons;
    for (const auto& device : r.inventory.devices) {
      if (device.ports.empty())
        ports.add({device.name, "-", {"no port readable", Style::Warn}, "", "", "", "", device.driver});
      for (const auto& port : device.ports) {
        ports.add({device.name,
                   std::to_string(port.number),
                   {std::string(to_string(port.state)), state_style(port.state)},
                   port.rate_bits_per_s ? format_bits(*port.rate_bits_per_s) : "-",
                   std::string(to_string(port.link_layer)),
                   port.active_mtu_bytes ? std::to_string(*port.active_mtu_bytes) : "-",
                   or_dash(port.netdev),
                   or_dash(device.driver),
                   or_dash(device.firmware)});
        const std::string name = device.name + "/" + std::to_string(port.number);
        const auto note = r.gid_by_port.find(name);
        for (const auto& gid : port.gids) {
          const bool used = note != r.gid_by_port.end() && note->second.index == gid.index;
          gids.add({name, std::to_string(gid.index), gid.gid.to_string(), std::string(to_string(gid.type)),
                    or_dash(gid.netdev), used ? Cell("< probes use this", Style::Good) : Cell("")});
        }
        if (note != r.gid_by_port.end() && !note->second.reason.empty()) {
          reasons += "  " + wrap(name + ": " + printable(note->second.reason), width, 4) + '\n';
        }
        if (const auto stamps = r.timestamps_by_port.find(name); stamps != r.timestamps_by_port.end()) {
          const TimestampNote& t = stamps->second;
          const std::string by = t.rung ? "by " + format_timestamps(*t.rung) : "unknown: " + printable(t.why);
          reasons += "  " + wrap(name + ": timestamps " + by, width, 4) + '\n';
        }
      }
    }
    out += ports.render(paint);
    if (!gids.empty()) out += '\n' + gids.render(paint);
    out += reasons;
  }
  if (!r.limitations.empty()) {
    out += '\n' + paint(Style::Warn, "cannot be measured here") + '\n';
    for (const auto& l : r.limitations) {
      out += "  " + wrap(printable(l.subject) + ": " + printable(l.why), width, 4) + '\n';
      if (!l.how.empty()) out += "    " + wrap("to get it: " + printable(l.how), width, 6) + '\n';
    }
  }
  return out;
}

nlohmann::json status_json(const StatusReport& r) {
  nlohmann::json out{{"host", r.inventory.host},
                     {"kernel", r.inventory.kernel},
                     {"agent", {{"answers", r.agent.answers}, {"state", r.agent.text}}},
                     {"devices", nlohmann::json::array()},
                     {"limitations", nlohmann::json::array()}};
  for (const auto& device : r.inventory.devices) {
    nlohmann::json d{{"name", device.name},
                     {"driver", device.driver},
                     {"firmware", device.firmware},
                     {"ports", nlohmann::json::array()}};
    for (const auto& port : device.ports) {
      nlohmann::json p{{"number", port.number},
                       {"state", std::string(to_string(port.state))},
                       {"link_layer", std::string(to_string(port.link_layer))},
                       {"netdev", port.netdev},
                       {"gids", nlohmann::json::array()}};
      p["rate_bits_per_s"] = port.rate_bits_per_s ? nlohmann::json(*port.rate_bits_per_s) : nlohmann::json(nullptr);
      p["mtu_bytes"] = port.active_mtu_bytes ? nlohmann::json(*port.active_mtu_bytes) : nlohmann::json(nullptr);
      p["lid"] = port.lid ? nlohmann::json(*port.lid) : nlohmann::json(nullptr);
      const auto note = r.gid_by_port.find(device.name + "/" + std::to_string(port.number));
      p["gid_used"] = nullptr;
      if (note != r.gid_by_port.end()) {
        if (note->second.index) p["gid_used"] = *note->second.index;
        p["gid_reason"] = note->second.reason;
      }
      p["timestamps"] = nullptr;
      const auto stamps = r.timestamps_by_port.find(device.name + "/" + std::to_string(port.number));
      if (stamps != r.timestamps_by_port.end()) {
        if (stamps->second.rung) p["timestamps"] = std::string(model::to_string(*stamps->second.rung));
        if (!stamps->second.why.empty()) p["timestamps_why"] = stamps->second.why;
      }
      for (const auto& gid : port.gids) {
        p["gids"].push_back({{"index", gid.index},
                             {"address", gid.gid.to_string()},
                             {"type", std::string(to_string(gid.type))},
                             {"netdev", gid.netdev}});
      }
      d["ports"].push_back(std::move(p));
    }
    out["devices"].push_back(std::move(d));
  }
  for (const auto& l : r.limitations)
    out["limitations"].push_back({{"subject", l.subject}, {"why", l.why}, {"how", l.how}});
  return out;
}

ExitCode status_exit(const StatusReport& r) {
  for (const auto& device : r.inventory.devices) {
    for (const auto& port : device.ports) {
      if (port.state != model::PortState::Active && port.state != model::PortState::Unknown) return ExitCode::Findings;
    }
  }
  return ExitCode::Healthy;
}

}  // namespace weft::cli
