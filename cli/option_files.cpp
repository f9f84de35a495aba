#include "cli/option_files.h"

#include "lib/localise/topology.h"

namespace weft::cli {
namespace {

constexpr std::size_t kMaxTopologyBytes = 16 * 1024 * 1024;

// That a file may not be read is told from one that is not there: the option is right then.
Error of_option(const char* option, Error error) {
  if (error.kind != Error::Kind::Permission) error.kind = Error::Kind::Invalid;
  error.context = std::string(option) + ": " + error.context;
  return error;
}

}  // namespace

Result<OptionFiles> read_option_files(const DirectOptions& options, const FileReader& files) {
  OptionFiles out;
  if (!options.topology_file.empty()) {
    auto text = files.read(options.topology_file, kMaxTopologyBytes);
    if (!text) return of_option("--topology", text.error());
    auto topology = localise::Topology::parse(*text, options.topology_file);
    if (!topology) return of_option("--topology", topology.error());
    out.names = RouteNames(std::move(*topology));
  }
  if (!options.key_file.empty()) {
    auto key = probes::FabricKey::load(files, options.key_file);
    if (!key) return of_option("--key-file", key.error());
    out.key = *key;
  }
  return out;
}

}  // namespace weft::cli
