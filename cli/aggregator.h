// Talking to the aggregator from a command: one client, and errors that say what else can be done.
#pragma once

#include <string>

#include "cli/options.h"
#include "cli/output.h"
#include "lib/client/aggregator_client.h"

namespace weft::cli {

Result<client::AggregatorClient> open_client(const AggregatorOptions& options);

// An aggregator that is down is "cannot measure", not a deadline of this command; a request it refuses is usage.
// instead: a command that works without it.
ExitCode fail_aggregator(const std::string& command, Output& output, const Error& error,
                         const AggregatorOptions& options, const std::string& instead);

}  // namespace weft::cli
