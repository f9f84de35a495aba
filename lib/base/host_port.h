// "HOST:PORT" as people write it: where to listen, whom to connect to. Pure; names are not resolved.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/result.h"

namespace weft {

struct HostPort {
  std::string host;  // a name, or an IP address without brackets
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

// "db1:7471", "10.0.0.1:7471", "[::1]:7471"; port 0 as well, where it means any free one. Invalid, with how to write it
// and usual_port in the example.
Result<HostPort> parse_host_port(const std::string& text, std::uint16_t usual_port);
// 127.0.0.0/8, ::1 or localhost.
bool is_loopback(const std::string& host);

}  // namespace weft
