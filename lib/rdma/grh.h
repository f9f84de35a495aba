// Reads the 40 bytes that a UD receive buffer begins with: how the packet looked when it arrived. Pure.
// RoCEv2 over IPv4: bytes 20..39 are the IPv4 header; bytes 0..19 may be garbage (rdma-core verbs.c), so nothing there
// is looked at. RoCEv2 over IPv6: the 40 bytes are the IPv6 header.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "lib/model/device.h"

namespace weft::rdma {

inline constexpr std::size_t kGrhBytes = 40;

enum class HeaderKind : std::uint8_t { Ipv4, Ipv6 };  // by the type of the own GID, never guessed from the bytes

struct ArrivedHeader {
  model::Gid source;
  model::Gid destination;
  std::uint8_t tos = 0;  // traffic class: DSCP and ECN bits
  std::uint8_t hop_limit = 0;
};

// Absent when the bytes are too few, the version is wrong, or (IPv4) options are present, the protocol is not UDP or
// the checksum is bad.
std::optional<ArrivedHeader> parse_grh(std::span<const std::uint8_t> bytes, HeaderKind kind);

}  // namespace weft::rdma
