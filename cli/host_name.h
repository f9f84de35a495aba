// A host as people write it, resolved to the address hellos go to.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace weft::cli {

struct HostAddress {
  std::string name;     // as written
  std::string address;  // IP text
};

// IP text of a name. It may block, and outlive whoever waits for it.
using LookUp = std::function<Result<std::string>(const std::string& name)>;
Result<std::string> system_look_up(const std::string& name);

// A GID or IP address as it is; a name by the system's resolver, IPv4 first, given up after the deadline (the
// resolver's own can be half a minute). NotFound, Timeout; Invalid for an empty text.
Result<HostAddress> resolve_host(const std::string& text, Nanos deadline_ns = 5 * kSecond,
                                 const LookUp& look_up = system_look_up);
// All at once, so that together they meet the deadline; in the order asked.
std::vector<Result<HostAddress>> resolve_hosts(const std::vector<std::string>& texts, Nanos deadline_ns = 5 * kSecond,
                                               const LookUp& look_up = system_look_up);
// This host's name up to the first dot, as subjects have it.
std::string own_host_name();

}  // namespace weft::cli
