// weft-aggregator: flags, signals, and nothing else.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "aggregator/app.h"
#include "aggregator/config.h"
#include "lib/base/log.h"
#include "weft_config.h"

#if WEFT_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

namespace {

constexpr int kUsage = 2;

std::atomic<bool> g_stop{false};
std::atomic<bool> g_reload{false};

void on_signal(int signal) {
  if (signal == SIGHUP) {
    g_reload.store(true);
  } else {
    g_stop.store(true);
  }
}

void notify(const char* state) {
#if WEFT_HAVE_SYSTEMD
  sd_notify(0, state);
#else
  static_cast<void>(state);
#endif
}

constexpr const char* kExamples = R"(
Examples:
  weft-aggregator --config /etc/weft/aggregator.toml
  weft-aggregator --fabric lab --topology lab.toml --store /tmp/weft.db
  weft-aggregator --config aggregator.toml --check-config

Agents connect to --listen-grpc; people, Prometheus and `weft` read --listen-http.
SIGHUP reads topology and thresholds again; when they are wrong the old ones stay.
Exit status: 0 stopped, 1 could not start, 2 wrong flags or configuration.)";

}  // namespace

int main(int argc, char** argv) {
  std::string config_path, level_text;
  bool check_only = false;
  weft::aggregator::Overrides flags;
  std::string topology, grpc, http, store, fabric;
  CLI::App cli{"Gathers what agents measure, names the sick link, keeps and serves findings.", "weft-aggregator"};
  cli.footer(kExamples);
  cli.set_version_flag("--version", "weft-aggregator " WEFT_VERSION);
  cli.add_option("--config", config_path, "configuration file (TOML)");
  cli.add_option("--fabric", fabric, "name of the fabric; agents must say the same");
  cli.add_option("--topology", topology, "topology file (TOML): switches, links, addresses");
  cli.add_option("--listen-grpc", grpc, "where agents connect, default 127.0.0.1:7471");
  cli.add_option("--listen-http", http, "API and /metrics, default 127.0.0.1:7470");
  cli.add_flag("--allow-remote", flags.allow_remote, "allow addresses other than loopback; there is no TLS yet");
  cli.add_option("--store", store, "database file, default /var/lib/weft/weft.db");
  cli.add_option("--log-level", level_text, "debug, info, warning or error");
  cli.add_flag("--check-config", check_only, "check configuration and topology, then exit");
  try {
    cli.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return cli.exit(error) == 0 ? 0 : kUsage;
  }
  if (cli.count("--fabric") != 0) flags.fabric = fabric;
  if (cli.count("--topology") != 0) flags.topology_file = topology;
  if (cli.count("--listen-grpc") != 0) flags.listen_grpc = grpc;
  if (cli.count("--listen-http") != 0) flags.listen_http = http;
  if (cli.count("--store") != 0) flags.store_path = store;
  if (cli.count("--log-level") != 0) {
    weft::log::Level level{};
    if (!weft::log::parse_level(level_text, level)) {
      std::fprintf(stderr, "weft-aggregator: --log-level: debug, info, warning or error\n");
      return kUsage;
    }
    flags.log_level = level;
  }
  const weft::SystemFiles files;
  const auto load = [&] { return weft::aggregator::load_config(files, config_path, flags); };
  weft::Result<weft::aggregator::AggregatorConfig> config = load();
  if (!config) {
    std::fprintf(stderr, "weft-aggregator: %s\n", config.error().message().c_str());
    return kUsage;
  }
  if (check_only) {
    std::printf("configuration is good: fabric %s, %zu switches, %zu links\n", config->fabric.c_str(),
                config->topology.switches().size(), config->topology.links().size());
    return 0;
  }
  weft::log::set_level(config->log_level);

  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // 4096 agents are 4096 connections, and the usual soft limit is 1024.
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &descriptors);
  }

  const weft::SystemClock clock;
  auto app = weft::aggregator::App::start(std::move(*config), WEFT_VERSION, clock);
  if (!app) {
    std::fprintf(stderr, "weft-aggregator: %s\n", app.error().message().c_str());
    return 1;
  }
  weft::log::info("main", "listening",
                  {{"grpc_port", (*app)->grpc_port()}, {"http_port", (*app)->http_port()}, {"version", WEFT_VERSION}});
  notify("READY=1");
  (*app)->run(g_stop, g_reload, load, [] { notify("WATCHDOG=1"); });
  notify("STOPPING=1");
  const bool clean = (*app)->shut_down();
  weft::log::info("main", "stopped");
  // A client that reads slowly would otherwise hold the process for seconds; all that matters is on disk.
  if (!clean) std::_Exit(0);
  return 0;
}
