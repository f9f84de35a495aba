#include "aggregator/config.h"

#include <filesystem>
#include <fstream>

#include "tests/unit/aggregator/fakes.h"
#include "tests/unit/catch.h"

using weft::kSecond;
using namespace weft::aggregator;
using weft::test::TemporaryFolder;

namespace {

weft::Result<AggregatorConfig> load(const std::string& text, const Overrides& overrides = {}) {
  TemporaryFolder folder;
  std::ofstream(folder / "a.toml") << text;
  return load_config(weft::SystemFiles(), folder / "a.toml", overrides);
}

void refused(const std::string& text, const std::string& place) {
  CAPTURE(text);
  const auto config = load(text);
  REQUIRE_FALSE(config);
  CHECK_THAT(config.error().message(), ContainsSubstring(place));
}

}  // namespace

TEST_CASE("config: unknown keys, bad values and bad threshold order are refused with their place", "[aggregator]") {
  refused("[fabric]\nnane = \"lab\"\n", "a.toml:2:");
  refused("[fabric]\nname = \"a b\"\n", "a.toml:2:");
  refused("[fabrik]\n", "a.toml:1:");
  refused("[localise]\nloss_ratio_raise = 0.01\nloss_ratio_clear = 0.01\n", "a.toml:3:");
  refused("[localise]\nce_ratio_clear = 0.5\n", "a.toml:2:");
  refused("[localise]\nloss_ratio_raise = 2\n", "a.toml:2:");
  refused("[localise]\nwindow = 20\n", "a.toml:2:");
  refused("[localise]\nwindow = \"60s\"\n", "a.toml:2:");
  refused("[store]\nretention = \"1s\"\n", "a.toml:2:");
  refused("[listen]\ngrpc = \"nowhere\"\n", "a.toml:2:");
  refused("[listen]\ngrpc = \"nowhere\"\n", "'nowhere' is no HOST:PORT, like 127.0.0.1:7471");
  refused("[listen]\nhttp = \"::1:7470\"\n", "a.toml:2:8: 'listen.http': '::1:7470' is no HOST:PORT; an IPv6 address");
  refused("[log]\nlevel = \"loud\"\n", "a.toml:2:");
  refused("[listen\n", "a.toml:1:");
}

TEST_CASE("config: thresholds out of order are told at the one that is in the file", "[aggregator]") {
  refused("[log]\nlevel = \"info\"\n[localise]\nloss_ratio_raise = 0.001\n",
          "a.toml:4:20: 'localise.loss_ratio_raise': must be above loss_ratio_clear, which is 0.005,");
  refused("[localise]\nce_ratio_raise = 0\n", "a.toml:2:18: 'localise.ce_ratio_raise'");
  refused("[localise]\nce_ratio_clear = 0.5\n", "a.toml:2:18: 'localise.ce_ratio_clear': must be below ce_ratio_raise");
  refused("[localise]\nloss_ratio_raise = 0.01\nloss_ratio_clear = 0.02\n",
          "a.toml:3:20: 'localise.loss_ratio_clear': must be below loss_ratio_raise, which is 0.01,");
}

TEST_CASE("config: an address reachable from elsewhere needs the word for it", "[aggregator]") {
  refused("[listen]\nhttp = \"0.0.0.0:7470\"\n", "a.toml:2:8: [listen] http");
  refused("[listen]\nhttp = \"0.0.0.0:7470\"\n", "allow_remote");
  refused("[listen]\ngrpc = \"192.0.2.1:1\"\n", "a.toml:2:8: [listen] grpc");
  CHECK(load("[listen]\nhttp = \"0.0.0.0:7470\"\nallow_remote = true\n"));
  Overrides overrides;
  overrides.listen_grpc = "192.0.2.1:7471";
  const auto by_flag = load("[listen]\ngrpc = \"127.0.0.1:1\"\n", overrides);
  REQUIRE_FALSE(by_flag);
  CHECK_THAT(by_flag.error().message(), !ContainsSubstring("a.toml"));
  overrides.allow_remote = true;
  CHECK(load("", overrides));
}

TEST_CASE("config: agents and readers cannot have one address, which is told at the one in the file", "[aggregator]") {
  refused("[listen]\ngrpc = \"127.0.0.1:7000\"\nhttp = \"127.0.0.1:7000\"\n",
          "a.toml:3:8: [listen] http: 127.0.0.1:7000 is taken by [listen] grpc: give each a port of its own");
  refused("[listen]\ngrpc = \"127.0.0.1:7470\"\n", "a.toml:2:8: [listen] grpc: 127.0.0.1:7470 is taken by");
  refused("[listen]\ngrpc = \"0.0.0.0:7000\"\nhttp = \"127.0.0.1:7000\"\nallow_remote = true\n", "a.toml:3:8: ");
  refused("[listen]\ngrpc = \"127.0.0.1:7000\"\nhttp = \"[::]:7000\"\nallow_remote = true\n", "a.toml:3:8: ");
  CHECK(load("[listen]\ngrpc = \"127.0.0.1:7000\"\nhttp = \"127.0.0.2:7000\"\n"));
  CHECK(load("[listen]\ngrpc = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n"));
  Overrides flags;
  flags.listen_http = "127.0.0.1:7471";
  const auto by_flag = load("", flags);
  REQUIRE_FALSE(by_flag);
  CHECK_THAT(by_flag.error().message(), ContainsSubstring("[listen] http: 127.0.0.1:7471 is taken"));
}

