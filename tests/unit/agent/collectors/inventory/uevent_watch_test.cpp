#include "agent/collectors/inventory/uevent_watch.h"

#include <cerrno>
#include <deque>
#include <random>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::inventory;
using Kind = DeviceEvent::Kind;

namespace {

std::string uevent(const std::string& action, const std::string& path, const std::string& subsystem) {
  std::string text = action + "@" + path;
  for (const std::string& field :
       {"ACTION=" + action, "DEVPATH=" + path, "SUBSYSTEM=" + subsystem, std::string("SEQNUM=1234")}) {
    text.push_back('\0');
    text += field;
  }
  text.push_back('\0');
  return text;
}

const std::string kVerbsGone = uevent("remove", "/devices/virtual/infiniband_verbs/uverbs0", "infiniband_verbs");
const std::string kDeviceGone = uevent("remove", "/devices/virtual/infiniband/rxe0", "infiniband");

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
  SystemFiles files;
  Script* script;
  UeventWatch watch;
  explicit Watched(const std::string& tree = "rxe") : Watched(std::make_unique<Script>(), tree) {}

 private:
  Watched(std::unique_ptr<Script> source, const std::string& tree)
      : script(source.get()), watch(std::move(source), files, std::string(WEFT_FIXTURES) + "/sysfs/" + tree) {}
};

}  // namespace

TEST_CASE("hostile text is no uevent", "[inventory]") {
  using namespace std::string_literals;
  for (const std::string& text :
       {""s, "\0"s, "add"s, "add@"s, "add@devices/x\0SUBSYSTEM=net\0"s, "add@/\0SUBSYSTEM=net\0"s,
        "add@/devices/x y\0SUBSYSTEM=net\0"s, "add@/devices/x"s, "add@/devices/x\0"s, "add@/devices/x\0SUBSYSTEM=\0"s,
        "libudev\0\xfe\xed\xca\xfe"s, std::string(100'000, 'a'),
        "add@/" + std::string(100'000, 'a') + "\0SUBSYSTEM=net\0"s}) {
    const auto event = parse_uevent(text);
    REQUIRE_FALSE(event);
    CHECK(event.error().kind == Error::Kind::Malformed);
  }
}

TEST_CASE("random and cut bytes never become an event of another device", "[inventory]") {
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kVerbsGone;
    if (i % 2 == 0) text.resize(random() % text.size());
    for (unsigned flips = random() % 4; flips > 0 && !text.empty(); --flips)
      text[random() % text.size()] = static_cast<char>(random());
    if (const auto event = parse_uevent(text); event) CHECK(event->name.size() <= 253);
  }
}

TEST_CASE("uevents of other subsystems and actions are of no interest, not malformed", "[inventory]") {
  for (const std::string& text : {uevent("add", "/devices/pci0000:00/block/sda", "block"),
                                  uevent("add", "/devices/virtual/net/eth0/queues/rx-0", "queues"),
                                  uevent("bind", "/devices/virtual/infiniband/rxe0", "infiniband")}) {
    const auto event = parse_uevent(text);
    REQUIRE_FALSE(event);
    CHECK(event.error().kind == Error::Kind::NoData);
  }
}

TEST_CASE("the removal of the uverbs node, the first sign, names the device to close", "[inventory]") {
  Watched it;
  it.script->script.push_back(kVerbsGone);
  it.script->script.push_back(kDeviceGone);
  const auto events = it.watch.take();
  REQUIRE(events);
  CHECK(*events == std::vector<DeviceEvent>{{Kind::Removed, "rxe0"}, {Kind::Removed, "rxe0"}});
  CHECK(it.watch.take()->empty());
}

TEST_CASE("a node that was never seen makes the reader look at everything", "[inventory]") {
  Watched it("no_rdma");
  it.script->script.push_back(kVerbsGone);
  CHECK(it.watch.take()->at(0).kind == Kind::Lost);
}

TEST_CASE("a device that comes is named by either of its two events", "[inventory]") {
  Watched it;
  it.script->script.push_back(uevent("add", "/devices/virtual/infiniband_verbs/uverbs0", "infiniband_verbs"));
  it.script->script.push_back(uevent("add", "/devices/virtual/infiniband/rxe0", "infiniband"));
  CHECK(*it.watch.take() == std::vector<DeviceEvent>{{Kind::Added, "rxe0"}, {Kind::Added, "rxe0"}});
}

TEST_CASE("interfaces that come and go are told, their changes are not; a renamed device means read anew",
          "[inventory]") {
  Watched it;
  it.script->script.push_back(uevent("remove", "/devices/virtual/net/eth7", "net"));
  it.script->script.push_back(uevent("change", "/devices/virtual/net/eth7", "net"));
  it.script->script.push_back(uevent("move", "/devices/virtual/infiniband/rocep0s3", "infiniband"));
  CHECK(*it.watch.take() == std::vector<DeviceEvent>{{Kind::Interface, "eth7"}, {Kind::Lost, "rocep0s3"}});
}

TEST_CASE("events the kernel dropped are counted and mean: read everything anew", "[inventory]") {
  Watched it;
  it.script->script.push_back(make_error(Error::Kind::Exhausted, "dropped"));
  it.script->script.push_back(std::string("garbage"));
  it.script->script.push_back(uevent("add", "/devices/x/sda", "block"));
  CHECK(*it.watch.take() == std::vector<DeviceEvent>{{Kind::Lost, ""}});
  CHECK(it.watch.counts().overruns == 1);
  CHECK(it.watch.counts().malformed == 1);
  CHECK(it.watch.counts().other == 1);
  CHECK(it.watch.counts().received == 2);
}

TEST_CASE("a flood of events ends each call within its bound, and the rest is not lost", "[inventory]") {
  Watched it;
  for (int i = 0; i < 400; ++i) it.script->script.push_back(kDeviceGone);
  CHECK(it.watch.take()->size() == 256);
  CHECK(it.watch.take()->size() == 144);
}

TEST_CASE("a broken socket is an error, not silence", "[inventory]") {
  Watched it;
  it.script->script.push_back(errno_error(EBADF, "receive uevents"));
  CHECK_FALSE(it.watch.take());
}
