#include "probes/packet/packet.h"

#include <cstring>

#include "tests/unit/catch.h"

using namespace weft::probes;
namespace model = weft::model;

namespace {

FabricKey key_of(char digit) { return *FabricKey::parse(std::string(64, digit)); }

ProbePacket sample_probe() {
  ProbePacket packet;
  packet.session = 0x1122334455667788;
  packet.sequence = 42;
  packet.epoch = 0xdeadbeefcafe;
  packet.prober_number = 0x0102ff;
  packet.responder_number = 0x0a0b0c;
  packet.forward_port = 49152;
  packet.return_port = 65535;
  packet.traffic_class = 0x68;
  return packet;
}

ProbePacket sample_ack() {
  ProbePacket packet = sample_probe();
  packet.type = PacketType::Ack;
  packet.tos = 0x03;
  packet.hop_limit = 61;
  packet.responder_delay_ns = 12345;
  packet.received = {40, 43, {0b1011, 0x8000000000000000}};
  return packet;
}

HelloPacket sample_hello() {
  HelloPacket packet;
  packet.session = 7;
  packet.nonce = 8;
  packet.epoch = 9;
  packet.gid = *model::Gid::parse("10.0.1.2");
  packet.name = "h1/rxe0";
  packet.transport = WireTransport::Udp;
  packet.lanes = {{17, 49152}, {18, 49153}};
  return packet;
}

HelloPacket sample_answer() {
  HelloPacket packet = sample_hello();
  packet.type = PacketType::HelloAck;
  packet.lease_ms = 60000;
  packet.known = packet.two_acks = packet.any_port = true;
  return packet;
}

std::vector<std::uint8_t> bytes_of(const ProbePacket& packet, const FabricKey& key, std::size_t size = kProbeBytes) {
  std::vector<std::uint8_t> out(size);
  REQUIRE(encode(packet, size, key, out) == size);
  return out;
}

std::vector<std::uint8_t> bytes_of(const HelloPacket& packet, const FabricKey& key) {
  std::vector<std::uint8_t> out(kHelloBytes);
  REQUIRE(encode(packet, key, out) == kHelloBytes);
  return out;
}

// Makes the tag right again, so that only the rule under test can refuse.
void sign(std::vector<std::uint8_t>& bytes, const FabricKey& key) {
  const Mac mac = key.mac(std::span(bytes).first(bytes.size() - kMacBytes));
  std::copy(mac.begin(), mac.end(), bytes.end() - kMacBytes);
}

template <typename T>
Reject why(const Parsed<T>& parsed) {
  REQUIRE_FALSE(parsed.has_value());
  return parsed.error();
}

}  // namespace

