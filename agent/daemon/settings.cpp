#include "agent/daemon/settings.h"

#include <sys/stat.h>

#include <algorithm>

#include "lib/base/config.h"
#include "lib/model/device.h"
#include "lib/model/subject.h"
#include "probes/ping/engine.h"

namespace weft::agent {
namespace {

constexpr std::size_t kMaxStaticTargets = 1024;
constexpr std::uint16_t kAggregatorPort = 7471;

// A key that others on the host can read is no secret. Symbolic links are followed: the file itself counts.
std::string key_file_problem(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(errno, "cannot read key file " + path).message();
  if ((info.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    return "key file " + path + " is open to every user of this host; run: chmod o= " + path;
  }
  return "";
}

std::vector<model::PlanTarget> read_targets(ConfigTable& probe) {
  std::vector<model::PlanTarget> targets;
  std::vector<ConfigTable> rows = probe.tables("targets");
  if (rows.size() > kMaxStaticTargets) {
    probe.reject("targets", "at most " + std::to_string(kMaxStaticTargets) + " targets");
    return targets;
  }
  for (ConfigTable& row : rows) {
    model::PlanTarget target;
    target.to = row.required_text("name");
    const std::size_t slash = target.to.find('/');
    if (!target.to.empty() && (slash == std::string::npos || !model::valid_name(target.to.substr(0, slash)) ||
                               !model::valid_name(target.to.substr(slash + 1)))) {
      row.reject("name", "must be HOST/DEVICE, like h3/rxe0");
    }
    target.to_address = row.required_text("address");
    if (!target.to_address.empty()) {
      if (const auto address = model::Gid::parse_unicast(target.to_address); !address) {
        row.reject("address", address.error().context);
      }
    }
    target.from_device = row.text("from");
    const bool twice = std::any_of(targets.begin(), targets.end(), [&](const model::PlanTarget& other) {
      const bool apart = !target.from_device.empty() && !other.from_device.empty() &&
                         target.from_device != other.from_device;  // without one it is every device
      return target.to == other.to && !apart;
    });
    if (!target.to.empty() && twice) {
      row.reject("name", "'" + target.to + "' is a target already: say it once, or from another device each with from");
    }
    target.hello_port = static_cast<std::uint16_t>(row.integer("hello_port", probes::kDefaultHelloPort, 1, 65535));
    const auto ports = row.integer("ports", 4, 1, 256);
    const double rate = row.number("probes_per_s", 10, 0.01, 10'000);
    // Port 0 takes the ports in turn, so one path row spreads over all of them.
    for (std::int64_t i = 0; i < ports; ++i) target.paths.push_back({0, 0, rate / static_cast<double>(ports)});
    targets.push_back(std::move(target));
  }
  return targets;
}

std::uint8_t read_traffic_class(ConfigTable& probe) {
  const auto dscp = probe.integer("dscp", 0, 0, 63);
  const auto traffic_class = probe.integer("traffic_class", dscp << 2, 0, 255);
  if (probe.has("dscp") && probe.has("traffic_class")) probe.reject("traffic_class", "set dscp or this, not both");
  if ((traffic_class & 3) != 0) probe.reject("traffic_class", "the low two bits are ECN, which weft sets itself");
  return static_cast<std::uint8_t>(traffic_class);
}

ProbeSettings read_probe(ConfigTable probe) {
  ProbeSettings out;
  const std::string transport = probe.choice("transport", "auto", {"auto", "rdma", "udp"});
  out.transport = transport == "rdma"  ? TransportChoice::Rdma
                  : transport == "udp" ? TransportChoice::Udp
                                       : TransportChoice::Auto;
  out.devices = probe.texts("devices");
  out.interfaces = probe.texts("interfaces");
  out.lanes = static_cast<unsigned>(probe.integer("lanes", 4, 1, 256));
  out.responder_lanes = static_cast<unsigned>(probe.integer("responder_lanes", 4, 1, 256));
  out.traffic_class = read_traffic_class(probe);
  out.hello_port = static_cast<std::uint16_t>(probe.integer("hello_port", probes::kDefaultHelloPort, 1, 65535));
  out.max_probes_per_s = probe.number("max_probes_per_s", 200, 0, 100'000);
  out.max_link_share = probe.number("max_link_share", 0.001, 0, 0.1);
  out.payload_bytes = static_cast<std::size_t>(probe.integer("payload_bytes", 0, 0, 4096));
  out.timeout_ns = probe.duration_ns("timeout", 500 * kMillisecond, 10 * kMillisecond, 10 * kSecond);
  out.targets = read_targets(probe);
  return out;
}

void read_key(const FileReader& files, ConfigTable fabric, Settings& out) {
  out.key_file = fabric.text("key_file");
  if (out.key_file.empty()) return;
  if (const std::string problem = key_file_problem(out.key_file); !problem.empty()) {
    fabric.reject("key_file", problem);
    return;
  }
  auto key = probes::FabricKey::load(files, out.key_file);
  if (!key) {
    fabric.reject("key_file", key.error().message());
    return;
  }
  out.key = *key;
}

void read_metrics(ConfigTable metrics, Settings& out) {
  const auto listen = parse_host_port(metrics.text("listen", "127.0.0.1:9435"), 9435);
  const bool allow_remote = metrics.boolean("allow_remote", false);
  if (!listen) {
    metrics.reject("listen", listen.error().context);
    return;
  }
  out.metrics = *listen;
  if (!is_loopback(listen->host) && !allow_remote) {
    metrics.reject("listen", "'" + listen->host + "' can be reached from outside; set allow_remote = true to mean it");
  }
}

void read_aggregator(ConfigTable aggregator, Settings& out) {
  out.aggregator_address = aggregator.text("address");
  if (out.aggregator_address.empty()) return;
  if (out.aggregator_address.find('/') != std::string::npos) {
    aggregator.reject("address", "must be HOST:PORT of the agents' port, like 10.0.0.1:7471, and no URL");
    return;
  }
  const auto where = parse_host_port(out.aggregator_address, kAggregatorPort);
  if (!where) {
    aggregator.reject("address", where.error().context + "; or empty to run alone");
  } else if (where->port == 0) {
    aggregator.reject("address", "must be HOST:PORT with the port that agents connect to, like 10.0.0.1:7471");
  }
}

Result<Settings> read(const FileReader& files, Config config, const std::string& host_name) {
  Settings out;
  ConfigTable root = config.root();
  ConfigTable agent = root.table("agent");
  out.agent_name = agent.text("name", host_name);
  if (!model::valid_name(out.agent_name)) {
    agent.reject("name", "'" + out.agent_name.substr(0, 64) +
                             "' is no name for subjects: 1 to 253 letters, digits and . _ - : %");
  }
  out.state_dir = agent.text("state_dir", "/var/lib/weftd");
  if (out.state_dir.empty()) agent.reject("state_dir", "must be a folder that weftd may write to, like /var/lib/weftd");
  ConfigTable fabric = root.table("fabric");
  out.fabric_name = fabric.text("name", "default");
  if (!model::valid_name(out.fabric_name)) fabric.reject("name", "1 to 253 letters, digits and . _ - : %");
  read_key(files, fabric, out);
  read_aggregator(root.table("aggregator"), out);
  read_metrics(root.table("metrics"), out);
  out.probe = read_probe(root.table("probe"));
  ConfigTable trace = root.table("trace");
  out.trace_enabled = trace.boolean("enabled", true);
  out.trace_probes_per_s = trace.number("rate", 50, 0.1, 1000);
  ConfigTable log_table = root.table("log");
  const std::string level = log_table.choice("level", "info", {"debug", "info", "warning", "error"});
  log::parse_level(level, out.log_level);
  if (const auto done = config.finish(); !done) return done.error();
  return out;
}

}  // namespace

Result<Settings> load_settings(const FileReader& files, const std::string& path, const std::string& host_name) {
  auto config = Config::load(files, path);
  if (!config) return config.error();
  return read(files, std::move(*config), host_name);
}

Result<Settings> parse_settings(const FileReader& files, const std::string& toml, const std::string& file_name,
                                const std::string& host_name) {
  auto config = Config::parse(toml, file_name);
  if (!config) return config.error();
  return read(files, std::move(*config), host_name);
}

}  // namespace weft::agent
