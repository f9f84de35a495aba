#include "cli/aggregator.h"

#include <algorithm>

#include "cli/stop.h"

namespace weft::cli {

Result<client::AggregatorClient> open_client(const AggregatorOptions& options) {
  client::Options wanted;
  wanted.url = options.address;
  wanted.deadline = std::chrono::milliseconds(std::max<Nanos>(1, options.deadline_ns / kMillisecond));
  wanted.stopped = stop_asked;
  return client::AggregatorClient::create(wanted);
}

ExitCode fail_aggregator(const std::string& command, Output& output, const Error& error,
                         const AggregatorOptions& options, const std::string& instead) {
  const bool refused = error.kind == Error::Kind::Invalid || error.kind == Error::Kind::NotFound;
  return output.fail(
      command, refused ? ExitCode::Usage : ExitCode::CannotMeasure, error,
      refused ? "" : "asked " + options.address + " (--aggregator, WEFT_AGGREGATOR); without it: " + instead);
}

}  // namespace weft::cli
