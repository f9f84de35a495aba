#include "cli/format.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "lib/base/config.h"

namespace weft::cli {
namespace {

std::string three_digits(double value) {
  char text[48];
  const double size = std::fabs(value);
  std::snprintf(text, sizeof text, size < 9.995 ? "%.2f" : size < 99.95 ? "%.1f" : "%.0f", value);
  return text;
}

}  // namespace

std::string format_ns(Nanos value) {
  const double v = static_cast<double>(value);
  const double size = std::fabs(v);
  if (size < 999.5) return std::to_string(value) + " ns";
  if (size < 999.5e3) return three_digits(v / 1e3) + " us";
  if (size < 999.5e6) return three_digits(v / 1e6) + " ms";
  return three_digits(v / 1e9) + " s";
}

std::string format_ns(const std::optional<Nanos>& value) { return value ? format_ns(*value) : "-"; }

std::string format_share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  if (part == 0) return "0 %";
  if (part >= whole) return "100 %";
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  char text[32];
  if (percent < 0.01) return "<0.01 %";
  if (percent > 99.9) return ">99.9 %";
  std::snprintf(text, sizeof text, percent < 1 ? "%.2f %%" : percent < 9.95 ? "%.1f %%" : "%.0f %%", percent);
  return text;
}

std::string format_bits(std::uint64_t bits_per_s) {
  const double v = static_cast<double>(bits_per_s);
  char text[48];
  if (v >= 1e9) {
    std::snprintf(text, sizeof text, "%g Gb/s", v / 1e9);
  } else {
    std::snprintf(text, sizeof text, "%g Mb/s", v / 1e6);
  }
  return text;
}

std::string format_age(Nanos value) {
  const std::int64_t s = value < 0 ? 0 : value / kSecond;
  const auto two = [](std::int64_t a, const char* unit, std::int64_t b, const char* small) {
    return std::to_string(a) + ' ' + unit + (b == 0 ? "" : ' ' + std::to_string(b) + ' ' + small);
  };
  if (s < 60) return std::to_string(s) + " s";
  if (s < 3600) return two(s / 60, "min", s % 60, "s");
  if (s < 86400) return two(s / 3600, "h", s % 3600 / 60, "min");
  return two(s / 86400, "d", s % 86400 / 3600, "h");
}

std::string format_timestamps(model::TimestampRung rung) {
  const std::string word = " (" + std::string(model::to_string(rung)) + ")";
  switch (rung) {
    case model::TimestampRung::NicWallClock:
      return "the NIC's clock" + word;
    case model::TimestampRung::NicTicks:
      return "the NIC's ticks" + word;
    case model::TimestampRung::KernelSoftware:
      return "the kernel";
    case model::TimestampRung::Software:
      break;
  }
  return "weft itself" + word + ": how busy the hosts are is in the times";
}

std::string count_of(std::uint64_t count, const std::string& noun) {
  return std::to_string(count) + ' ' + noun + (count == 1 ? "" : "s");
}

Result<Nanos> parse_seconds(const std::string& text) {
  double seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  Nanos value = 0;
  if (failure == std::errc() && end == text.data() + text.size()) {
    if (!(seconds < 1e9)) return make_error(Error::Kind::Invalid, "\"" + text + "\" is too long");
    value = static_cast<Nanos>(seconds * 1e9);
  } else if (auto parsed = parse_duration(text)) {
    value = *parsed;
  } else {
    return make_error(Error::Kind::Invalid, "\"" + text + "\" is no duration: write 0.5, 500ms, 2s or 5m");
  }
  if (value <= 0) return make_error(Error::Kind::Invalid, "\"" + text + "\": must be above 0");
  return value;
}

}  // namespace weft::cli
