#include "aggregator/config.h"

#include "aggregator/export/http_server.h"
#include "lib/base/config.h"
#include "lib/model/subject.h"

namespace weft::aggregator {
namespace {

constexpr std::size_t kMaxTopologyBytes = 64 * 1024 * 1024;

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
  if (out.loss_ratio_clear >= out.loss_ratio_raise) {
    table.reject("loss_ratio_clear", "must be below loss_ratio_raise, or findings flap");
  }
  if (out.ce_ratio_clear >= out.ce_ratio_raise) {
    table.reject("ce_ratio_clear", "must be below ce_ratio_raise, or findings flap");
  }
}

// Where values of the file stand, for rules that are checked after flags had their say; empty when not from the file.
struct Places {
  std::string topology, grpc, http;
};

// Flags stand in the file's place before the rules are checked, so that an address refused in the file may be replaced.
Result<void> check_address(const std::string& address, bool allow_remote, const std::string& key) {
  const auto where = split_address(address);
  if (!where) return make_error(Error::Kind::Invalid, key + ": " + where.error().context);
  if (!is_loopback(where->first) && !allow_remote) {
    return make_error(Error::Kind::Invalid,
                      key + ": " + address +
                          " is reachable from elsewhere, and there is no TLS yet: keep to 127.0.0.1, or say "
                          "allow_remote = true under [listen] (--allow-remote) on a trusted network");
  }
  return {};
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
  if (!split_address(out.listen_grpc)) listen.reject("grpc", "HOST:PORT, like 127.0.0.1:7471");
  out.listen_http = listen.text("http", out.listen_http);
  places.http = listen.place("http");
  if (!split_address(out.listen_http)) listen.reject("http", "HOST:PORT, like 127.0.0.1:7470");
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
  if (auto ok = check_address(out.listen_grpc, out.allow_remote, places.grpc + "[listen] grpc"); !ok) return ok.error();
  if (auto ok = check_address(out.listen_http, out.allow_remote, places.http + "[listen] http"); !ok) return ok.error();
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
