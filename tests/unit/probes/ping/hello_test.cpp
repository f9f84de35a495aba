#include "probes/ping/hello.h"

#include <cerrno>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

namespace {

struct Found {
  std::uint64_t session = 0;
  ResponderInfo info;
  bool fresh = false;
};

struct Fixture {
  FakeClock clock;
  FabricKey key;
  RejectCounters rejects;
  std::vector<HelloPacket> asked;
  std::vector<Found> found;
  std::optional<Error> refuse;
  std::uint64_t next_random = 100;
  HelloOptions options;
  std::unique_ptr<HelloClient> client;

  Fixture() {
    options.name = "h1/rxe0";
    options.local = "rxe0 (10.0.1.2)";
    options.gid = *model::Gid::parse("10.0.1.2");
    options.epoch = 3;
    start();
  }
  void start() {
    client = std::make_unique<HelloClient>(
        options, key, rejects,
        [this](const model::Gid&, std::uint16_t, std::span<const std::uint8_t> bytes) -> Result<void> {
          if (refuse) return *refuse;
          const auto hello = parse_hello(bytes, key);
          REQUIRE(hello);
          asked.push_back(*hello);
          return {};
        },
        [this](std::uint64_t session, const ResponderInfo& info, bool fresh) {
          found.push_back({session, info, fresh});
        },
        [this] { return next_random++; });
  }
  std::uint64_t add(const std::string& to = "h3/rxe0", const std::string& address = "10.0.3.2") {
    return client->add({"rxe0", to, address, 47910, {}}, clock.monotonic_ns());
  }
  // Time passes to each next thing to do.
  void run(Nanos by) {
    const Nanos end = clock.monotonic_ns() + by;
    for (;;) {
      client->run(clock.monotonic_ns());
      const auto next = client->next_due();
      if (!next || *next > end) break;
      clock.advance(std::max<Nanos>(*next - clock.monotonic_ns(), 0));
    }
    clock.advance(end - clock.monotonic_ns());
  }
  HelloPacket answer(bool known = true) const {
    HelloPacket packet = asked.back();
    packet.type = PacketType::HelloAck;
    packet.epoch = 5;
    packet.gid = *model::Gid::parse("10.0.3.2");
    packet.name = "h3/rxe0";
    packet.lanes = {{33, 51001}};
    packet.lease_ms = 60000;
    packet.known = known;
    return packet;
  }
  void reply(const HelloPacket& packet) { client->on_answer(packet, clock.monotonic_ns()); }
  PeerStatus status() const { return client->statuses().at(0); }
};

}  // namespace

TEST_CASE("hello: silence ends in words that name address, device, tries and time (perftest PR 381, perftest 251)",
          "[ping]") {
  Fixture f;
  f.add();
  f.run(3 * kSecond);
  CHECK(f.status().state == PeerState::Hello);
  f.run(kSecond);
  CHECK(f.status().state == PeerState::Unreachable);
  CHECK(f.status().reason ==
        "no answer to hello on 10.0.3.2:47910 from rxe0 (10.0.1.2) after 5 tries in 3400 ms: is weftd or weft "
        "responder running there, with the same fabric key, and UDP port 47910 open?");
  const auto tries = f.asked.size();
  const std::string said = f.status().reason;
  f.run(10 * kSecond);
  CHECK(f.status().reason == said);     // each new text would be news to those who report it
  CHECK(f.asked.size() == tries + 10);  // it never gives up, at one a second
}

TEST_CASE("hello: an address that is none, or cannot be sent to, is said", "[ping]") {
  Fixture f;
  f.add("h3/rxe0", "h3.example");
  CHECK(f.status().state == PeerState::Unreachable);
  CHECK_THAT(f.status().reason, ContainsSubstring("'h3.example' is no GID or IP address"));
  CHECK_FALSE(f.client->next_due());
  f.client->suspect(100, f.clock.monotonic_ns());
  CHECK_FALSE(f.client->next_due());

  Fixture many;
  many.add("h3/rxe0", "ff02::1");
  many.run(5 * kSecond);
  CHECK(many.asked.empty());
  CHECK_THAT(many.status().reason, ContainsSubstring("'ff02::1' is no address of one host"));

  Fixture g;
  g.refuse = errno_error(ENETUNREACH, "sending a hello to 10.0.3.2:47910");
  g.add();
  g.run(5 * kSecond);
  CHECK_THAT(g.status().reason, ContainsSubstring("could not be sent") && ContainsSubstring("unreachable"));
}