TEST_CASE("config: a topology that is missing, wrong or of another fabric is refused", "[aggregator]") {
  TemporaryFolder folder;
  Overrides overrides;
  overrides.fabric = "lab";
  overrides.topology_file = folder / "t.toml";
  CHECK_FALSE(load("", overrides));
  refused("[fabric]\ntopology_file = \"/nonexistent-topology.toml\"\n", "a.toml:2:17: topology file: ");
  std::ofstream(folder / "t.toml") << "fabric = \"prod\"\n[[switch]]\nname = \"s1\"\n";
  const auto other = load("", overrides);
  REQUIRE_FALSE(other);
  CHECK_THAT(other.error().message(), ContainsSubstring("is of fabric \"prod\""));
  std::ofstream(folder / "t.toml") << "fabric = \"lab\"\n[[switch]]\nnome = \"s1\"\n";
  const auto wrong = load("", overrides);
  REQUIRE_FALSE(wrong);
  CHECK_THAT(wrong.error().message(), ContainsSubstring("t.toml:"));
}

TEST_CASE("config: a file that cannot be read is refused", "[aggregator]") {
  CHECK_FALSE(load_config(weft::SystemFiles(), "/nonexistent-weft.toml", {}));
}

TEST_CASE("config: values are taken, flags win over the file", "[aggregator]") {
  Overrides overrides;
  overrides.store_path = "/tmp/other.db";
  const auto config = load(
      "[fabric]\nname = \"lab\"\npaths_not_pinned = true\n[listen]\ngrpc = \"127.0.0.1:1\"\n"
      "[store]\npath = \"/tmp/x.db\"\nretention = \"2m\"\n[localise]\nhost_silent_after = \"5s\"\n",
      overrides);
  REQUIRE(config);
  CHECK(config->fabric == "lab");
  CHECK(config->localiser.paths_not_pinned);
  CHECK(config->localiser.host_silent_after_ns == 5 * kSecond);
  CHECK(config->listen_grpc == "127.0.0.1:1");
  CHECK(config->listen_http == "127.0.0.1:7470");
  CHECK(config->store_path == "/tmp/other.db");
  CHECK(config->retention_ns == 120 * kSecond);
  CHECK(load_config(weft::SystemFiles(), "", {}));
}

TEST_CASE("config: the example that is shipped holds the defaults, each of them", "[aggregator]") {
  const auto shipped =
      load_config(weft::SystemFiles(), std::string(WEFT_FIXTURES) + "/../../packaging/config/aggregator.toml", {});
  REQUIRE(shipped);
  const AggregatorConfig defaults;
  CHECK(shipped->fabric == defaults.fabric);
  CHECK(shipped->topology_file.empty());
  CHECK(shipped->listen_grpc == defaults.listen_grpc);
  CHECK(shipped->listen_http == defaults.listen_http);
  CHECK(shipped->allow_remote == defaults.allow_remote);
  CHECK(shipped->store_path == defaults.store_path);
  CHECK(shipped->retention_ns == defaults.retention_ns);
  const auto& now = shipped->localiser;
  const auto& then = defaults.localiser;
  CHECK(now.window_ns == then.window_ns);
  CHECK(now.host_silent_after_ns == then.host_silent_after_ns);
  CHECK(now.link_probes_per_s == then.link_probes_per_s);
  CHECK(now.probes_per_s_per_endpoint == then.probes_per_s_per_endpoint);
  CHECK(now.loss_ratio_raise == then.loss_ratio_raise);
  CHECK(now.loss_ratio_clear == then.loss_ratio_clear);
  CHECK(now.ce_ratio_raise == then.ce_ratio_raise);
  CHECK(now.ce_ratio_clear == then.ce_ratio_clear);
  CHECK(now.delay_floor_ns == then.delay_floor_ns);
  CHECK(now.delay_spread_factor == then.delay_spread_factor);
  CHECK(now.ports_wanted_max == then.ports_wanted_max);
  CHECK(now.paths_not_pinned == then.paths_not_pinned);
}

TEST_CASE("config: the topology that is shipped as an example is taken", "[aggregator]") {
  Overrides flags;
  flags.topology_file = std::string(WEFT_FIXTURES) + "/../../packaging/config/topology.toml";
  const auto config = load_config(weft::SystemFiles(), "", flags);
  REQUIRE(config);
  CHECK(config->topology.switches().size() == 4);
  CHECK(config->topology.links().size() == 6);
  CHECK(config->topology.node_of("10.0.1.2") == "h1/mlx5_0");
}
