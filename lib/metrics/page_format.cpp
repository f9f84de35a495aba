#include "lib/metrics/page_format.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace weft::metrics {
namespace {

// Takes what is before the next separator, without the blanks around it.
std::string_view next_part(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  const std::size_t first = part.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  part.remove_prefix(first);
  return part.substr(0, part.find_last_not_of(" \t") + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

// RFC 9110 12.4.2. What is no quality wants nothing.
double quality_of(std::string_view text) {
  double quality = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), quality, std::chars_format::fixed);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole && quality >= 0 && quality <= 1 ? quality : 0;
}

}  // namespace

PageFormat choose_format(std::string_view accept) {
  double text = 0, open_metrics = 0;
  while (!accept.empty()) {
    std::string_view entry = next_part(accept, ',');
    const std::string type = lower(next_part(entry, ';'));
    double quality = 1;
    std::string version;
    while (!entry.empty()) {
      const std::string parameter = lower(next_part(entry, ';'));
      if (parameter.starts_with("q=")) quality = quality_of(std::string_view(parameter).substr(2));
      if (parameter.starts_with("version=")) version = parameter.substr(8);
    }
    if (type == "application/openmetrics-text" && (version.empty() || version == "1.0.0")) {
      open_metrics = std::max(open_metrics, quality);
    } else if (type == "text/*" || type == "*/*" || (type == "text/plain" && (version.empty() || version == "0.0.4"))) {
      text = std::max(text, quality);
    }
  }
  return open_metrics > 0 && open_metrics >= text ? PageFormat::OpenMetrics : PageFormat::Text;
}

std::string_view content_type(PageFormat format) {
  switch (format) {
    case PageFormat::OpenMetrics:
      return "application/openmetrics-text; version=1.0.0; charset=utf-8";
    case PageFormat::Text:
      break;
  }
  return "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace weft::metrics
