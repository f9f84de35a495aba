#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "cli/format.h"
#include "lib/model/device.h"

namespace weft::cli {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 healthy, 1 findings, loss or congestion seen, 2 usage, 3 cannot measure, 124 deadline.\n"
    "Of several hosts: 1 when any was measured with loss or marks, else 3 when of any nothing could be measured.";

CLI::Option* duration(CLI::App* app, const std::string& name, Nanos& target, const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [&target, name](const std::string& text) {
            auto value = parse_seconds(text);
            if (!value) throw CLI::ValidationError(name, value.error().message());
            target = *value;
          },
          help)
      ->type_name("TIME");
}

CLI::Option* duration(CLI::App* app, const std::string& name, std::optional<Nanos>& target, const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [&target, name](const std::string& text) {
            auto value = parse_seconds(text);
            if (!value) throw CLI::ValidationError(name, value.error().message());
            target = *value;
          },
          help)
      ->type_name("TIME");
}

constexpr const char* kDirectGroup = "Measuring from this host";

void add_device(CLI::App* app, DirectOptions& o, const std::string& help) {
  const std::string group = kDirectGroup;
  app->add_option("--device", o.device, help)->group(group);
  app->add_option("--gid", o.gid_index, "GID index; default: RoCEv2 IPv4 first, the choice is shown")
      ->type_name("INDEX")
      ->check(CLI::Range(0, 65535))
      ->group(group);
  app->add_option("--sys-root", o.sys_root, "where sysfs is")->type_name("DIR")->group(group);
}

void add_direct(CLI::App* app, DirectOptions& o) {
  const std::string group = kDirectGroup;
  app->add_option("--transport", o.transport,
                  "auto (RDMA when a port is active and can be used, else UDP), rdma or udp")
      ->check(CLI::IsMember({"auto", "rdma", "udp"}))
      ->group(group);
  add_device(app, o, "RDMA device (or interface with --transport udp)");
  app->add_option("--device-port", o.device_port, "port of the RDMA device")->check(CLI::Range(1, 255))->group(group);
  app->add_option("--source", o.source, "local address (UDP); default: by the routes")
      ->type_name("IP")
      ->check([](const std::string& text) {
        const auto address = model::Gid::parse_unicast(text);
        return address ? "" : address.error().context;
      })
      ->group(group);
  app->add_option("--hello-port", o.hello_port, "UDP port of hellos")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str()
      ->group(group);
  app->add_option("--key-file", o.key_file, "the fabric's key (64 hex digits); both ends need the same")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--tclass", o.traffic_class, "traffic class, DSCP << 2: the class of the service (ECT(0) is added)")
      ->check(CLI::Range(0, 255))
      ->group(group);
  app->add_option("--size", o.size_bytes, "payload bytes of a probe; default: the smallest")
      ->check(CLI::Range(0, 65000))
      ->group(group);
}

void add_topology(CLI::App* app, DirectOptions& o) {
  app->add_option("--topology", o.topology_file, "topology file: gives routers their names")
      ->type_name("FILE")
      ->group(kDirectGroup);
}

void add_aggregator(CLI::App* app, AggregatorOptions& o) {
  app->add_option("--aggregator", o.address, "the aggregator: URL or HOST:PORT")
      ->envname("WEFT_AGGREGATOR")
      ->type_name("URL")
      ->capture_default_str();
  duration(app, "--deadline", o.deadline_ns, "give up on the aggregator after this; default 5s");
}

// Options of mesh without a meaning in the way it was asked to look, which is better said than ignored; empty when
// there is none. WEFT_AGGREGATOR of the environment is not meant.
std::string misplaced(const CLI::App& mesh, bool is_direct) {
  for (const CLI::Option* option : mesh.parse_order()) {
    const std::string name = option->get_name();
    const bool of_aggregator = name == "--aggregator" || name == "--deadline";
    const bool of_direct = name == "--ports" || name == "--for" || option->get_group() == kDirectGroup;
    if (is_direct && of_aggregator) return name + " goes without --direct, which asks no aggregator";
    if (!is_direct && of_direct) return name + " goes with --direct: weft mesh --direct HOST...";
  }
  return "";
}

