// Structured log on stderr: one line an event, "time level component message key=value ...".
// Levels by meaning: error = weft cannot do its job; warning = part of it is missing, a person should know;
// info = state changes (few a day); debug = per object. Never a line per packet or per drop: count those.
// Thread safe. The level is the only process-wide state. Secrets never go in here.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "lib/base/clock.h"

namespace weft::log {

enum class Level { Debug, Info, Warning, Error };

// A key and its value, quoted when needed.
struct Field {
  std::string_view key;
  std::string value;
  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const std::string& v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(v) {}
  Field(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
  template <typename T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) Field(std::string_view k, T v)
      : key(k), value(std::to_string(v)) {}
};

void set_level(Level level);
Level level();
// "debug", "info", "warning", "error"; false on anything else.
bool parse_level(std::string_view text, Level& level);

void write(Level level, std::string_view component, std::string_view message, std::initializer_list<Field> fields = {});

inline void debug(std::string_view c, std::string_view m, std::initializer_list<Field> f = {}) {
  write(Level::Debug, c, m, f);
}
inline void info(std::string_view c, std::string_view m, std::initializer_list<Field> f = {}) {
  write(Level::Info, c, m, f);
}
inline void warning(std::string_view c, std::string_view m, std::initializer_list<Field> f = {}) {
  write(Level::Warning, c, m, f);
}
inline void error(std::string_view c, std::string_view m, std::initializer_list<Field> f = {}) {
  write(Level::Error, c, m, f);
}

// Lets a repeating condition speak at most once per interval, and says how many times it was held back.
class Limiter {
 public:
  explicit Limiter(Nanos interval) : interval_(interval) {}
  // True when it may speak now; suppressed is the count held back since the last time.
  bool allow(Nanos now, std::uint64_t& suppressed);

 private:
  Nanos interval_;
  Nanos last_ = 0;
  std::uint64_t held_ = 0;
};

// Tests see every line here instead of stderr. Pass nullptr to restore.
using Sink = std::function<void(Level, const std::string& line)>;
void set_sink(Sink sink);

}  // namespace weft::log