TEST_CASE("packet: each way of being malformed has its own reason", "[packet]") {
  const FabricKey key = key_of('a');
  auto bytes = bytes_of(sample_probe(), key);
  CHECK(why(parse_probe({}, key)) == Reject::TooShort);
  CHECK(why(parse_probe(std::span(bytes).first(kProbeBytes - 1), key)) == Reject::TooShort);

  SECTION("magic") {
    bytes[0] = 'X';
    CHECK(why(parse_probe(bytes, key)) == Reject::BadMagic);
  }
  SECTION("version, even when signed by its own rules") {
    bytes[4] = kPacketVersion + 1;
    sign(bytes, key);
    CHECK(why(parse_probe(bytes, key)) == Reject::BadVersion);
  }
  SECTION("type") {
    bytes[5] = 6;
    sign(bytes, key);
    CHECK(why(parse_probe(bytes, key)) == Reject::UnknownType);
    bytes[5] = 0;
    sign(bytes, key);
    CHECK(why(parse_probe(bytes, key)) == Reject::UnknownType);
  }
  SECTION("a hello is no probe and a probe no hello") {
    CHECK(why(parse_probe(bytes_of(sample_hello(), key), key)) == Reject::UnknownType);
    bytes.resize(kHelloBytes);
    CHECK(why(parse_hello(bytes, key)) == Reject::UnknownType);
  }
  SECTION("length") {
    bytes[7] = kProbeBytes + 1;
    sign(bytes, key);
    CHECK(why(parse_probe(bytes, key)) == Reject::BadLength);
    std::vector<std::uint8_t> longer = bytes_of(sample_probe(), key);
    longer.push_back(0);
    CHECK(why(parse_probe(longer, key)) == Reject::BadLength);
    std::vector<std::uint8_t> huge(kMaxProbeBytes + 1, 0);
    std::copy(bytes.begin(), bytes.begin() + 6, huge.begin());
    CHECK(why(parse_probe(huge, key)) == Reject::BadLength);
  }
  SECTION("key") { CHECK(why(parse_probe(bytes, key_of('b'))) == Reject::BadMac); }
  SECTION("fields that must be empty in a probe") {
    for (const std::size_t at : {44, 45, 46, 48, 56, 64, 72, 87}) {
      auto changed = bytes;
      changed[at] = 1;
      sign(changed, key);
      CHECK(why(parse_probe(changed, key)) == Reject::BadField);
    }
  }
  SECTION("unknown flags, sequence zero and padding that is not zero") {
    auto ack = bytes_of(sample_ack(), key, 200);
    for (const auto& [at, value] : {std::pair<std::size_t, int>{44, 0x10}, {150, 1}}) {
      auto changed = ack;
      changed[at] = static_cast<std::uint8_t>(changed[at] | value);
      sign(changed, key);
      CHECK(why(parse_probe(changed, key)) == Reject::BadField);
    }
    std::memset(ack.data() + 16, 0, 8);
    sign(ack, key);
    CHECK(why(parse_probe(ack, key)) == Reject::BadField);
  }
  SECTION("an acknowledgement that claims to have seen less than what it answers") {
    ProbePacket ack = sample_ack();
    ack.received.highest = ack.sequence - 1;
    CHECK(why(parse_probe(bytes_of(ack, key), key)) == Reject::BadField);
    ack = sample_ack();
    ack.received.count = 0;
    CHECK(why(parse_probe(bytes_of(ack, key), key)) == Reject::BadField);
  }
}

TEST_CASE("packet: hello fields that break the rules are refused", "[packet]") {
  const FabricKey key = key_of('a');
  const auto good = bytes_of(sample_hello(), key);
  // transport, flags, refusal, name length, lease, lanes, reserved, name, name padding, lane padding, tail
  const std::pair<std::size_t, int> changes[] = {{48, 2},   {49, 8},  {49, 1},  {50, 3}, {50, 1},   {51, 129},
                                                 {52, 1},   {56, 1},  {57, 65}, {58, 1}, {60, ' '}, {60, 0x7f},
                                                 {67, 'x'}, {200, 1}, {571, 1}, {623, 1}};
  for (const auto& [at, value] : changes) {
    auto changed = good;
    changed[at] = static_cast<std::uint8_t>(value);
    sign(changed, key);
    INFO("byte " << at << " = " << value);
    CHECK(why(parse_hello(changed, key)) == Reject::BadField);
  }
  auto nowhere = good;
  std::memset(nowhere.data() + 32, 0, 16);
  sign(nowhere, key);
  CHECK(why(parse_hello(nowhere, key)) == Reject::BadField);
  CHECK(why(parse_hello(good, key_of('b'))) == Reject::BadMac);
}

