#include "lib/base/clock.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>

namespace weft {
namespace {

Nanos read_clock(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return static_cast<Nanos>(t.tv_sec) * kSecond + t.tv_nsec;
}

}  // namespace

Nanos SystemClock::monotonic_ns() const { return read_clock(CLOCK_MONOTONIC); }
Nanos SystemClock::wall_ns() const { return read_clock(CLOCK_REALTIME); }

std::string format_rfc3339(Nanos wall_ns) {
  const Nanos clamped = std::max<Nanos>(wall_ns, 0);
  const std::time_t seconds = clamped / kSecond;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900, parts.tm_mon + 1,
                parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(clamped % kSecond / kMillisecond));
  return text;
}

bool parse_rfc3339(const std::string& text, Nanos& wall_ns) {
  std::tm parts{};
  int consumed = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
                  &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &consumed) != 6 ||
      consumed != 19) {
    return false;
  }
  if (parts.tm_year < 1970 || parts.tm_year > 2261 || parts.tm_mon < 1 || parts.tm_mon > 12 || parts.tm_mday < 1 ||
      parts.tm_mday > 31 || parts.tm_hour < 0 || parts.tm_hour > 23 || parts.tm_min < 0 || parts.tm_min > 59 ||
      parts.tm_sec < 0 || parts.tm_sec > 60) {
    return false;
  }
  std::size_t at = 19;
  Nanos fraction = 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    Nanos unit = kSecond / 10;
    const std::size_t first = at;
    for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; ++at, unit /= 10) {
      if (at - first >= 9) return false;
      fraction += (text[at] - '0') * unit;
    }
    if (at == first) return false;
  }
  int offset_minutes = 0;
  const std::string zone = text.substr(at);
  if (zone != "Z" && zone != "z") {
    int hours = 0;
    int minutes = 0;
    consumed = 0;
    if (zone.size() != 6 || (zone[0] != '+' && zone[0] != '-') ||
        std::sscanf(zone.c_str() + 1, "%2d:%2d%n", &hours, &minutes, &consumed) != 2 || consumed != 5 || hours > 23 ||
        minutes > 59) {
      return false;
    }
    offset_minutes = (zone[0] == '-' ? -1 : 1) * (hours * 60 + minutes);
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  const std::time_t seconds = timegm(&parts);
  wall_ns = (static_cast<Nanos>(seconds) - offset_minutes * 60) * kSecond + fraction;
  return true;
}

}  // namespace weft
