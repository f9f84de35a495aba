#include "aggregator/config.h"

#include <sstream>

#include "lib/base/config.h"
#include "lib/base/host_port.h"
#include "lib/model/subject.h"

namespace weft::aggregator {
namespace {

constexpr std::size_t kMaxTopologyBytes = 64 * 1024 * 1024;

// Told at the key that is in the file: the other may be the default.
void check_order(ConfigTable& table, const std::string& clear, double clear_at, const std::string& raise,
                 double raise_at) {
  if (clear_at < raise_at) return;
  const bool at_clear = table.has(clear);
  std::ostringstream why;
  why << "must be " << (at_clear ? "below " + raise : "above " + clear) << ", which is "
      << (at_clear ? raise_at : clear_at) << ", or findings flap";
  table.reject(at_clear ? clear : raise, why.str());
}

void read_localise(ConfigTable table, localise::LocaliserConfig& out) {
  out.window_ns = table.duration_ns("window", out.window_ns, 5 * kSecond, 20 * kSecond);
  out.host_silent_after_ns = table.duration_ns("host_silent_after", out.host_silent_after_ns, kSecond, 600 * kSecond);
  out.link_probes_per_s = table.number("link_probes_per_s", out.link_probes_per_s, 0.1, 10'000);
  out.probes_per_s_per_endpoint =
      table.number("probes_per_s_per_endpoint", out.probes_per_s_per_endpoint, 1, 1'000'000);
  out.loss_ratio_raise = table.number("loss_ratio_raise", out.loss_ratio_raise, 0, 1);
  out.loss_ratio_clear = table.number("loss_ratio_clear", out.loss_ratio_clear, 0, 1);
  out.ce_ratio_raise = table.number("ce_ratio_raise", out.ce_ratio_raise, 0, 1);
  out.ce_ratio_clear = table.number("ce_ratio_clear", out.ce_ratio_clear, 0, 1);
  out.delay_floor_ns = table.duration_ns("delay_floor", out.delay_floor_ns, kMicrosecond, 60 * kSecond);
  out.delay_spread_factor = table.number("delay_spread_factor", out.delay_spread_factor, 1, 1000);
  out.ports_wanted_max = static_cast<unsigned>(table.integer("ports_wanted_max", out.ports_wanted_max, 1, 1024));
  check_order(table, "loss_ratio_clear", out.loss_ratio_clear, "loss_ratio_raise", out.loss_ratio_raise);
  check_order(table, "ce_ratio_clear", out.ce_ratio_clear, "ce_ratio_raise", out.ce_ratio_raise);
}

// Where values of the file stand, for rules that are checked after flags had their say; empty when not from the file.
struct Places {
  std::string topology, grpc, http;
};

// Flags stand in the file's place before the rules are checked, so that an address refused in the file may be replaced.
Result<HostPort> check_address(const std::string& address, std::uint16_t usual_port, bool allow_remote,
                               const std::string& key) {
  auto where = parse_host_port(address, usual_port);
  if (!where) return make_error(Error::Kind::Invalid, key + ": " + where.error().context);
  if (!is_loopback(where->host) && !allow_remote) {
    return make_error(Error::Kind::Invalid,
                      key + ": " + address +
                          " is reachable from elsewhere, and there is no TLS yet: keep to 127.0.0.1, or say "
                          "allow_remote = true under [listen] (--allow-remote) on a trusted network");
  }
  return where;
}

Result<void> check_listen(const AggregatorConfig& config, const Places& places) {
  const std::string grpc_key = places.grpc + "[listen] grpc", http_key = places.http + "[listen] http";
  const auto grpc = check_address(config.listen_grpc, kUsualGrpcPort, config.allow_remote, grpc_key);
  if (!grpc) return grpc.error();
  const auto http = check_address(config.listen_http, kUsualHttpPort, config.allow_remote, http_key);
  if (!http) return http.error();
  const auto covers = [](const std::string& host, const std::string& other) {
    return host == other || host == "0.0.0.0" || host == "::";
  };
  if (grpc->port != http->port || grpc->port == 0) return {};  // 0: any free one, so two of them
  if (!covers(grpc->host, http->host) && !covers(http->host, grpc->host)) return {};
  // Told at the one that is in the file.
  const bool at_http = !places.http.empty() || places.grpc.empty();
  return make_error(Error::Kind::Invalid, (at_http ? http_key : grpc_key) + ": " +
                                              (at_http ? config.listen_http : config.listen_grpc) +
                                              " is taken by [listen] " + (at_http ? "grpc" : "http") +
                                              ": give each a port of its own, as 7471 for grpc and 7470 for http");
}

Result<void> read_file(const FileReader& files, const std::string& path, AggregatorConfig& out, Places& places) {
  Result<Config> config = Config::load(files, path);
  if (!config) return config.error();
  ConfigTable root = config->root();
  ConfigTable fabric = root.table("fabric");
  out.fabric = fabric.text("name", out.fabric);
  if (!model::valid_name(out.fabric)) fabric.reject("name", "letters, digits and . _ - : only");
  out.topology_file = fabric.text("topology_file", out.topology_file);
  places.topology = fabric.place("topology_file");
  out.localiser.paths_not_pinned = fabric.boolean("paths_not_pinned", false);
  ConfigTable listen = root.table("listen");
  out.listen_grpc = listen.text("grpc", out.listen_grpc);
  places.grpc = listen.place("grpc");
  if (auto ok = parse_host_port(out.listen_grpc, kUsualGrpcPort); !ok) listen.reject("grpc", ok.error().context);
  out.listen_http = listen.text("http", out.listen_http);
  places.http = listen.place("http");
  if (auto ok = parse_host_port(out.listen_http, kUsualHttpPort); !ok) listen.reject("http", ok.error().context);
  out.allow_remote = listen.boolean("allow_remote", false);
  ConfigTable store = root.table("store");
  out.store_path = store.text("path", out.store_path);
  if (out.store_path.empty()) store.reject("path", "must not be empty");
  out.retention_ns = store.duration_ns("retention", out.retention_ns, 20 * kSecond, 3600 * kSecond);
  const std::string level = root.table("log").choice("level", "info", {"debug", "info", "warning", "error"});
  log::parse_level(level, out.log_level);
  read_localise(root.table("localise"), out.localiser);
  return config->finish();
}

}  // namespace

Result<AggregatorConfig> load_config(const FileReader& files, const std::string& path, const Overrides& overrides) {
  AggregatorConfig out;
  Places places;
  if (!path.empty()) {
    if (auto read = read_file(files, path, out, places); !read) return read.error();
  }
  if (overrides.fabric) out.fabric = *overrides.fabric;
  const auto replace = [](const std::optional<std::string>& flag, std::string& value, std::string& place) {
    if (!flag) return;
    value = *flag;
    place.clear();
  };
  replace(overrides.topology_file, out.topology_file, places.topology);
  replace(overrides.listen_grpc, out.listen_grpc, places.grpc);
  replace(overrides.listen_http, out.listen_http, places.http);
  if (overrides.store_path) out.store_path = *overrides.store_path;
  if (overrides.log_level) out.log_level = *overrides.log_level;
  out.allow_remote = out.allow_remote || overrides.allow_remote;
  if (!model::valid_name(out.fabric)) {
    return make_error(Error::Kind::Invalid, "--fabric: letters, digits and . _ - : only");
  }
  if (auto ok = check_listen(out, places); !ok) return ok.error();
  if (out.topology_file.empty()) return out;
  const Result<std::string> text = files.read(out.topology_file, kMaxTopologyBytes);
  if (!text) return make_error(Error::Kind::Invalid, places.topology + "topology file: " + text.error().message());
  Result<localise::Topology> topology = localise::Topology::parse(*text, out.topology_file);
  if (!topology) return topology.error();
  if (!topology->fabric().empty() && topology->fabric() != out.fabric) {
    return make_error(Error::Kind::Invalid, places.topology + out.topology_file + ": is of fabric \"" +
                                                topology->fabric() + "\", this aggregator watches \"" + out.fabric +
                                                "\"");
  }
  out.topology = std::move(*topology);
  return out;
}

}  // namespace weft::aggregator
