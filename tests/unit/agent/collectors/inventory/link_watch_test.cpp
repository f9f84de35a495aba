#include "agent/collectors/inventory/link_watch.h"

#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <random>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::inventory;
using Kind = LinkMessage::Kind;

namespace {

template <typename T>
std::string raw(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

void pad(std::string& bytes) { bytes.resize((bytes.size() + 3) & ~std::size_t{3}); }

std::string attribute(unsigned short type, const std::string& value) {
  rtattr header{};
  header.rta_len = static_cast<unsigned short>(sizeof header + value.size());
  header.rta_type = type;
  std::string bytes = raw(header) + value;
  pad(bytes);
  return bytes;
}

std::string message(unsigned short type, const std::string& body) {
  nlmsghdr header{};
  header.nlmsg_len = static_cast<std::uint32_t>(sizeof header + body.size());
  header.nlmsg_type = type;
  std::string bytes = raw(header) + body;
  pad(bytes);
  return bytes;
}

std::string link(int index, const std::string& name, bool carrier, std::uint32_t mtu = 1500,
                 unsigned short type = RTM_NEWLINK) {
  ifinfomsg info{};
  info.ifi_index = index;
  info.ifi_flags = carrier ? unsigned{IFF_UP} | unsigned{IFF_LOWER_UP} : unsigned{IFF_UP};
  return message(type, raw(info) + attribute(IFLA_IFNAME, name + '\0') + attribute(IFLA_MTU, raw(mtu)));
}

std::string address(unsigned index) {
  ifaddrmsg info{};
  info.ifa_family = 2;
  info.ifa_index = index;
  return message(RTM_NEWADDR, raw(info));
}

struct Script final : NetlinkSource {
  std::deque<Result<std::string>> script;
  Result<std::string> receive() override {
    if (script.empty()) return make_error(Error::Kind::NoData, "none");
    auto next = std::move(script.front());
    script.pop_front();
    return next;
  }
  int fd() const override { return -1; }
};

struct Watched {
  Script* script;
  LinkWatch watch;
  Watched() : Watched(std::make_unique<Script>()) {}
  bool changed_by(const std::string& bytes) {
    script->script.push_back(bytes);
    return *watch.take();
  }

 private:
  explicit Watched(std::unique_ptr<Script> source) : script(source.get()), watch(std::move(source)) {}
};

}  // namespace

TEST_CASE("link messages whose lengths do not fit are refused whole", "[inventory]") {
  const std::string good = link(3, "eth0", true);
  CHECK_FALSE(parse_link_messages(""));
  for (std::size_t size = 1; size < good.size(); ++size) {
    INFO(size);
    CHECK_FALSE(parse_link_messages(good.substr(0, size)));
  }
  std::string longer = good;
  longer[0] = '\x7f';  // nlmsg_len past the end
  CHECK_FALSE(parse_link_messages(longer));
  std::string shorter = good;
  shorter[0] = 4;  // less than its own header
  CHECK_FALSE(parse_link_messages(shorter));
  std::string attribute_past_end = good;
  attribute_past_end[sizeof(nlmsghdr) + sizeof(ifinfomsg)] = '\x7f';
  CHECK_FALSE(parse_link_messages(attribute_past_end));
  std::string attribute_of_nothing = good;
  attribute_of_nothing[sizeof(nlmsghdr) + sizeof(ifinfomsg)] = 0;  // would never advance
  CHECK_FALSE(parse_link_messages(attribute_of_nothing));
}

TEST_CASE("any bytes at all leave the link parser unharmed, and only names that are safe come out", "[inventory]") {
  std::mt19937 random(7);
  const std::string good = link(3, "eth0", true) + address(3) + link(4, "eth1", false);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 4; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    const auto messages = parse_link_messages(bytes);
    if (!messages) continue;
    CHECK(messages->size() <= 3);
    for (const LinkMessage& each : *messages)
      for (const char c : each.name) CHECK((c > ' ' && c != '/' && c != 0x7f));
  }
}

TEST_CASE("a datagram of several messages is read in order, others left out", "[inventory]") {
  const auto messages = parse_link_messages(link(3, "eth0", true, 9000) + message(RTM_NEWROUTE, "abcd") + address(3) +
                                            link(4, "eth1", false, 1500, RTM_DELLINK));
  REQUIRE(messages);
  REQUIRE(messages->size() == 3);
  CHECK((*messages)[0] == LinkMessage{Kind::Link, 3, "eth0", true, true, 9000});
  CHECK((*messages)[1].kind == Kind::Address);
  CHECK((*messages)[1].index == 3);
  CHECK((*messages)[2] == LinkMessage{Kind::LinkGone, 4, "eth1", true, false, 1500});
}

TEST_CASE("a lost carrier is a change; the same news again is none", "[inventory]") {
  Watched it;
  CHECK(it.changed_by(link(3, "eth0", true)));
  CHECK_FALSE(it.changed_by(link(3, "eth0", true)));
  CHECK(it.changed_by(link(3, "eth0", false)));
  CHECK_FALSE(it.changed_by(link(3, "eth0", false)));
  CHECK(it.changed_by(link(3, "eth0", false, 9000)));
  CHECK(it.changed_by(address(3)));
  CHECK(it.changed_by(link(3, "eth0", false, 9000, RTM_DELLINK)));
  CHECK_FALSE(*it.watch.take());
}

TEST_CASE("link messages the kernel dropped mean a change, and garbage is counted", "[inventory]") {
  Watched it;
  CHECK(it.changed_by(link(3, "eth0", true)));
  it.script->script.push_back(make_error(Error::Kind::Exhausted, "dropped"));
  CHECK(*it.watch.take());
  CHECK(it.changed_by(link(3, "eth0", true)));  // what is known is of before
  CHECK_FALSE(it.changed_by("garbage"));
  CHECK_FALSE(it.changed_by(""));
  CHECK(it.watch.counts().overruns == 1);
  CHECK(it.watch.counts().malformed == 2);
  CHECK(it.watch.counts().received == 4);
}

TEST_CASE("a broken link socket is an error, not silence", "[inventory]") {
  Watched it;
  it.script->script.push_back(errno_error(EBADF, "receive link messages"));
  CHECK_FALSE(it.watch.take());
}
