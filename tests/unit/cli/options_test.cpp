#include "cli/options.h"

#include <cstdlib>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::cli;

namespace {

std::variant<Invocation, ParseEnd> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "weft");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

template <typename Options>
Options parsed(std::vector<const char*> words) {
  const auto result = parse(std::move(words));
  if (const auto* end = std::get_if<ParseEnd>(&result)) FAIL(end->error);
  return std::get<Options>(std::get<Invocation>(result).command);
}

}  // namespace

TEST_CASE("ping: wrong options are a usage error that names the option", "[cli]") {
  struct Row {
    std::vector<const char*> words;
    const char* named;
  };
  const std::vector<Row> rows{
      {{"ping"}, "HOST"},
      {{"ping", "--port", "0", "h3"}, "--port"},
      {{"ping", "--port", "65536", "h3"}, "--port"},
      {{"ping", "--port", "50000", "--ports", "2", "h3"}, "--port"},
      {{"ping", "--ports", "65", "h3"}, "--ports"},
      {{"ping", "--tclass", "256", "h3"}, "--tclass"},
      {{"ping", "--gid", "-1", "h3"}, "--gid"},
      {{"ping", "--gid", "65536", "h3"}, "--gid"},
      {{"ping", "--device-port", "0", "h3"}, "--device-port"},
      {{"ping", "-c", "0", "h3"}, "--count"},
      {{"ping", "-W", "0", "h3"}, "--timeout"},
      {{"ping", "-w", "soon", "h3"}, "--deadline"},
      {{"ping", "--transport", "tcp", "h3"}, "--transport"},
      {{"ping", "--size", "65001", "h3"}, "--size"},
      {{"mesh", "--direct"}, "--direct"},
      {{"mesh", "--ports", "2"}, "--ports goes with --direct"},
      {{"mesh", "--for", "3s", "h2"}, "--for goes with --direct"},
      {{"mesh", "--transport", "udp"}, "--transport goes with --direct"},
      {{"mesh", "--sys-root", "/x"}, "--sys-root goes with --direct"},
      {{"mesh", "--topology", "t"}, "--topology goes with --direct"},
      {{"mesh", "--direct", "--aggregator", "h1:7470", "h2"}, "--aggregator goes without"},
      {{"mesh", "--direct", "--deadline", "3s", "h2"}, "--deadline goes without"},
      {{"ping", "--transport", "udp", "--gid", "3", "h3"}, "--gid cannot go with"},
      {{"trace", "--transport", "udp", "--device-port", "2", "h3"}, "--device-port cannot go"},
      {{"mesh", "--direct", "--transport", "udp", "--gid", "0", "h3"}, "--gid cannot go with"},
      {{"responder", "--transport", "udp", "--gid", "3", "--device-port", "2"}, "--gid and --device-port cannot go"},
      {{"status", "--topology", "t"}, "--topology"},
      {{"status", "--transport", "udp"}, "--transport"},
      {{"responder", "--topology", "t"}, "--topology"},
      {{"trace", "--to-port", "0", "h3"}, "--to-port"},
      {{"ping", "--source", "1.2.3", "h3"}, "--source: '1.2.3' is no GID or IP address"},
      {{"trace", "--source", "eth0", "h3"}, "--source: 'eth0' is no GID or IP address"},
      {{"mesh", "--direct", "--source", "0.0.0.0", "h3"}, "--source: '0.0.0.0' is no address of one host"},
      {{"responder", "--source", ""}, "--source: '' is no GID or IP address"},
      {{"findings", "--ack", "f1-0", "--watch"}, "--ack cannot go with --watch"}};
  for (const Row& row : rows) {
    const auto result = parse(row.words);
    const auto* end = std::get_if<ParseEnd>(&result);
    INFO(row.named);
    REQUIRE(end != nullptr);
    CHECK(end->code == ExitCode::Usage);
    CHECK_THAT(end->error, ContainsSubstring(row.named));
  }
}

