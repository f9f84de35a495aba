#include "lib/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <mutex>

namespace weft::log {
namespace {

std::atomic<Level> g_level{Level::Info};
std::mutex g_sink_mutex;
Sink g_sink;

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("weft", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum spd_level(Level level) {
  switch (level) {
    case Level::Debug:
      return spdlog::level::debug;
    case Level::Info:
      return spdlog::level::info;
    case Level::Warning:
      return spdlog::level::warn;
    case Level::Error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Newlines and control bytes in a value would forge log lines, so they are escaped.
void append_quoted(std::string& out, std::string_view value) {
  bool plain = !value.empty();
  for (const char c : value) plain = plain && c > ' ' && c != '"' && c != '=' && c != '\\' && c != 0x7f;
  if (plain) {
    out.append(value);
    return;
  }
  static constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

}  // namespace

void set_level(Level level) { g_level = level; }
Level level() { return g_level; }

bool parse_level(std::string_view text, Level& level) {
  if (text == "debug") {
    level = Level::Debug;
  } else if (text == "info") {
    level = Level::Info;
  } else if (text == "warning") {
    level = Level::Warning;
  } else if (text == "error") {
    level = Level::Error;
  } else {
    return false;
  }
  return true;
}

void write(Level level, std::string_view component, std::string_view message, std::initializer_list<Field> fields) {
  std::string line(component);
  line += ": ";
  line += message;
  for (const Field& field : fields) {
    line.push_back(' ');
    line.append(field.key);
    line.push_back('=');
    append_quoted(line, field.value);
  }
  {
    std::lock_guard lock(g_sink_mutex);
    if (g_sink) {
      g_sink(level, line);
      return;
    }
  }
  if (level < g_level.load()) return;
  logger().log(spd_level(level), "{}", line);
}

bool Limiter::allow(Nanos now, std::uint64_t& suppressed) {
  if (last_ != 0 && now - last_ < interval_) {
    ++held_;
    return false;
  }
  suppressed = held_;
  held_ = 0;
  last_ = now;
  return true;
}

void set_sink(Sink sink) {
  std::lock_guard lock(g_sink_mutex);
  g_sink = std::move(sink);
}

}  // namespace weft::log
