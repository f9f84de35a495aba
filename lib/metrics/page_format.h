// Which of the two text formats a scraper wants. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::metrics {

enum class PageFormat : std::uint8_t {
  Text,        // Prometheus text 0.0.4
  OpenMetrics  // OpenMetrics 1.0
};

// accept: the value of the Accept header. OpenMetrics where it is named, in a version that is spoken here, and no less
// wanted than text; text in every other case: no header, wildcards, other types, what cannot be read.
PageFormat choose_format(std::string_view accept);
// The value of Content-Type.
std::string_view content_type(PageFormat format);

}  // namespace weft::metrics
