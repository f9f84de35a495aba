// What weftd is told by its configuration file: strict TOML (lib/base/config.h), validated as a whole, so that a reload
// either takes everything or changes nothing. Passive data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/files.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/base/result.h"
#include "lib/model/plan.h"
#include "probes/packet/fabric_key.h"

namespace weft::agent {

enum class TransportChoice : std::uint8_t { Auto, Rdma, Udp };

struct ProbeSettings {
  TransportChoice transport = TransportChoice::Auto;
  std::vector<std::string> devices;     // RDMA devices weft may use; empty: all
  std::vector<std::string> interfaces;  // UDP: interface names or local IP addresses; empty: those with hardware
  unsigned lanes = 4;                   // prober source ports to start with (queue pairs on rxe)
  unsigned responder_lanes = 4;
  std::uint8_t traffic_class = 0;  // DSCP << 2
  std::uint16_t hello_port = 0;
  double max_probes_per_s = 200;
  double max_link_share = 0.001;
  std::size_t payload_bytes = 0;
  Nanos timeout_ns = 500 * kMillisecond;
  std::vector<model::PlanTarget> targets;  // followed until an aggregator sends a plan
  bool operator==(const ProbeSettings&) const = default;
};

struct Settings {
  std::string agent_name;
  std::string state_dir;
  std::string fabric_name;
  std::string key_file;  // empty: the well-known key
  probes::FabricKey key;
  std::string aggregator_address;       // "host:port"; empty: run alone
  HostPort metrics{"127.0.0.1", 9435};  // port 0: any free one
  ProbeSettings probe;
  bool trace_enabled = true;
  double trace_probes_per_s = 50;
  log::Level log_level = log::Level::Info;
};

// host_name is the default of agent.name. Reads the key file too. The message of an error is
// "FILE:LINE:COLUMN: what is wrong" wherever a place is known.
Result<Settings> load_settings(const FileReader& files, const std::string& path, const std::string& host_name);
Result<Settings> parse_settings(const FileReader& files, const std::string& toml, const std::string& file_name,
                                const std::string& host_name);

}  // namespace weft::agent
