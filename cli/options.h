// What was asked on the command line, as plain data. Parsed in options.cpp, the only file that sees CLI11.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "lib/base/clock.h"

namespace weft::cli {

// How to measure from this host without agent or aggregator.
struct DirectOptions {
  std::string transport = "auto";  // "auto" | "rdma" | "udp"
  std::string device;              // RDMA device or network interface; empty: chosen, and said
  unsigned device_port = 0;        // of the RDMA device; 0: the first active one
  std::optional<unsigned> gid_index;
  std::string source;  // local IP address to measure from; empty: by the routes
  std::uint16_t hello_port = 47910;
  std::string key_file;
  std::uint8_t traffic_class = 0;
  std::size_t size_bytes = 0;  // of the payload; 0: the smallest
  std::string topology_file;
  std::string sys_root = "/sys";

  // What was given that only RDMA has, "--gid and --device-port"; empty when nothing.
  std::string rdma_only() const {
    std::string out = gid_index ? "--gid" : "";
    if (device_port != 0) out += out.empty() ? "--device-port" : " and --device-port";
    return out;
  }
};

struct AggregatorOptions {
  std::string address = "http://127.0.0.1:7470";
  Nanos deadline_ns = 5 * kSecond;
};

struct PingOptions {
  DirectOptions direct;
  std::vector<std::string> hosts;
  std::uint64_t count = 0;  // to each host; 0: until Ctrl-C
  Nanos interval_ns = 200 * kMillisecond;
  unsigned ports = 1;
  std::uint16_t port = 0;  // UDP source port; 0: chosen
  std::optional<Nanos> deadline_ns;
  Nanos timeout_ns = 500 * kMillisecond;
  bool quiet = false;
  bool no_path = false;
};

struct TraceOptions {
  DirectOptions direct;
  std::string host;
  unsigned ports = 8;
  std::uint16_t port = 0;
  std::uint16_t to_port = 0;  // UDP destination port; 0: as the probes have it
  bool no_probe = false;      // do not ask the host's responder for hop count and ports
  Nanos deadline_ns = 30 * kSecond;
};

struct MeshOptions {
  DirectOptions direct;
  AggregatorOptions aggregator;
  bool is_direct = false;
  std::vector<std::string> hosts;
  unsigned ports = 8;
  Nanos duration_ns = 12 * kSecond;  // links that share all their paths take the localiser some seconds
};

struct FindingsOptions {
  AggregatorOptions aggregator;
  bool watch = false, all = false;
  std::string ack, kind, subject;
  std::optional<Nanos> since_ns;  // only findings younger than this
};

struct StatusOptions {
  DirectOptions direct;
  std::string agent = "http://127.0.0.1:9435";
  Nanos deadline_ns = 3 * kSecond;
};

struct ResponderOptions {
  DirectOptions direct;
  std::optional<Nanos> duration_ns;
  unsigned ports = 4;
};

struct VersionOptions {};

using CommandOptions = std::variant<PingOptions, TraceOptions, MeshOptions, FindingsOptions, StatusOptions,
                                    ResponderOptions, VersionOptions>;

struct Invocation {
  CommandOptions command;
  std::string name;  // "ping"
  bool json = false;
  ColourChoice colour = ColourChoice::Auto;
};

// Either what to do, or (help asked for, usage error) the text for the stream and the exit code.
struct ParseEnd {
  ExitCode code = ExitCode::Usage;
  std::string out, error;
  std::string command;
  bool json = false;
};
std::variant<Invocation, ParseEnd> parse_command_line(int argc, const char* const* argv);

}  // namespace weft::cli
