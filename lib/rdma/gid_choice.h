// Which GID of a port probes leave by, and why. Pure: works on what sysfs or verbs said.
// Rule: an explicit index is honoured after a check; else RoCEv2 IPv4, then RoCEv2 global IPv6, then RoCEv2 link-local
// (fe80::/10 or 169.254.0.0/16); empty slots and RoCEv1 (no UDP source port) are passed over. Equals: the port's own
// interface before its VLANs, then the lowest index. InfiniBand: index 0.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/model/device.h"

namespace weft::rdma {

struct GidChoice {
  model::GidEntry entry;
  std::string reason;  // "index 1, 10.0.1.2 (RoCEv2, eth0): the only RoCEv2 IPv4 address"
};

// Invalid: the explicit index is empty, absent or of the wrong type, with the table in the message.
// NotFound: no usable GID; says what the port needs. Neither speaks of the port's state.
Result<GidChoice> choose_gid(std::string_view device, const model::RdmaPort& port, std::optional<unsigned> index = {});

// "0 fe80::1 RoCEv1, 1 10.0.1.2 RoCEv2"; at most eight entries, then how many more.
std::string describe_gids(const model::RdmaPort& port);

}  // namespace weft::rdma
