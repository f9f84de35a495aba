// What a host has: RDMA devices, ports, GIDs, and what cannot be measured there. Passive data; absent is absent, never
// 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace weft::model {

enum class LinkLayer : std::uint8_t { Unknown, Ethernet, InfiniBand };
enum class PortState : std::uint8_t { Unknown, Down, Init, Armed, Active, ActiveDefer };
enum class GidType : std::uint8_t { Unknown, InfiniBand, RoceV1, RoceV2 };

std::string_view to_string(LinkLayer value);
std::string_view to_string(PortState value);
std::string_view to_string(GidType value);

// 16 bytes in network order. An IPv4-mapped GID is ::ffff:a.b.c.d.
struct Gid {
  std::array<std::uint8_t, 16> raw{};
  auto operator<=>(const Gid&) const = default;
  bool is_zero() const;
  bool is_ipv4_mapped() const;
  bool is_link_local() const;  // fe80::/10
  // "10.0.1.2" for an IPv4-mapped one, else IPv6 text.
  std::string to_string() const;
  // Accepts what to_string writes and sysfs's eight groups of four hex digits.
  static Result<Gid> parse(std::string_view text);
  // Of one host or device: neither the unspecified address, nor multicast, nor broadcast. Nothing is sent to others.
  bool is_unicast() const;
  static Result<Gid> parse_unicast(std::string_view text);
};

struct GidEntry {
  unsigned index = 0;
  Gid gid;
  GidType type = GidType::Unknown;
  std::string netdev;  // empty when unknown
  bool operator==(const GidEntry&) const = default;
};

struct RdmaPort {
  unsigned number = 1;
  PortState state = PortState::Unknown;
  LinkLayer link_layer = LinkLayer::Unknown;
  std::optional<std::uint64_t> rate_bits_per_s;
  std::optional<std::uint32_t> active_mtu_bytes;
  std::optional<std::uint16_t> lid;
  std::vector<GidEntry> gids;  // empty slots left out
  std::string netdev;
  bool operator==(const RdmaPort&) const = default;
};

struct RdmaDevice {
  std::string name;    // "mlx5_0", "rxe0"
  std::string driver;  // "mlx5_core", "rxe"; empty when unknown
  std::string node_guid;
  std::string firmware;  // empty when unknown
  std::vector<RdmaPort> ports;
  bool operator==(const RdmaDevice&) const = default;
};

// "cannot measure" with the reason and the way out; never read as healthy.
struct Limitation {
  std::string subject;
  std::string why;
  std::string how;
  bool operator==(const Limitation&) const = default;
};

// A local address weft probes from and answers on: an RDMA device port, or a network interface over UDP.
struct ProbeEndpoint {
  std::string device;     // "rxe0", or "eth0" for UDP
  std::string transport;  // "rdma" | "udp"
  std::string address;    // GID or IP text; where the hello of peers goes when it is IP
  std::uint16_t hello_port = 0;
  std::uint64_t responder_epoch = 0;           // changes when the responder's queue pairs are made anew
  std::vector<std::uint16_t> prober_ports;     // UDP source ports probes can leave by
  std::vector<std::uint16_t> responder_ports;  // UDP source ports acknowledgements can leave by
  bool operator==(const ProbeEndpoint&) const = default;
};

struct Inventory {
  std::string host;
  std::string kernel;
  std::string version;  // of weftd
  std::vector<RdmaDevice> devices;
  std::vector<ProbeEndpoint> endpoints;
  std::vector<Limitation> limitations;
  bool operator==(const Inventory&) const = default;
};

}  // namespace weft::model
