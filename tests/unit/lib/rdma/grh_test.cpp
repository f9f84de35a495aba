#include "lib/rdma/grh.h"

#include <algorithm>
#include <array>
#include <random>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::rdma;

namespace {

using Bytes = std::array<std::uint8_t, kGrhBytes>;

void set_checksum(Bytes& bytes) {
  bytes[30] = bytes[31] = 0;
  std::uint32_t sum = 0;
  for (std::size_t i = 20; i < 40; i += 2) sum += (std::uint32_t{bytes[i]} << 8) + bytes[i + 1];
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  sum = ~sum;
  bytes[30] = static_cast<std::uint8_t>(sum >> 8);
  bytes[31] = static_cast<std::uint8_t>(sum);
}

Bytes ipv4(std::uint8_t tos, std::uint8_t ttl, std::mt19937* random = nullptr) {
  Bytes bytes{};
  if (random != nullptr)
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>((*random)());
  bytes[20] = 0x45;
  bytes[21] = tos;
  bytes[28] = ttl;
  bytes[29] = 17;
  const std::array<std::uint8_t, 8> addresses{10, 0, 1, 2, 10, 0, 3, 2};
  std::copy(addresses.begin(), addresses.end(), bytes.begin() + 32);
  set_checksum(bytes);
  return bytes;
}

}  // namespace

TEST_CASE("a GRH area that is too short gives nothing", "[rdma]") {
  const Bytes bytes = ipv4(2, 61);
  for (std::size_t size = 0; size < kGrhBytes; ++size) {
    CHECK_FALSE(parse_grh(std::span(bytes).first(size), HeaderKind::Ipv4));
    CHECK_FALSE(parse_grh(std::span(bytes).first(size), HeaderKind::Ipv6));
  }
}

TEST_CASE("any single flipped bit of an IPv4 header makes TOS and TTL absent, never wrong", "[rdma]") {
  const Bytes good = ipv4(2, 61);
  for (std::size_t bit = 20 * 8; bit < 40 * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
    INFO("bit " << bit);
    CHECK_FALSE(parse_grh(bad, HeaderKind::Ipv4));
  }
}

TEST_CASE("an IPv4 header with options, or of another protocol, is refused though its checksum holds", "[rdma]") {
  Bytes options = ipv4(2, 61);
  options[20] = 0x46;
  set_checksum(options);
  CHECK_FALSE(parse_grh(options, HeaderKind::Ipv4));
  Bytes tcp = ipv4(2, 61);
  tcp[29] = 6;
  set_checksum(tcp);
  CHECK_FALSE(parse_grh(tcp, HeaderKind::Ipv4));
}

TEST_CASE("random bytes never pass for IPv4 unless the header check holds", "[rdma]") {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes;
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    if (parse_grh(bytes, HeaderKind::Ipv4)) CHECK(bytes[20] == 0x45);
  }
}

TEST_CASE("garbage in the first 20 bytes does not matter: TOS, TTL and addresses come from bytes 20 to 39", "[rdma]") {
  std::mt19937 random(1);
  for (unsigned i = 0; i < 2'000; ++i) {
    const auto tos = static_cast<std::uint8_t>(random());
    const auto ttl = static_cast<std::uint8_t>(random());
    const auto header = parse_grh(ipv4(tos, ttl, &random), HeaderKind::Ipv4);
    REQUIRE(header);
    CHECK(header->tos == tos);
    CHECK(header->hop_limit == ttl);
    CHECK(header->source.to_string() == "10.0.1.2");
    CHECK(header->destination.to_string() == "10.0.3.2");
  }
}

TEST_CASE("garbage that looks like IPv6 in the first bytes does not hide the IPv4 header (version nibble 6)",
          "[rdma]") {
  Bytes bytes = ipv4(3, 60);
  bytes[0] = 0x60;
  bytes[6] = 17;
  const auto header = parse_grh(bytes, HeaderKind::Ipv4);
  REQUIRE(header);
  CHECK(header->tos == 3);
}

TEST_CASE("an IPv6 header gives traffic class and hop limit across its nibbles", "[rdma]") {
  Bytes bytes{};
  CHECK_FALSE(parse_grh(bytes, HeaderKind::Ipv6));
  for (unsigned tos = 0; tos < 256; ++tos) {
    bytes[0] = static_cast<std::uint8_t>(0x60 | (tos >> 4));
    bytes[1] = static_cast<std::uint8_t>((tos << 4) | 0x0F);  // flow label bits beside it
    bytes[6] = 17;
    bytes[7] = 59;
    bytes[8] = 0xFD;
    bytes[39] = 1;
    const auto header = parse_grh(bytes, HeaderKind::Ipv6);
    REQUIRE(header);
    CHECK(header->tos == tos);
    CHECK(header->hop_limit == 59);
    CHECK(header->source.raw[0] == 0xFD);
    CHECK(header->destination.raw[15] == 1);
  }
  bytes[6] = 6;
  CHECK_FALSE(parse_grh(bytes, HeaderKind::Ipv6));
}
