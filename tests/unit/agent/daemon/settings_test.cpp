#include "agent/daemon/settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::agent;

namespace {

Result<Settings> parsed(const std::string& toml) { return parse_settings(SystemFiles(), toml, "weftd.toml", "h1"); }

struct KeyFile {
  KeyFile(const std::string& text, mode_t mode) {
    char name[] = "/tmp/weft-key-XXXXXX";
    const int fd = ::mkstemp(name);
    REQUIRE(fd >= 0);
    ::close(fd);
    path = name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
  }
  ~KeyFile() { ::unlink(path.c_str()); }
  std::string path;
};

const std::string kKey(64, 'a');
const std::string kTarget = "[[probe.targets]]\nname = \"h3/rxe0\"\naddress = \"10.0.0.3\"\n";

}  // namespace

TEST_CASE("settings: every bad value is refused with file, line and column", "[agent]") {
  const auto [toml, want] = GENERATE(table<std::string, std::string>({
      {"[agent]\nname = \"a/b\"\n", "weftd.toml:2:8: 'agent.name': 'a/b' is no name"},
      {"[agent]\nnmae = \"a\"\n", "weftd.toml:2:1: unknown key 'agent.nmae'"},
      {"[agnet]\nname = \"a\"\n", "unknown key 'agnet'"},
      {"[fabric]\nname = \"\"\n", "'fabric.name'"},
      {"[fabric]\nkey_file = \"/nonexistent/key\"\n", "cannot read key file /nonexistent/key"},
      {"[aggregator]\naddress = \"host\"\n", "'host' is no HOST:PORT, like 127.0.0.1:7471"},
      {"[aggregator]\naddress = \"http://host:7471\"\n", "weftd.toml:2:11: 'aggregator.address': must be HOST:PORT"},
      {"[aggregator]\naddress = \"host:7471/\"\n", "and no URL"},
      {"[aggregator]\naddress = \"host:0\"\n", "must be HOST:PORT"},
      {"[aggregator]\naddress = \"host:70000\"\n", "'host:70000' is no HOST:PORT"},
      {"[agent]\nstate_dir = \"\"\n", "weftd.toml:2:13: 'agent.state_dir': must be a folder"},
      {"[aggregator]\naddress = \"exa mple:7471\"\n", "weftd.toml:2:11: 'aggregator.address': 'exa mple:7471' is no"},
      {"[aggregator]\naddress = \"fd77::1:7471\"\n", "in brackets: [fd77::1]:7471; or empty to run alone"},
      {"[metrics]\nlisten = \"9435\"\n", "is no HOST:PORT, like 127.0.0.1:9435"},
      {"[metrics]\nlisten = \"::1:9435\"\n", "is no HOST:PORT; an IPv6 address stands in brackets: [::1]:9435"},
      {"[metrics]\nlisten = \"0.0.0.0:9435\"\n", "weftd.toml:2:10: 'metrics.listen': '0.0.0.0' can be reached from"},
      {"[probe]\ntransport = \"tcp\"\n", "must be one of auto, rdma, udp"},
      {"[probe]\nlanes = 0\n", "must be from 1 to 256"},
      {"[probe]\ndscp = 64\n", "must be from 0 to 63"},
      {"[probe]\ntraffic_class = 105\n", "the low two bits are ECN"},
      {"[probe]\ntraffic_class = 104\ndscp = 26\n", "not both"},
      {"[probe]\nmax_link_share = 0.5\n", "'probe.max_link_share'"},
      {"[probe]\ntimeout = \"1h\"\n", "must be from 10ms to 10000ms"},
      {"[[probe.targets]]\nname = \"h3\"\naddress = \"10.0.0.3\"\n", "must be HOST/DEVICE"},
      {"[[probe.targets]]\nname = \"h3/rxe0\"\naddress = \"ten\"\n", "is no GID or IP address"},
      {"[[probe.targets]]\nname = \"h3/rxe0\"\naddress = \"224.0.0.1\"\n", "is no address of one host"},
      {"[[probe.targets]]\naddress = \"10.0.0.3\"\n", "'probe.targets.name': must be set"},
      {kTarget + kTarget, "weftd.toml:5:8: 'probe.targets.name': 'h3/rxe0' is a target already"},
      {kTarget + "from = \"rxe0\"\n" + kTarget, "weftd.toml:6:8: 'probe.targets.name': 'h3/rxe0' is a target already"},
      {kTarget + "from = \"a\"\n" + kTarget + "from = \"a\"\n", "weftd.toml:6:8: 'probe.targets.name'"},
      {"[trace]\nrate = 0\n", "'trace.rate'"},
      {"[log]\nlevel = \"loud\"\n", "must be one of debug, info, warning, error"},
  }));
  const auto settings = parsed(toml);
  REQUIRE_FALSE(settings);
  CHECK(settings.error().kind == Error::Kind::Invalid);
  CHECK_THAT(settings.error().message(), ContainsSubstring(want));
  CHECK_THAT(settings.error().message(), ContainsSubstring("weftd.toml:"));
}

