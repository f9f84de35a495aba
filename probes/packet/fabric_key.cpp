#include "probes/packet/fabric_key.h"

#include <sodium.h>

#include <algorithm>
#include <string_view>

namespace weft::probes {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

FabricKey::FabricKey() {
  // Picks the fastest hash this processor has. It may be called often and by several threads, and fails only for want
  // of random numbers, which no tag needs.
  (void)!sodium_init();
  static constexpr std::string_view kName = "weft fabric without a secret key";
  static_assert(kName.size() == 32);
  std::copy(kName.begin(), kName.end(), bytes_.begin());
}

Result<FabricKey> FabricKey::parse(const std::string& hex) {
  const char* kSpace = " \t\r\n";
  const std::size_t first = hex.find_first_not_of(kSpace);
  const std::size_t last = hex.find_last_not_of(kSpace);
  const auto bad =
      make_error(Error::Kind::Invalid, "a fabric key is 64 hexadecimal digits; make one with: openssl rand -hex 32");
  if (first == std::string::npos || last - first + 1 != 64) return bad;
  FabricKey key;
  for (std::size_t i = 0; i < 32; ++i) {
    const int high = hex_digit(hex[first + 2 * i]);
    const int low = hex_digit(hex[first + 2 * i + 1]);
    if (high < 0 || low < 0) return bad;
    key.bytes_[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  key.is_default_ = false;
  return key;
}

Result<FabricKey> FabricKey::load(const FileReader& files, const std::string& path) {
  const auto text = files.read(path, 4096);
  if (!text) return text.error();
  auto key = parse(*text);
  if (!key) return make_error(Error::Kind::Invalid, path + ": " + key.error().context);
  return key;
}

Mac FabricKey::mac(std::span<const std::uint8_t> bytes) const {
  Mac tag{};
  crypto_generichash(tag.data(), tag.size(), bytes.data(), bytes.size(), bytes_.data(), bytes_.size());
  return tag;
}

bool FabricKey::verify(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> tag) const {
  if (tag.size() != kMacBytes) return false;
  const Mac expected = mac(bytes);
  return sodium_memcmp(expected.data(), tag.data(), kMacBytes) == 0;
}

}  // namespace weft::probes
