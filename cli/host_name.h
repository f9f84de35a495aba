// A host as people write it, resolved to the address hellos go to.
#pragma once

#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace weft::cli {

struct HostAddress {
  std::string name;     // as written
  std::string address;  // IP text
};

// A GID or IP address as it is; a name by the system's resolver, IPv4 first, given up after the deadline (the
// resolver's own can be half a minute). NotFound, Timeout; Invalid for an empty text.
Result<HostAddress> resolve_host(const std::string& text, Nanos deadline_ns = 5 * kSecond);
// This host's name up to the first dot, as subjects have it.
std::string own_host_name();

}  // namespace weft::cli
