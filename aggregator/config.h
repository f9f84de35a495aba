// What weft-aggregator is told: a strict TOML file, then flags. Pure but for reading the two files through the seam.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/files.h"
#include "lib/base/log.h"
#include "lib/base/result.h"
#include "lib/localise/localiser.h"
#include "lib/localise/topology.h"

namespace weft::aggregator {

inline constexpr std::uint16_t kUsualGrpcPort = 7471, kUsualHttpPort = 7470;

struct AggregatorConfig {
  std::string fabric = "default";
  std::string topology_file;  // empty: none; nodes are named by the addresses that answer
  std::string listen_grpc = "127.0.0.1:7471";
  std::string listen_http = "127.0.0.1:7470";
  bool allow_remote = false;
  std::string store_path = "/var/lib/weft/weft.db";
  Nanos retention_ns = 60 * kSecond;
  log::Level log_level = log::Level::Info;
  localise::LocaliserConfig localiser;
  localise::Topology topology;
};

// Flags, each over the file when given.
struct Overrides {
  std::optional<std::string> topology_file, listen_grpc, listen_http, store_path, fabric;
  std::optional<log::Level> log_level;
  bool allow_remote = false;
};

// path empty: defaults and flags only. Errors are Invalid with FILE:LINE:COLUMN where a file is to blame. The topology
// is read and checked as well; its fabric name must be ours.
Result<AggregatorConfig> load_config(const FileReader& files, const std::string& path, const Overrides& overrides);

}  // namespace weft::aggregator