TEST_CASE("a command that is none is named, with those there are; help and --version work as elsewhere", "[cli]") {
  auto result = parse({"png", "h3"});
  const auto* end = std::get_if<ParseEnd>(&result);
  REQUIRE(end != nullptr);
  CHECK(end->code == ExitCode::Usage);
  CHECK(end->error == "no command png; there are status, ping, trace, mesh, findings, responder, version");
  result = parse({"help", "ping"});
  end = std::get_if<ParseEnd>(&result);
  REQUIRE(end != nullptr);
  CHECK(end->code == ExitCode::Healthy);
  CHECK_THAT(end->out, ContainsSubstring("Usage: weft ping"));
  result = parse({"help"});
  REQUIRE(std::get_if<ParseEnd>(&result) != nullptr);
  CHECK_THAT(std::get_if<ParseEnd>(&result)->out, ContainsSubstring("Usage: weft"));
  (void)parsed<VersionOptions>({"--version"});
}

TEST_CASE("ping: every option arrives", "[cli]") {
  const auto o = parsed<PingOptions>(
      {"ping",   "--port", "49213",     "--tclass", "104", "--gid", "3",  "--device", "mlx5_0", "--device-port",
       "2",      "-W",     "250ms",     "-w",       "2s",  "-q",    "-c", "7",        "-i",     "10ms",
       "--size", "512",    "--no-path", "h3",       "h4"});
  CHECK(o.port == 49213);
  CHECK(o.direct.traffic_class == 104);
  CHECK(o.direct.gid_index == 3U);
  CHECK(o.direct.device == "mlx5_0");
  CHECK(o.direct.device_port == 2);
  CHECK(o.timeout_ns == 250 * kMillisecond);
  CHECK(o.deadline_ns == 2 * kSecond);
  CHECK(o.quiet);
  CHECK(o.no_path);
  CHECK(o.count == 7);
  CHECK(o.interval_ns == 10 * kMillisecond);
  CHECK(o.direct.size_bytes == 512);
  CHECK(o.hosts == std::vector<std::string>{"h3", "h4"});
}

TEST_CASE("ping: what is not said is absent, not zero", "[cli]") {
  const auto o = parsed<PingOptions>({"ping", "h3"});
  CHECK(o.port == 0);
  CHECK_FALSE(o.direct.gid_index);
  CHECK_FALSE(o.deadline_ns);
  CHECK(o.direct.transport == "auto");
  CHECK(o.timeout_ns == 500 * kMillisecond);
  CHECK(parsed<PingOptions>({"ping", "--gid", "0", "h3"}).direct.gid_index == 0U);
}

TEST_CASE("findings and mesh: options arrive, kinds in any case", "[cli]") {
  const auto f = parsed<FindingsOptions>({"findings", "--all", "--since", "5m", "--kind", "Link_Loss", "--watch"});
  CHECK(f.all);
  CHECK(f.watch);
  CHECK(f.since_ns == 300 * kSecond);
  CHECK(f.kind == "link_loss");
  const auto m = parsed<MeshOptions>({"mesh", "--direct", "--ports", "16", "--for", "3s", "h2"});
  CHECK(m.is_direct);
  CHECK(m.ports == 16);
  CHECK(m.duration_ns == 3 * kSecond);
}

TEST_CASE("mesh --direct is not refused for an aggregator in the environment", "[cli]") {
  REQUIRE(::setenv("WEFT_AGGREGATOR", "h1:7470", 1) == 0);
  const auto m = parsed<MeshOptions>({"mesh", "--direct", "h2"});
  const auto asked = parsed<MeshOptions>({"mesh", "--deadline", "3s", "h2"});
  ::unsetenv("WEFT_AGGREGATOR");
  CHECK(m.is_direct);
  CHECK(asked.aggregator.address == "h1:7470");
}

TEST_CASE("help says what several hosts do to the exit code", "[cli]") {
  const auto result = parse({"ping", "--help"});
  const auto& end = std::get<ParseEnd>(result);
  CHECK(end.code == ExitCode::Healthy);
  CHECK_THAT(end.out, ContainsSubstring("else 3 when of any nothing could be measured"));
}

TEST_CASE("--json and --color hold for every command, also beside errors", "[cli]") {
  const auto good = std::get<Invocation>(parse({"version", "--json", "--color", "never"}));
  CHECK(good.json);
  CHECK(good.colour == ColourChoice::Never);
  const auto bad = parse({"ping", "--json", "--nonsense", "h3"});
  CHECK(std::get<ParseEnd>(bad).json);
  CHECK(std::get<ParseEnd>(bad).command == "ping");
}
