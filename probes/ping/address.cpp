#include "probes/ping/address.h"

#include <algorithm>
#include <cstring>

namespace weft::probes {

SocketAddress to_socket_address(const model::Gid& gid, std::uint16_t port, unsigned scope_id) {
  SocketAddress address;
  if (gid.is_ipv4_mapped()) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, gid.raw.data() + 12, 4);
    std::memcpy(&address.storage, &v4, sizeof v4);
    address.length = sizeof v4;
    return address;
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  std::memcpy(&v6.sin6_addr, gid.raw.data(), 16);
  if (gid.is_link_local()) v6.sin6_scope_id = scope_id;
  std::memcpy(&address.storage, &v6, sizeof v6);
  address.length = sizeof v6;
  return address;
}

model::Gid gid_of(const sockaddr_storage& storage) {
  model::Gid gid;
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &storage, sizeof v4);
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw.data() + 12, &v4.sin_addr, 4);
  } else if (storage.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &storage, sizeof v6);
    std::memcpy(gid.raw.data(), &v6.sin6_addr, 16);
  }
  return gid;
}

std::uint16_t port_of(const sockaddr_storage& storage) {
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &storage, sizeof v4);
    return ntohs(v4.sin_port);
  }
  if (storage.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &storage, sizeof v6);
    return ntohs(v6.sin6_port);
  }
  return 0;
}

std::string to_text(const model::Gid& gid, std::uint16_t port) {
  const std::string address = gid.to_string();
  return (gid.is_ipv4_mapped() ? address : "[" + address + "]") + ":" + std::to_string(port);
}

}  // namespace weft::probes