TEST_CASE("hello: a closed port is reported at once", "[ping]") {
  Fixture f;
  f.add();
  f.run(0);
  f.client->on_refused(*model::Gid::parse("10.0.9.9"), 47910, ECONNREFUSED);
  CHECK(f.status().state == PeerState::Hello);
  f.client->on_refused(*model::Gid::parse("10.0.3.2"), 47910, ECONNREFUSED);
  CHECK(f.status().state == PeerState::Unreachable);
  CHECK_THAT(f.status().reason, ContainsSubstring("nothing listens on 10.0.3.2:47910"));
  f.run(kSecond);
  f.reply(f.answer(false));
  CHECK(f.status().state == PeerState::Ready);
  CHECK(f.status().reason.empty());
}

TEST_CASE("hello: a router's word that there is no way is told at once, and gives up nobody who answered", "[ping]") {
  Fixture f;
  f.add();
  f.run(0);
  f.client->on_refused(*model::Gid::parse("10.0.3.2"), 47910, EHOSTUNREACH);
  CHECK(f.status().state == PeerState::Unreachable);
  CHECK_THAT(f.status().reason, ContainsSubstring("hello from rxe0 (10.0.1.2) to 10.0.3.2:47910 did not arrive") &&
                                    ContainsSubstring("No route to host"));
  f.run(kSecond);
  f.reply(f.answer(false));
  CHECK(f.status().state == PeerState::Ready);
  f.client->on_refused(*model::Gid::parse("10.0.3.2"), 47910, ENETUNREACH);
  CHECK(f.status().state == PeerState::Ready);
  // Nor does it hide how long nobody has answered.
  f.run(60 * kSecond);
  CHECK(f.status().state == PeerState::Unreachable);
  CHECK_THAT(f.status().reason, ContainsSubstring("Network is unreachable"));
}

TEST_CASE("hello: only the answer to the question just asked counts", "[ping]") {
  Fixture f;
  f.add();
  f.run(0);
  const HelloPacket good = f.answer(false);
  HelloPacket wrong = good;
  wrong.nonce += 1;
  f.reply(wrong);
  CHECK(f.rejects.of(Reject::WrongNonce) == 1);
  wrong = good;
  wrong.session += 1;
  f.reply(wrong);
  CHECK(f.rejects.of(Reject::UnknownSession) == 1);
  f.reply(good);
  REQUIRE(f.found.size() == 1);
  f.reply(good);  // replayed
  CHECK(f.rejects.of(Reject::WrongNonce) == 2);
  CHECK(f.found.size() == 1);
}

TEST_CASE("hello: finds the responder and renews at a third of the lease", "[ping]") {
  Fixture f;
  f.client->set_lanes({{17, 50001}});
  const std::uint64_t session = f.add();
  CHECK(f.add() == session);
  f.run(0);
  REQUIRE(f.asked.size() == 1);
  CHECK(f.asked[0].name == "h1/rxe0");
  CHECK(f.asked[0].gid == f.options.gid);
  CHECK(f.asked[0].lanes == std::vector<HelloLane>{{17, 50001}});
  f.reply(f.answer(false));
  REQUIRE(f.found.size() == 1);
  CHECK(f.found[0].session == session);
  CHECK(f.found[0].fresh);
  CHECK(f.found[0].info.lanes == std::vector<HelloLane>{{33, 51001}});
  CHECK(f.status().answered_as == "h3/rxe0");
  CHECK(f.status().responder_epoch == 5);
  CHECK(f.status().return_ports == std::vector<std::uint16_t>{51001});
  f.run(19 * kSecond);
  CHECK(f.asked.size() == 1);
  f.run(kSecond);
  CHECK(f.asked.size() == 2);
  f.reply(f.answer(true));
  CHECK_FALSE(f.found.back().fresh);
}

TEST_CASE("hello: a changed epoch or a forgotten session is a fresh start", "[ping]") {
  Fixture f;
  f.add();
  f.run(0);
  f.reply(f.answer(false));
  f.run(20 * kSecond);
  HelloPacket other = f.answer(true);
  other.epoch = 6;
  f.reply(other);
  CHECK(f.found.back().fresh);
  f.run(20 * kSecond);
  other = f.answer(false);
  other.epoch = 6;
  f.reply(other);
  CHECK(f.found.back().fresh);
}

TEST_CASE("hello: failing probes make it ask at once, but not more than once a second", "[ping]") {
  Fixture f;
  const std::uint64_t session = f.add();
  f.run(0);
  f.reply(f.answer(false));
  f.run(5 * kSecond);
  f.client->suspect(session, f.clock.monotonic_ns());
  f.run(0);
  CHECK(f.asked.size() == 2);
  f.reply(f.answer());
  for (int i = 0; i < 100; ++i) {
    f.client->suspect(session, f.clock.monotonic_ns());
    f.run(10 * kMillisecond);
  }
  CHECK(f.asked.size() <= 3);
}

