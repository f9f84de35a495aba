#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "agent/daemon/daemon.h"
#include "lib/base/log.h"
#include "weft_config.h"

namespace {

using namespace weft;

constexpr const char* kExamples =
    "Examples:\n"
    "  weftd --config /etc/weft/weftd.toml            run as configured\n"
    "  weftd --config weftd.toml --check-config       say what is wrong with a file, and exit\n"
    "  weftd --list-collectors                        what works on this host, and why the rest does not\n"
    "Signals: SIGHUP reads the file again (a bad one changes nothing), SIGTERM says goodbye and stops.\n"
    "Exit status: 0 stopped as asked, 1 could not start, 2 bad usage or configuration.\n";

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "";
  return name;
}

int list_collectors(const agent::Roots& roots) {
  for (const agent::Feature& feature : agent::list_features(SystemFiles(), roots)) {
    std::printf("%-16s %-4s %s\n", feature.name.c_str(), feature.on ? "on" : "off", feature.why.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "weftd: the agent of weft on each host. Probes the network beside this host's traffic and answers the "
      "probes of other hosts."};
  app.footer(kExamples);
  agent::DaemonOptions options;
  bool check = false, list = false;
  app.add_option("--config", options.config_path, "configuration file (TOML); without one every default holds");
  app.add_option("--log-level", options.log_level, "debug, info, warning or error; wins over the file")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_flag("--check-config", check, "read the configuration, say what is wrong, exit 0 or 2");
  app.add_flag("--list-collectors", list, "list what is on and what is off, each with its reason");
  app.add_option("--sys-root", options.roots.sys, "where sysfs is")->capture_default_str();
  app.add_option("--proc-root", options.roots.proc, "where procfs is")->capture_default_str();
  app.set_version_flag("--version", std::string("weftd ") + WEFT_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (list) return list_collectors(options.roots);
  options.host_name = host_name();
  const SystemFiles files;
  auto settings = options.config_path.empty() ? agent::parse_settings(files, "", "defaults", options.host_name)
                                              : agent::load_settings(files, options.config_path, options.host_name);
  if (!settings) {
    std::fprintf(stderr, "weftd: %s\n", settings.error().message().c_str());
    return 2;
  }
  if (check) {
    std::printf("%s: good\n", options.config_path.empty() ? "defaults" : options.config_path.c_str());
    return 0;
  }
  return agent::run_daemon(options, std::move(*settings));
}
