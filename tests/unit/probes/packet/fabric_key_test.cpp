#include "probes/packet/fabric_key.h"

#include "tests/unit/catch.h"

using weft::probes::FabricKey;
using weft::probes::Mac;

namespace {
const std::string kHex(64, 'a');
const std::vector<std::uint8_t> kBytes{1, 2, 3, 4};
}  // namespace

TEST_CASE("fabric key: anything but 64 hex digits is refused, and the text does not leak into the message",
          "[packet]") {
  const std::string text =
      GENERATE(as<std::string>{}, "", "secret", std::string(63, 'a'), std::string(65, 'a'), std::string(63, 'a') + "g");
  const auto key = FabricKey::parse(text);
  REQUIRE_FALSE(key);
  CHECK(key.error().message().find("secret") == std::string::npos);
}

TEST_CASE("fabric key: a tag of another key, of other bytes or of another length does not verify", "[packet]") {
  const FabricKey key = *FabricKey::parse(kHex);
  const Mac tag = key.mac(kBytes);
  CHECK_FALSE(FabricKey().verify(kBytes, tag));
  CHECK_FALSE(key.verify(std::vector<std::uint8_t>{1, 2, 3, 5}, tag));
  CHECK_FALSE(key.verify(kBytes, std::span(tag).first(8)));
  CHECK(key.verify(kBytes, tag));
}

TEST_CASE("fabric key: white space around the digits is fine, and a parsed key is not the default", "[packet]") {
  const auto key = FabricKey::parse(" " + kHex + "\n");
  REQUIRE(key);
  CHECK_FALSE(key->is_default());
  CHECK(FabricKey().is_default());
}