TEST_CASE("hello: refusals are said in words, and probing stops", "[ping]") {
  Fixture f;
  f.add();
  f.run(0);
  f.reply(f.answer(false));
  f.run(20 * kSecond);
  HelloPacket refusal = f.answer();
  refusal.refusal = Refusal::TableFull;
  refusal.lanes.clear();
  f.reply(refusal);
  CHECK(f.status().state == PeerState::Refused);
  CHECK_THAT(f.status().reason, ContainsSubstring("h3/rxe0 at 10.0.3.2:47910") && ContainsSubstring("table is full"));
  CHECK(f.found.back().info.lanes.empty());
  f.run(5 * kSecond);
  refusal = f.answer();
  refusal.refusal = Refusal::OtherTransport;
  refusal.transport = WireTransport::Udp;
  f.reply(refusal);
  CHECK_THAT(f.status().reason, ContainsSubstring("answers over UDP") && ContainsSubstring("probes over RDMA"));
}

TEST_CASE(
    "hello: ends whose GIDs have no way to each other are told apart in words, with both (uccl 803: compare ends)",
    "[ping]") {
  struct Row {
    const char* own;
    const char* theirs;
    const char* why;  // empty: fits
  };
  const Row rows[] = {
      {"10.0.1.2", "fd00::3", "no way between an IPv4 and an IPv6 GID"},
      {"fd00::1", "10.0.3.2", "no way between an IPv4 and an IPv6 GID"},
      {"fe80::1", "fd00::3", "no way between a link-local and a routed GID"},
      {"fd00::1", "fe80::3", "no way between a link-local and a routed GID"},
      {"169.254.7.1", "10.0.3.2", "no way between a link-local and a routed GID"},
      {"fe80::1", "fe80::3", ""},
      {"169.254.7.1", "169.254.7.3", ""},
      {"fd00::1", "2001:db8::3", ""},
      {"10.0.1.2", "192.168.3.2", ""},
  };
  for (const Row& row : rows) {
    INFO(row.own << " and " << row.theirs);
    Fixture f;
    f.options.gid = *model::Gid::parse(row.own);
    f.start();
    f.add();
    f.run(0);
    HelloPacket answer = f.answer(false);
    answer.gid = *model::Gid::parse(row.theirs);
    f.reply(answer);
    if (*row.why == '\0') {
      CHECK(f.status().state == PeerState::Ready);
      CHECK(f.found.size() == 1);
      continue;
    }
    CHECK(f.status().state == PeerState::Refused);
    CHECK_THAT(f.status().reason, ContainsSubstring(row.why) && ContainsSubstring(row.own) &&
                                      ContainsSubstring(row.theirs) && ContainsSubstring("h3/rxe0") &&
                                      ContainsSubstring("rxe0 (10.0.1.2)"));
    CHECK(f.found.empty());  // nothing is sent, so nothing can be lost
    f.run(5 * kSecond);
    f.reply(f.answer(false));  // from 10.0.3.2 again
    const bool fits = std::string(row.own) == "10.0.1.2";
    CHECK((f.status().state == PeerState::Ready) == fits);
  }
}

TEST_CASE("hello: a peer whose GID comes to have no way to ours is probed no more", "[ping]") {
  Fixture f;
  f.add();
  f.run(0);
  f.reply(f.answer(false));
  CHECK(f.status().state == PeerState::Ready);
  f.run(20 * kSecond);
  HelloPacket moved = f.answer();
  moved.gid = *model::Gid::parse("fe80::3");
  f.reply(moved);
  CHECK(f.status().state == PeerState::Refused);
  CHECK(f.found.back().info.lanes.empty());
}

TEST_CASE("hello: many targets are asked side by side within a budget, and all of them (sichek PR 110)", "[ping]") {
  Fixture f;
  f.options.max_hellos_per_s = 50;
  f.start();
  for (int i = 0; i < 200; ++i) f.add("t" + std::to_string(i));
  f.run(0);
  CHECK(f.asked.size() <= 13);
  f.run(10 * kSecond);
  std::vector<std::uint64_t> sessions;
  for (const HelloPacket& hello : f.asked) sessions.push_back(hello.session);
  std::sort(sessions.begin(), sessions.end());
  sessions.erase(std::unique(sessions.begin(), sessions.end()), sessions.end());
  CHECK(sessions.size() == 200);
  CHECK(f.asked.size() <= 13 + 510);
}

TEST_CASE("hello: a removed target is asked no more", "[ping]") {
  Fixture f;
  const std::uint64_t session = f.add();
  f.run(0);
  f.client->remove(session);
  f.run(10 * kSecond);
  CHECK(f.asked.size() == 1);
  CHECK(f.client->statuses().empty());
}
