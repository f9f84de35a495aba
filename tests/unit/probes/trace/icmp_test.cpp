#include "probes/trace/icmp.h"

#include <random>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

namespace {

model::Gid gid(const char* text) { return model::Gid::parse(text).value(); }

TraceProbe probe4() {
  TraceProbe p;
  p.source = gid("10.0.1.2");
  p.destination = gid("10.0.3.2");
  p.source_port = 49500;
  p.destination_port = 4791;
  p.tos = 0x6a;
  p.ttl = 2;
  p.token = 0x1234;
  return p;
}

TraceProbe probe6() {
  TraceProbe p = probe4();
  p.source = gid("fd00:1::2");
  p.destination = gid("fd00:3::2");
  return p;
}

void fix_checksum(std::vector<std::uint8_t>& packet) {
  packet[22] = packet[23] = 0;
  const std::uint16_t sum = internet_checksum({packet.data() + 20, packet.size() - 20});
  packet[22] = static_cast<std::uint8_t>(sum >> 8);
  packet[23] = static_cast<std::uint8_t>(sum);
}

// What a router does with a packet whose TTL ended: quotes it, TTL 0 and a new header checksum.
std::vector<std::uint8_t> answer4(const TraceProbe& probe, const char* router, std::uint8_t type = 11,
                                  std::uint8_t code = 0, std::size_t quote_bytes = 1000) {
  auto quote = build_trace_packet(probe);
  quote[8] = 0;
  quote.resize(std::min(quote.size(), quote_bytes));
  std::vector<std::uint8_t> packet(28 + quote.size());
  packet[0] = 0x45;
  packet[9] = 1;
  std::copy_n(gid(router).raw.begin() + 12, 4, packet.begin() + 12);
  packet[20] = type;
  packet[21] = code;
  std::copy(quote.begin(), quote.end(), packet.begin() + 28);
  fix_checksum(packet);
  return packet;
}

std::vector<std::uint8_t> answer6(const TraceProbe& probe, std::uint8_t type = 3, std::uint8_t code = 0) {
  const auto quote = build_trace_packet(probe);
  std::vector<std::uint8_t> message(8 + quote.size());
  message[0] = type;
  message[1] = code;
  std::copy(quote.begin(), quote.end(), message.begin() + 8);
  return message;
}

std::optional<IcmpReject> rejected(const IcmpParse& parse) {
  const auto* reason = std::get_if<IcmpReject>(&parse);
  return reason ? std::optional(*reason) : std::nullopt;
}

}  // namespace

TEST_CASE("an ICMP error that quotes our packet gives back its ports and token", "[trace]") {
  const IcmpParse parsed = parse_icmp4(answer4(probe4(), "10.1.11.2"));
  REQUIRE(std::holds_alternative<IcmpAnswer>(parsed));
  const auto& answer = std::get<IcmpAnswer>(parsed);
  CHECK(answer.kind == IcmpKind::TimeExceeded);
  CHECK(answer.responder == gid("10.1.11.2"));
  CHECK(answer.source == gid("10.0.1.2"));
  CHECK(answer.destination == gid("10.0.3.2"));
  CHECK(answer.source_port == 49500);
  CHECK(answer.destination_port == 4791);
  CHECK(answer.token == 0x1234);
}

TEST_CASE("a router that quotes only 8 bytes of UDP, as RFC 792 asks, is enough", "[trace]") {
  const IcmpParse parsed = parse_icmp4(answer4(probe4(), "10.1.11.2", 11, 0, 28));
  REQUIRE(std::holds_alternative<IcmpAnswer>(parsed));
  CHECK(std::get<IcmpAnswer>(parsed).token == 0x1234);
  CHECK(rejected(parse_icmp4(answer4(probe4(), "10.1.11.2", 11, 0, 27))) == IcmpReject::Truncated);
}

TEST_CASE("port unreachable is told from time exceeded", "[trace]") {
  const IcmpParse parsed = parse_icmp4(answer4(probe4(), "10.0.3.2", 3, 3));
  REQUIRE(std::holds_alternative<IcmpAnswer>(parsed));
  CHECK(std::get<IcmpAnswer>(parsed).kind == IcmpKind::Unreachable);
  CHECK(std::get<IcmpAnswer>(parsed).code == 3);
}

TEST_CASE("any other ICMP is no answer (sichek PR 110)", "[trace]") {
  CHECK(rejected(parse_icmp4(answer4(probe4(), "10.1.11.2", 0))) == IcmpReject::OtherType);      // echo reply
  CHECK(rejected(parse_icmp4(answer4(probe4(), "10.1.11.2", 5))) == IcmpReject::OtherType);      // redirect
  CHECK(rejected(parse_icmp4(answer4(probe4(), "10.1.11.2", 11, 1))) == IcmpReject::OtherType);  // reassembly
  CHECK(rejected(parse_icmp6(answer6(probe6(), 129), gid("fd00::1"))) == IcmpReject::OtherType);
}