// RDMA's own options beside a UDP that was asked for; where UDP was fallen back to, measuring notes it.
std::string without_rdma(const DirectOptions& o) {
  const std::string given = o.rdma_only();
  if (o.transport != "udp" || given.empty()) return "";
  return given + " cannot go with --transport udp: UDP has no such thing";
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

std::variant<Invocation, ParseEnd> parse_command_line(int argc, const char* const* argv) {
  CLI::App app("Is the AI job slow because of the network, and where? Measures from the hosts alone.", "weft");
  app.require_subcommand(1);
  app.footer(std::string("Start with `weft status` here, `weft responder` on the peer and `weft ping PEER`.\n") +
             kExitCodes);
  Invocation chosen;
  std::string colour = "auto";
  app.set_help_flag("-h,--help", "this text; `weft COMMAND --help` for a command, with examples");

  PingOptions ping;
  TraceOptions trace;
  MeshOptions mesh;
  FindingsOptions findings;
  StatusOptions status;
  ResponderOptions responder;

  const auto command = [&](const char* name, const char* help, const std::string& examples) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->add_flag("--json", chosen.json, "one JSON object on stdout (\"schema\": 1), also on errors");
    sub->add_option("--color", colour, "auto (a terminal, NO_COLOR unset or empty), always or never")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->type_name("WHEN");
    sub->footer("Examples:\n" + examples + "\n" + kExitCodes);
    return sub;
  };

  CLI::App* sub = command("status", "this host: devices, ports, GIDs, what cannot be measured and why",
                          "  weft status\n  weft status --json | jq '.limitations'\n");
  add_device(sub, status.direct, "only this RDMA device");
  sub->add_option("--agent", status.agent, "URL of the local weftd's metrics page")->type_name("URL");
  duration(sub, "--deadline", status.deadline_ns, "give up on devices and the local weftd after this; default 3s");

  sub = command("ping", "round trip, loss and ECN marks to hosts that run weftd or `weft responder`",
                "  weft ping h3                        until Ctrl-C, then the summary\n"
                "  weft ping -c 100 --ports 8 h3 h4    8 paths to each\n"
                "  weft ping --port 49213 -i 10ms h3   one path, 100 probes a second\n"
                "  weft ping --tclass 104 h3           in the class of the RDMA service (DSCP 26)\n");
  sub->add_option("HOST", ping.hosts, "name, IP address or GID")->required()->expected(1, 64);
  sub->add_option("-c,--count", ping.count, "probes to each host; default: until Ctrl-C")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  duration(sub, "-i,--interval", ping.interval_ns, "between probes to one host; default 200ms");
  sub->add_option("--ports", ping.ports, "spread over this many UDP source ports, so paths")
      ->check(CLI::Range(1, 64))
      ->type_name("N");
  sub->add_option("--port", ping.port, "this UDP source port only")->check(CLI::Range(1, 65535))->excludes("--ports");
  duration(sub, "-w,--deadline", ping.deadline_ns,
           "end after this; with -c and probes still missing the exit code is 124");
  duration(sub, "-W,--timeout", ping.timeout_ns, "a probe is lost after this; default 500ms");
  sub->add_flag("-q,--quiet", ping.quiet, "only the summary");
  sub->add_flag("--no-path", ping.no_path, "do not trace the paths");
  add_direct(sub, ping.direct);
  add_topology(sub, ping.direct);

  sub = command("trace", "the routers on the way to a host, for each UDP source port",
                "  weft trace h3                       8 ports: the ECMP paths\n"
                "  weft trace --port 49213 h3          the path of one port\n"
                "  weft trace --topology fabric.toml h3\n");
  sub->add_option("HOST", trace.host, "name, IP address or GID")->required();
  sub->add_option("--ports", trace.ports, "number of UDP source ports")->check(CLI::Range(1, 64))->type_name("N");
  sub->add_option("--port", trace.port, "this UDP source port only")->check(CLI::Range(1, 65535))->excludes("--ports");
  sub->add_option("--to-port", trace.to_port, "UDP destination port; default: the one probes go to")
      ->check(CLI::Range(1, 65535));
  sub->add_flag("--no-probe", trace.no_probe, "do not ask the host's responder for the hop count first");
  duration(sub, "-w,--deadline", trace.deadline_ns, "show what is known after this; default 30s");
  add_direct(sub, trace.direct);
  add_topology(sub, trace.direct);

  sub = command("mesh", "every pair: loss, round trip, ECN marks; from the aggregator, or from here",
                "  weft mesh                           what the aggregator knows, worst first\n"
                "  weft mesh --direct h2 h3 h4         no aggregator: from this host to these\n");
  sub->add_option("HOST", mesh.hosts, "only these hosts; with --direct the hosts to measure")->expected(0, 64);
  sub->add_flag("--direct", mesh.is_direct, "measure from this host now, and localise what is seen");
  sub->add_option("--ports", mesh.ports, "with --direct: paths to each host")->check(CLI::Range(1, 64))->type_name("N");
  duration(sub, "--for", mesh.duration_ns, "with --direct: measure this long; default 12s, what naming a link needs");
  add_aggregator(sub, mesh.aggregator);
  add_direct(sub, mesh.direct);
  add_topology(sub, mesh.direct);

  sub = command("findings", "what is wrong, where, since when, who is hit",
                "  weft findings                       what is wrong now, worst first\n"
                "  weft findings --watch               go on, one block for each change\n"
                "  weft findings --all --since 1h      also what cleared\n"
                "  weft findings --ack f1796238700810-0\n"
                "                                      taken: no longer counts for the exit code\n");
  sub->add_flag("--watch", findings.watch, "print changes as they come, until Ctrl-C");
  duration(sub, "--since", findings.since_ns, "only findings that began within this");
  sub->add_option("--ack", findings.ack,
                  "acknowledge the finding with this id, in brackets in the list, like f1796238700810-0")
      ->type_name("ID");
  sub->add_flag("--all", findings.all, "also cleared and acknowledged ones");
  sub->add_option("--kind", findings.kind, "only this kind")->type_name("KIND");
  sub->add_option("--subject", findings.subject, "only subjects with this text in them")->type_name("TEXT");
  add_aggregator(sub, findings.aggregator);

  sub = command("responder", "answer probes of other hosts, with no agent, in the foreground",
                "  weft responder                      until Ctrl-C; says where it listens\n"
                "  weft responder --for 10m --transport udp --source 10.0.1.2\n");
  duration(sub, "--for", responder.duration_ns, "stop after this; default: Ctrl-C");
  sub->add_option("--ports", responder.ports, "answer from this many UDP source ports, so paths")
      ->check(CLI::Range(1, 64))
      ->type_name("N");
  add_direct(sub, responder.direct);

  command("version", "version, and which features are in with the reason when not", "  weft version --json\n");

  ParseEnd end;
  end.json = std::any_of(argv, argv + argc, [](const char* a) { return std::string_view(a) == "--json"; });
  std::vector<const char*> words(argv, argv + argc);
  // As people try it: weft help, weft help ping, weft --version.
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "help") {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  } else if (first == "--version") {
    words[1] = "version";
  } else if (!first.empty() && first.front() != '-') {
    std::string names;
    bool known = false;
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
      names += (names.empty() ? "" : ", ") + one->get_name();
      known = known || one->get_name() == first;
    }
    if (!known) {
      end.error = "no command " + first + "; there are " + names;
      return end;
    }
  }
  try {
    app.parse(static_cast<int>(words.size()), const_cast<char**>(words.data()));
  } catch (const CLI::CallForHelp&) {
    const auto chosen_subs = app.get_subcommands();
    end.out = chosen_subs.empty() ? app.help() : chosen_subs.front()->help("weft");
    end.code = ExitCode::Healthy;
    return end;
  } catch (const CLI::ParseError& error) {
    const auto chosen_subs = app.get_subcommands();
    end.command = chosen_subs.empty() ? "" : chosen_subs.front()->get_name();
    end.error = error.what();
    return end;
  }
  chosen.name = app.get_subcommands().front()->get_name();
  chosen.colour = colour == "always"  ? ColourChoice::Always
                  : colour == "never" ? ColourChoice::Never
                                      : ColourChoice::Auto;
  end.command = chosen.name;
  for (const DirectOptions* direct : {&ping.direct, &trace.direct, &mesh.direct, &responder.direct}) {
    if (end.error.empty()) end.error = without_rdma(*direct);
  }
  if (!end.error.empty()) return end;
  if (chosen.name == "ping") {
    chosen.command = ping;
  } else if (chosen.name == "trace") {
    chosen.command = trace;
  } else if (chosen.name == "mesh") {
    if (mesh.is_direct && mesh.hosts.empty()) {
      end.error = "--direct needs the hosts to measure: weft mesh --direct HOST...";
      return end;
    }
    end.error = misplaced(*app.get_subcommands().front(), mesh.is_direct);
    if (!end.error.empty()) return end;
    chosen.command = mesh;
  } else if (chosen.name == "findings") {
    if (findings.watch && !findings.ack.empty()) {
      end.error = "--ack cannot go with --watch: it acknowledges one finding and ends";
      return end;
    }
    findings.kind = lower(findings.kind);
    chosen.command = findings;
  } else if (chosen.name == "status") {
    chosen.command = status;
  } else if (chosen.name == "responder") {
    chosen.command = responder;
  } else {
    chosen.command = VersionOptions{};
  }
  return chosen;
}

}  // namespace weft::cli
