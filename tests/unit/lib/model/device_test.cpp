#include "lib/model/device.h"

#include "tests/unit/catch.h"

using weft::model::Gid;

TEST_CASE("gid: text that is no address is malformed", "[model]") {
  const char* text = GENERATE("", "10.0.1", "zz::1", "10.0.1.2.3", "fe80:::1", "1234");
  CHECK_FALSE(Gid::parse(text));
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
