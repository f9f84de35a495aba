#include "lib/model/device.h"

#include "tests/unit/catch.h"

using weft::model::Gid;

TEST_CASE("gid: text that is no address is malformed", "[model]") {
  const char* text = GENERATE("", "10.0.1", "zz::1", "10.0.1.2.3", "fe80:::1", "1234");
  CHECK_FALSE(Gid::parse(text));
}

TEST_CASE("gid: addresses of nobody and of many are no address of a host", "[model]") {
  const char* text = GENERATE("0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "239.255.255.255", "255.255.255.255", "ff02::1");
  REQUIRE(Gid::parse(text));
  CHECK_FALSE(Gid::parse(text)->is_unicast());
  const auto refused = Gid::parse_unicast(text);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().context == "'" + std::string(text) + "' is no address of one host");
}

TEST_CASE("gid: addresses of hosts are, by whatever family", "[model]") {
  const char* text = GENERATE("10.0.1.2", "127.0.0.1", "223.255.255.1", "240.0.0.1", "fe80::1", "fd00::1", "::1");
  const auto gid = Gid::parse_unicast(text);
  REQUIRE(gid);
  CHECK(gid->to_string() == text);
}

TEST_CASE("gid: IPv4-mapped, link-local and zero ones are told apart", "[model]") {
  const Gid v4 = *Gid::parse("10.0.1.2");
  CHECK(v4.is_ipv4_mapped());
  CHECK(v4.to_string() == "10.0.1.2");
  CHECK(*Gid::parse("0000:0000:0000:0000:0000:ffff:0a00:0102") == v4);
  const Gid local = *Gid::parse("fe80::5054:ff:fe00:1");
  CHECK(local.is_link_local());
  CHECK_FALSE(local.is_ipv4_mapped());
  CHECK(Gid::parse("::")->is_zero());
  CHECK(*Gid::parse(local.to_string()) == local);
}
