#include "agent/collectors/inventory/link_watch.h"

#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <cstring>

#include "lib/model/subject.h"

namespace weft::inventory {
namespace {

constexpr std::size_t kMaxMessages = 256;     // of a datagram
constexpr std::size_t kMaxDatagrams = 256;    // of one take()
constexpr std::size_t kMaxInterfaces = 4096;  // beyond, each message of a new one is a change

std::size_t aligned(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// The bytes may lie anywhere, so nothing is read in place.
template <typename T>
bool read_front(std::string_view bytes, T& out) {
  if (bytes.size() < sizeof out) return false;
  std::memcpy(&out, bytes.data(), sizeof out);
  return true;
}

std::string_view after(std::string_view bytes, std::size_t size) { return bytes.substr(std::min(size, bytes.size())); }

bool read_link(std::string_view body, LinkMessage& out) {
  ifinfomsg info;
  if (!read_front(body, info)) return false;
  out.index = info.ifi_index;
  out.up = (info.ifi_flags & IFF_UP) != 0;
  out.carrier = (info.ifi_flags & IFF_LOWER_UP) != 0;
  for (std::string_view rest = after(body, aligned(sizeof info)); rest.size() >= sizeof(rtattr);) {
    rtattr attribute;
    read_front(rest, attribute);
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > rest.size()) return false;
    const std::string_view value = rest.substr(sizeof attribute, attribute.rta_len - sizeof attribute);
    if (attribute.rta_type == IFLA_IFNAME) {
      const std::string_view name = value.substr(0, value.find('\0'));
      if (model::valid_name(name)) out.name = name;
    } else if (attribute.rta_type == IFLA_MTU && !read_front(value, out.mtu)) {
      return false;
    }
    rest = after(rest, aligned(attribute.rta_len));
  }
  return true;
}

}  // namespace

Result<std::vector<LinkMessage>> parse_link_messages(std::string_view bytes) {
  const Error malformed = make_error(Error::Kind::Malformed, "not a link message");
  if (bytes.empty()) return malformed;
  std::vector<LinkMessage> out;
  while (!bytes.empty() && out.size() < kMaxMessages) {
    nlmsghdr header;
    if (!read_front(bytes, header) || header.nlmsg_len < sizeof header || header.nlmsg_len > bytes.size())
      return malformed;
    const std::string_view body = bytes.substr(sizeof header, header.nlmsg_len - sizeof header);
    LinkMessage message;
    switch (header.nlmsg_type) {
      case RTM_NEWLINK:
      case RTM_DELLINK:
        message.kind = header.nlmsg_type == RTM_NEWLINK ? LinkMessage::Kind::Link : LinkMessage::Kind::LinkGone;
        if (!read_link(body, message)) return malformed;
        out.push_back(std::move(message));
        break;
      case RTM_NEWADDR:
      case RTM_DELADDR: {
        ifaddrmsg info;
        if (!read_front(body, info)) return malformed;
        message.kind = LinkMessage::Kind::Address;
        message.index = static_cast<int>(info.ifa_index);
        out.push_back(std::move(message));
        break;
      }
      default:
        break;
    }
    bytes = after(bytes, aligned(header.nlmsg_len));
  }
  return out;
}

bool LinkWatch::note(const LinkMessage& message) {
  if (message.kind == LinkMessage::Kind::Address) return true;
  if (message.kind == LinkMessage::Kind::LinkGone) {
    known_.erase(message.index);
    return true;
  }
  const auto known = known_.find(message.index);
  if (known != known_.end()) {
    if (known->second == message) return false;
    known->second = message;
  } else if (known_.size() < kMaxInterfaces) {
    known_.emplace(message.index, message);
  }
  return true;
}

Result<bool> LinkWatch::take() {
  bool changed = false;
  for (std::size_t i = 0; i < kMaxDatagrams; ++i) {
    const auto bytes = source_->receive();
    if (!bytes && bytes.error().kind == Error::Kind::NoData) break;
    if (!bytes && bytes.error().kind == Error::Kind::Exhausted) {
      ++counts_.overruns;
      known_.clear();
      changed = true;
      continue;
    }
    if (!bytes) return bytes.error();
    ++counts_.received;
    const auto messages = parse_link_messages(*bytes);
    if (!messages) {
      ++counts_.malformed;
      continue;
    }
    for (const LinkMessage& message : *messages) changed = note(message) || changed;
  }
  return changed;
}

}  // namespace weft::inventory
