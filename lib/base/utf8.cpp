#include "lib/base/utf8.h"

#include <cstdint>

namespace weft {
namespace {

// Length of the well-formed character at the front, 0 when there is none (RFC 3629, table 3-7 of Unicode).
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const auto continues = [&](std::size_t i, std::uint8_t low = 0x80, std::uint8_t high = 0xbf) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const std::uint8_t low = first == 0xe0 ? 0xa0 : 0x80;
    const std::uint8_t high = first == 0xed ? 0x9f : 0xbf;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const std::uint8_t low = first == 0xf0 ? 0x90 : 0x80;
    const std::uint8_t high = first == 0xf4 ? 0x8f : 0xbf;
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

// C0, DEL and C1: C1 is 0xc2 0x80..0x9f in UTF-8 and moves terminals too.
bool is_control(std::string_view character) {
  const auto first = static_cast<std::uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return character.size() == 2 && first == 0xc2 && static_cast<std::uint8_t>(character[1]) < 0xa0;
}

}  // namespace

bool is_clean_text(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0 || is_control(text.substr(0, length))) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string clean_text(std::string_view text, std::size_t max_bytes) {
  std::string out;
  while (!text.empty() && out.size() < max_bytes) {
    const std::size_t length = character_length(text);
    if (length == 0 || is_control(text.substr(0, length))) {
      out.push_back('?');
    } else {
      if (out.size() + length > max_bytes) break;
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace weft
