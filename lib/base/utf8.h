// Text from outside made safe to log, export and store. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// True for well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF) without control characters.
bool is_clean_text(std::string_view text);
// The same text with every malformed byte and control character replaced by '?', cut to max_bytes at a character
// boundary. Clean text within the bound comes back unchanged.
std::string clean_text(std::string_view text, std::size_t max_bytes);

}  // namespace weft
