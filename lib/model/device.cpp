#include "lib/model/device.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace weft::model {

std::string_view to_string(LinkLayer value) {
  switch (value) {
    case LinkLayer::Unknown:
      return "unknown";
    case LinkLayer::Ethernet:
      return "Ethernet";
    case LinkLayer::InfiniBand:
      return "InfiniBand";
  }
  return "unknown";
}

std::string_view to_string(PortState value) {
  switch (value) {
    case PortState::Unknown:
      return "unknown";
    case PortState::Down:
      return "DOWN";
    case PortState::Init:
      return "INIT";
    case PortState::Armed:
      return "ARMED";
    case PortState::Active:
      return "ACTIVE";
    case PortState::ActiveDefer:
      return "ACTIVE_DEFER";
  }
  return "unknown";
}

std::string_view to_string(GidType value) {
  switch (value) {
    case GidType::Unknown:
      return "unknown";
    case GidType::InfiniBand:
      return "IB";
    case GidType::RoceV1:
      return "RoCE v1";
    case GidType::RoceV2:
      return "RoCE v2";
  }
  return "unknown";
}

bool Gid::is_zero() const {
  return std::all_of(raw.begin(), raw.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool Gid::is_ipv4_mapped() const {
  return std::all_of(raw.begin(), raw.begin() + 10, [](std::uint8_t byte) { return byte == 0; }) && raw[10] == 0xff &&
         raw[11] == 0xff;
}

bool Gid::is_link_local() const { return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80; }

std::string Gid::to_string() const {
  char text[INET6_ADDRSTRLEN];
  if (is_ipv4_mapped()) {
    inet_ntop(AF_INET, raw.data() + 12, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, raw.data(), text, sizeof text);
  }
  return text;
}

Result<Gid> Gid::parse(std::string_view text) {
  const std::string copy(text);
  Gid gid;
  in_addr v4{};
  if (copy.find(':') == std::string::npos && inet_pton(AF_INET, copy.c_str(), &v4) == 1) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw.data() + 12, &v4, 4);
    return gid;
  }
  if (inet_pton(AF_INET6, copy.c_str(), gid.raw.data()) == 1) return gid;
  return make_error(Error::Kind::Malformed, "'" + copy.substr(0, 64) + "' is no GID or IP address");
}

bool Gid::is_unicast() const {
  if (is_zero()) return false;
  if (!is_ipv4_mapped()) return raw[0] != 0xff;
  const bool any = raw[12] == 0;                      // 0.0.0.0/8
  const bool many = raw[12] >= 224 && raw[12] < 240;  // 224.0.0.0/4
  const bool all = std::all_of(raw.begin() + 12, raw.end(), [](std::uint8_t byte) { return byte == 0xff; });
  return !any && !many && !all;
}

Result<Gid> Gid::parse_unicast(std::string_view text) {
  auto gid = parse(text);
  if (gid && !gid->is_unicast()) {
    return make_error(Error::Kind::Invalid, "'" + std::string(text) + "' is no address of one host");
  }
  return gid;
}

}  // namespace weft::model