TEST_CASE("settings: a key file that every user can read is refused, and how to close it is said", "[agent]") {
  const KeyFile file(kKey, 0644);
  const auto settings = parsed("[fabric]\nkey_file = \"" + file.path + "\"\n");
  REQUIRE_FALSE(settings);
  CHECK_THAT(settings.error().message(), ContainsSubstring("chmod o= " + file.path));
}

TEST_CASE("settings: a key file with a bad key is refused and the key is not in the message", "[agent]") {
  const KeyFile file("not-a-key-but-secret", 0600);
  const auto settings = parsed("[fabric]\nkey_file = \"" + file.path + "\"\n");
  REQUIRE_FALSE(settings);
  CHECK(settings.error().message().find("not-a-key-but-secret") == std::string::npos);
}

TEST_CASE("settings: a private key file is taken", "[agent]") {
  const KeyFile file(kKey + "\n", 0640);
  const auto settings = parsed("[fabric]\nkey_file = \"" + file.path + "\"\n");
  REQUIRE(settings);
  CHECK_FALSE(settings->key.is_default());
}

TEST_CASE("settings: an empty file runs alone with safe defaults", "[agent]") {
  const auto settings = parsed("");
  REQUIRE(settings);
  CHECK(settings->agent_name == "h1");
  CHECK(settings->aggregator_address.empty());
  CHECK(settings->metrics == HostPort{"127.0.0.1", 9435});
  CHECK(settings->probe.transport == TransportChoice::Auto);
  CHECK(settings->key.is_default());
}

TEST_CASE("settings: the example that is shipped holds the defaults, each of them", "[agent]") {
  const auto shipped =
      load_settings(SystemFiles(), std::string(WEFT_FIXTURES) + "/../../packaging/config/weftd.toml", "h1");
  REQUIRE(shipped);
  const auto defaults = parsed("");
  REQUIRE(defaults);
  CHECK(shipped->agent_name == defaults->agent_name);
  CHECK(shipped->state_dir == defaults->state_dir);
  CHECK(shipped->fabric_name == defaults->fabric_name);
  CHECK(shipped->key_file == defaults->key_file);
  CHECK(shipped->aggregator_address == defaults->aggregator_address);
  CHECK(shipped->metrics == defaults->metrics);
  CHECK(shipped->probe == defaults->probe);
  CHECK(shipped->trace_enabled == defaults->trace_enabled);
  CHECK(shipped->trace_probes_per_s == defaults->trace_probes_per_s);
  CHECK(shipped->log_level == defaults->log_level);
}

TEST_CASE("settings: remote metrics are served when the file says it means it", "[agent]") {
  const auto settings = parsed("[metrics]\nlisten = \"[::]:80\"\nallow_remote = true\n");
  REQUIRE(settings);
  CHECK(settings->metrics == HostPort{"::", 80});
}

TEST_CASE("settings: DSCP becomes the traffic class, and a target's rate is shared by its ports", "[agent]") {
  const auto settings = parsed(
      "[probe]\ndscp = 26\n[[probe.targets]]\nname = \"h3/rxe0\"\naddress = \"10.0.0.3\"\nports = 2\n"
      "probes_per_s = 10\nfrom = \"rxe0\"\n");
  REQUIRE(settings);
  CHECK(settings->probe.traffic_class == 104);
  REQUIRE(settings->probe.targets.size() == 1);
  const model::PlanTarget& target = settings->probe.targets[0];
  CHECK(target.from_device == "rxe0");
  REQUIRE(target.paths.size() == 2);
  CHECK(target.paths[0].probes_per_s == 5.0);
}

TEST_CASE("settings: a target may be probed from several devices, each said with from", "[agent]") {
  const auto settings = parsed(kTarget + "from = \"rxe0\"\n" + kTarget + "from = \"rxe1\"\n");
  REQUIRE(settings);
  CHECK(settings->probe.targets.size() == 2);
}

TEST_CASE("settings: the aggregator is a name or an address, and IPv6 has brackets", "[agent]") {
  for (const char* address : {"aggregator.example:7471", "10.0.0.1:7471", "[fd77::1]:7471"}) {
    CAPTURE(address);
    const auto settings = parsed("[aggregator]\naddress = \"" + std::string(address) + "\"\n");
    REQUIRE(settings);
    CHECK(settings->aggregator_address == address);
  }
}
