// GID <-> socket address. Pure.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "lib/model/device.h"

namespace weft::probes {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// scope_id (an interface index) is used for link-local IPv6 addresses only.
SocketAddress to_socket_address(const model::Gid& gid, std::uint16_t port, unsigned scope_id = 0);
// A zero GID and port for any other family.
model::Gid gid_of(const sockaddr_storage& storage);
std::uint16_t port_of(const sockaddr_storage& storage);
// "10.0.1.2:4791", "[fd00::1]:4791"
std::string to_text(const model::Gid& gid, std::uint16_t port);

}  // namespace weft::probes
