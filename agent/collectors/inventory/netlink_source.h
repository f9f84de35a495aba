// Datagrams of the kernel's netlink groups that tell of devices and links. Text and messages from outside: whoever
// reads them parses with care.
#pragma once

#include <memory>
#include <string>

#include "lib/base/result.h"

namespace weft::inventory {

// receive: NoData when there are none, Exhausted when the kernel dropped some. A datagram that the kernel did not send
// comes as an empty string, which no parser takes. Never blocks.
class NetlinkSource {
 public:
  virtual ~NetlinkSource() = default;
  virtual Result<std::string> receive() = 0;
  virtual int fd() const = 0;
};

// Neither needs a privilege.
Result<std::unique_ptr<NetlinkSource>> open_kernel_uevents();  // NETLINK_KOBJECT_UEVENT
Result<std::unique_ptr<NetlinkSource>> open_link_messages();   // NETLINK_ROUTE: links, IPv4 and IPv6 addresses

}  // namespace weft::inventory