TEST_CASE("a quote of TCP, of a later fragment or with a bad checksum is refused by reason", "[trace]") {
  auto packet = answer4(probe4(), "10.1.11.2");
  packet[28 + 9] = 6;
  CHECK(rejected(parse_icmp4(packet)) == IcmpReject::BadChecksum);
  fix_checksum(packet);
  CHECK(rejected(parse_icmp4(packet)) == IcmpReject::QuoteNotUdp);
  packet = answer4(probe4(), "10.1.11.2");
  packet[28 + 7] = 1;
  fix_checksum(packet);
  CHECK(rejected(parse_icmp4(packet)) == IcmpReject::QuoteMalformed);
  auto message = answer6(probe6());
  message[8 + 6] = 6;
  CHECK(rejected(parse_icmp6(message, gid("fd00::1"))) == IcmpReject::QuoteNotUdp);
}

TEST_CASE("IPv6: the token is in the quoted payload; a quote without it has none", "[trace]") {
  auto message = answer6(probe6());
  IcmpParse parsed = parse_icmp6(message, gid("fd00:9::1"));
  REQUIRE(std::holds_alternative<IcmpAnswer>(parsed));
  CHECK(std::get<IcmpAnswer>(parsed).token == 0x1234);
  CHECK(std::get<IcmpAnswer>(parsed).responder == gid("fd00:9::1"));
  CHECK(std::get<IcmpAnswer>(parsed).source_port == 49500);
  message.resize(8 + 48);
  parsed = parse_icmp6(message, gid("fd00:9::1"));
  REQUIRE(std::holds_alternative<IcmpAnswer>(parsed));
  CHECK(std::get<IcmpAnswer>(parsed).token == 0);
}

TEST_CASE("the packet carries what decides the path, and right checksums", "[trace]") {
  const auto v4 = build_trace_packet(probe4());
  CHECK(v4[1] == 0x6a);
  CHECK(v4[8] == 2);
  CHECK(internet_checksum({v4.data(), 20}) == 0);
  std::uint32_t pseudo = 17 + 16;
  for (std::size_t i = 12; i < 20; i += 2) pseudo += static_cast<std::uint32_t>(v4[i] << 8 | v4[i + 1]);
  CHECK(internet_checksum({v4.data() + 20, 16}, pseudo) == 0);
  CHECK(v4.size() - 28 < 12);  // shorter than a RoCE transport header: hosts drop it unread
  const auto v6 = build_trace_packet(probe6());
  CHECK((v6[0] << 8 | v6[1]) == 0x66a0);
  CHECK(v6[7] == 2);
  pseudo = 17 + 16;
  for (std::size_t i = 8; i < 40; i += 2) pseudo += static_cast<std::uint32_t>(v6[i] << 8 | v6[i + 1]);
  CHECK(internet_checksum({v6.data() + 40, 16}, pseudo) == 0);
}

TEST_CASE("cut at any length, an answer is whole or refused, and never another answer", "[trace][property]") {
  const auto whole4 = answer4(probe4(), "10.1.11.2");
  const auto whole6 = answer6(probe6());
  const auto expected6 = std::get<IcmpAnswer>(parse_icmp6(whole6, gid("fd00::1")));
  for (std::size_t size = 0; size < whole4.size(); ++size) {
    const std::vector<std::uint8_t> cut(whole4.begin(), whole4.begin() + static_cast<std::ptrdiff_t>(size));
    INFO("IPv4 bytes " << size);
    CHECK(rejected(parse_icmp4(cut)).has_value());  // the checksum covers all of it
  }
  for (std::size_t size = 0; size < whole6.size(); ++size) {
    const std::vector<std::uint8_t> cut(whole6.begin(), whole6.begin() + static_cast<std::ptrdiff_t>(size));
    INFO("IPv6 bytes " << size);
    const IcmpParse parsed = parse_icmp6(cut, gid("fd00::1"));
    if (const auto* answer = std::get_if<IcmpAnswer>(&parsed)) {
      IcmpAnswer want = expected6;
      if (size < whole6.size()) want.token = 0;
      CHECK(*answer == want);
    }
  }
}

TEST_CASE("one flipped bit is refused, or changes nothing that is matched (the ICMP checksum covers the quote)",
          "[trace][property]") {
  const auto whole = answer4(probe4(), "10.1.11.2");
  const auto expected = std::get<IcmpAnswer>(parse_icmp4(whole));
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    auto flipped = whole;
    flipped[bit / 8] = static_cast<std::uint8_t>(flipped[bit / 8] ^ (1U << bit % 8));
    const IcmpParse parsed = parse_icmp4(flipped);
    if (const auto* answer = std::get_if<IcmpAnswer>(&parsed)) {
      INFO("bit " << bit);
      REQUIRE(bit < 20 * 8);  // the outer header, whose checksum the kernel has checked
      IcmpAnswer want = expected;
      want.responder = answer->responder;
      CHECK(*answer == want);
    }
  }
}

TEST_CASE("random bytes never make the parser read outside or crash", "[trace][property]") {
  std::mt19937 random(7);
  unsigned answers = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::uint8_t> bytes(random() % 120);
    for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
    if (!bytes.empty() && round % 2 == 0) bytes[0] = static_cast<std::uint8_t>(0x40 | (random() % 16));
    if (bytes.size() > 20 && round % 3 == 0) bytes[9] = 1, bytes[20] = 11;
    answers += std::holds_alternative<IcmpAnswer>(parse_icmp4(bytes));
    (void)parse_icmp6(bytes, gid("fd00::1"));
  }
  CHECK(answers == 0);
}