TEST_CASE("packet: every truncation is refused, as is every longer packet", "[packet]") {
  const FabricKey key;
  const auto probe = bytes_of(sample_ack(), key, 300);
  const auto hello = bytes_of(sample_answer(), key);
  for (std::size_t size = 0; size < probe.size(); ++size) {
    // A copy of exactly that size, so that a read past the end is one the sanitizer sees.
    const std::vector<std::uint8_t> cut(probe.begin(), probe.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_FALSE(parse_probe(cut, key).has_value());
  }
  for (std::size_t size = 0; size < hello.size(); ++size) {
    const std::vector<std::uint8_t> cut(hello.begin(), hello.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_FALSE(parse_hello(cut, key).has_value());
  }
  auto longer = hello;
  longer.push_back(0);
  CHECK(why(parse_hello(longer, key)) == Reject::BadLength);
}

TEST_CASE("packet: every flip of a single bit is refused", "[packet]") {
  const FabricKey key = key_of('c');
  for (const ProbePacket& packet : {sample_probe(), sample_ack()}) {
    const auto good = bytes_of(packet, key, 128);
    for (std::size_t at = 0; at < good.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        auto changed = good;
        changed[at] = static_cast<std::uint8_t>(changed[at] ^ 1 << bit);
        CHECK_FALSE(parse_probe(changed, key).has_value());
      }
    }
  }
  const auto good = bytes_of(sample_hello(), key);
  for (std::size_t at = 0; at < good.size(); ++at) {
    auto changed = good;
    changed[at] = static_cast<std::uint8_t>(changed[at] ^ 0x40);
    CHECK_FALSE(parse_hello(changed, key).has_value());
  }
}

TEST_CASE("packet: what cannot be written is not written", "[packet]") {
  const FabricKey key;
  std::vector<std::uint8_t> out(8192);
  CHECK(encode(sample_probe(), kProbeBytes - 1, key, out) == 0);
  CHECK(encode(sample_probe(), kMaxProbeBytes + 1, key, out) == 0);
  CHECK(encode(sample_probe(), 200, key, std::span(out).first(199)) == 0);
  CHECK(encode(sample_hello(), key, std::span(out).first(kHelloBytes - 1)) == 0);
  HelloPacket hello = sample_hello();
  hello.name = "h1 rxe0";
  CHECK(encode(hello, key, out) == 0);
  hello.name = std::string(kMaxHelloNameBytes + 1, 'h');
  CHECK(encode(hello, key, out) == 0);
}

TEST_CASE("packet: comes back as it was written, at every size", "[packet]") {
  const FabricKey key = key_of('d');
  for (std::size_t size = kProbeBytes; size <= kMaxProbeBytes; size += 61) {
    for (ProbePacket packet : {sample_probe(), sample_ack()}) {
      const auto parsed = parse_probe(bytes_of(packet, key, size), key);
      REQUIRE(parsed.has_value());
      CHECK(*parsed == packet);
    }
  }
  ProbePacket second = sample_ack();
  second.type = PacketType::Ack2;
  second.tos.reset();
  second.hop_limit.reset();
  CHECK(*parse_probe(bytes_of(second, key), key) == second);
  ProbePacket waiting = sample_ack();
  waiting.responder_delay_ns.reset();
  waiting.second_follows = true;
  CHECK(*parse_probe(bytes_of(waiting, key), key) == waiting);
  for (const HelloPacket& hello : {sample_hello(), sample_answer()}) {
    const auto parsed = parse_hello(bytes_of(hello, key), key);
    REQUIRE(parsed.has_value());
    CHECK(*parsed == hello);
  }
}

TEST_CASE("packet: a hello with more lanes than fit carries the first of them", "[packet]") {
  HelloPacket hello = sample_hello();
  hello.lanes.clear();
  for (std::uint32_t i = 0; i < kMaxHelloLanes + 10; ++i) hello.lanes.push_back({i, static_cast<std::uint16_t>(i)});
  const FabricKey key;
  const auto parsed = parse_hello(bytes_of(hello, key), key);
  REQUIRE(parsed.has_value());
  CHECK(parsed->lanes.size() == kMaxHelloLanes);
  CHECK(parsed->lanes.back().number == kMaxHelloLanes - 1);
}

TEST_CASE("packet: the received map speaks for the last 128 sequences", "[packet]") {
  ReceiveState state{3, 200, {0b101, std::uint64_t{1} << 63}};
  CHECK(state.covers(200));
  CHECK(state.has(200));
  CHECK_FALSE(state.has(199));
  CHECK(state.has(198));
  CHECK(state.has(200 - 127));
  CHECK_FALSE(state.covers(200 - 128));
  CHECK_FALSE(state.covers(201));
}

TEST_CASE("packet: every reason has a label of its own", "[packet]") {
  RejectCounters counters;
  counters.count(Reject::BadMac);
  counters.count(Reject::BadMac);
  const auto rows = counters.list();
  REQUIRE(rows.size() == kRejectReasons);
  std::vector<std::string> names;
  for (const auto& [name, count] : rows) {
    CHECK(count == (name == "bad_mac" ? 2 : 0));
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  CHECK(std::unique(names.begin(), names.end()) == names.end());
  CHECK(counters.total() == 2);
}
