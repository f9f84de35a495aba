// Tells when a network interface gains or loses its carrier, an address or its MTU, from the kernel's rtnetlink
// messages. A RoCE port follows its interface without any uevent, and a lost carrier is the cause of all losses that
// follow, so it has to be known before them.
// One thread. Messages that are malformed or of other types are ignored and counted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/collectors/inventory/netlink_source.h"
#include "lib/base/result.h"

namespace weft::inventory {

struct LinkMessage {
  enum class Kind : std::uint8_t { Link, LinkGone, Address };
  Kind kind = Kind::Link;
  int index = 0;
  // Of links only.
  std::string name;  // empty where the message has none
  bool up = false;   // administratively
  bool carrier = false;
  std::uint32_t mtu = 0;  // bytes, 0 where the message has none
  bool operator==(const LinkMessage&) const = default;
};

// All messages of a datagram that are of interest, at most 256. Malformed when a length does not fit; what came before
// it in the same datagram is lost with it. Pure. Layout: man 7 rtnetlink.
Result<std::vector<LinkMessage>> parse_link_messages(std::string_view bytes);

struct LinkCounts {
  std::uint64_t received = 0;   // datagrams
  std::uint64_t malformed = 0;  // ignored
  std::uint64_t overruns = 0;   // the kernel dropped some
};

class LinkWatch {
 public:
  explicit LinkWatch(std::unique_ptr<NetlinkSource> source) : source_(std::move(source)) {}

  // Readable when take() may have something.
  int fd() const { return source_->fd(); }
  // Whether anything has changed since the last call that an inventory would show. Interfaces also send messages when
  // nothing did (statistics of a bridge, a wireless scan): those do not count. A failure of the socket is an error.
  Result<bool> take();
  const LinkCounts& counts() const { return counts_; }

 private:
  bool note(const LinkMessage& message);

  std::unique_ptr<NetlinkSource> source_;
  std::map<int, LinkMessage> known_;  // by interface index
  LinkCounts counts_;
};

}  // namespace weft::inventory
