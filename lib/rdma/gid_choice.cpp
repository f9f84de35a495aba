#include "lib/rdma/gid_choice.h"

#include <tuple>

namespace weft::rdma {
namespace {

using model::GidEntry;
using model::GidType;

enum class Rank : std::uint8_t { Ipv4, GlobalIpv6, LinkLocal, Unusable };

constexpr unsigned kMaxIndex = 255;  // ibv_global_route keeps it in 8 bits

Rank rank_of(const GidEntry& entry) {
  if (entry.type != GidType::RoceV2 || entry.gid.is_zero() || entry.index > kMaxIndex) return Rank::Unusable;
  // An IPv4 address that a host gave itself (169.254.0.0/16) is routed no further than fe80::.
  const bool self_given = entry.gid.is_ipv4_mapped() && entry.gid.raw[12] == 169 && entry.gid.raw[13] == 254;
  if (self_given || entry.gid.is_link_local()) return Rank::LinkLocal;
  return entry.gid.is_ipv4_mapped() ? Rank::Ipv4 : Rank::GlobalIpv6;
}

const char* words_of(Rank rank) {
  switch (rank) {
    case Rank::Ipv4:
      return "RoCEv2 IPv4 address";
    case Rank::GlobalIpv6:
      return "RoCEv2 global IPv6 address, and there is no IPv4 one";
    case Rank::LinkLocal:
      return "RoCEv2 link-local address, and there is no routable one: peers behind a router cannot be reached";
    case Rank::Unusable:
      break;
  }
  return "unusable";
}

std::string port_name(std::string_view device, const model::RdmaPort& port) {
  return std::string(device) + " port " + std::to_string(port.number);
}

std::string describe(const GidEntry& entry) {
  std::string text = "index " + std::to_string(entry.index) + ", " + entry.gid.to_string() + " (" +
                     std::string(model::to_string(entry.type));
  if (!entry.netdev.empty()) text += ", " + entry.netdev;
  return text + ")";
}

Result<GidChoice> explicit_choice(std::string_view device, const model::RdmaPort& port, unsigned index) {
  const std::string slot = port_name(device, port) + ": GID index " + std::to_string(index);
  const std::string table = "; the port has: " + describe_gids(port);
  for (const GidEntry& entry : port.gids) {
    if (entry.index != index || entry.gid.is_zero()) continue;
    if (index > kMaxIndex) return make_error(Error::Kind::Invalid, slot + " is past 255, the last that can be used");
    if (port.link_layer != model::LinkLayer::InfiniBand && entry.type == GidType::RoceV1)
      return make_error(Error::Kind::Invalid, slot + " is of type RoCEv1, which has no UDP source port" + table);
    return GidChoice{entry, describe(entry) + ": asked for"};
  }
  return make_error(Error::Kind::Invalid, slot + " is empty or not in the table" + table);
}

}  // namespace

std::string describe_gids(const model::RdmaPort& port) {
  if (port.gids.empty()) return "no GID";
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < port.gids.size() && i < kShown; ++i) {
    const GidEntry& entry = port.gids[i];
    if (i > 0) text += ", ";
    text += std::to_string(entry.index) + " " + entry.gid.to_string() + " " + std::string(model::to_string(entry.type));
  }
  if (port.gids.size() > kShown) text += " and " + std::to_string(port.gids.size() - kShown) + " more";
  return text;
}

Result<GidChoice> choose_gid(std::string_view device, const model::RdmaPort& port, std::optional<unsigned> index) {
  if (index) return explicit_choice(device, port, *index);
  if (port.link_layer == model::LinkLayer::InfiniBand) {
    for (const GidEntry& entry : port.gids)
      if (entry.index == 0 && !entry.gid.is_zero())
        return GidChoice{entry, describe(entry) + ": InfiniBand, the port's own GUID"};
    return make_error(Error::Kind::NotFound, port_name(device, port) +
                                                 ": GID index 0 is empty; is a subnet manager "
                                                 "running?");
  }
  const GidEntry* best = nullptr;
  unsigned equals = 0;
  const auto order = [&](const GidEntry& entry) {
    const bool own = port.netdev.empty() || entry.netdev.empty() || entry.netdev == port.netdev;
    return std::tuple(rank_of(entry), !own, entry.index);
  };
  for (const GidEntry& entry : port.gids) {
    if (rank_of(entry) == Rank::Unusable) continue;
    if (best == nullptr || rank_of(entry) < rank_of(*best)) equals = 0;
    if (best == nullptr || rank_of(entry) <= rank_of(*best)) ++equals;
    if (best == nullptr || order(entry) < order(*best)) best = &entry;
  }
  if (best == nullptr)
    return make_error(Error::Kind::NotFound,
                      port_name(device, port) + ": no RoCEv2 GID (" + describe_gids(port) + "); give its interface" +
                          (port.netdev.empty() ? "" : " " + port.netdev) + " an IPv4 or IPv6 address and set it up");
  return GidChoice{*best,
                   describe(*best) + ": " + (equals == 1 ? "the only " : "the first ") + words_of(rank_of(*best))};
}

}  // namespace weft::rdma
