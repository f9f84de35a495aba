// Strict TOML: every key must be asked for, every value must have the asked type and range; anything else is an error
// that names file, line and column. Read all keys, then finish(): it returns the first error in file order.
// Not thread safe. toml++ stays inside config.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/files.h"
#include "lib/base/result.h"

namespace weft {

class ConfigTable {
 public:
  // Getters return the fallback when the key is absent, and also after recording an error.
  std::string text(std::string_view key, std::string_view fallback = "");
  // A key that must be there.
  std::string required_text(std::string_view key);
  std::int64_t integer(std::string_view key, std::int64_t fallback,
                       std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t max = std::numeric_limits<std::int64_t>::max());
  double number(std::string_view key, double fallback, double min = -std::numeric_limits<double>::infinity(),
                double max = std::numeric_limits<double>::infinity());
  bool boolean(std::string_view key, bool fallback);
  // One of the allowed words.
  std::string choice(std::string_view key, std::string_view fallback, const std::vector<std::string>& allowed);
  std::vector<std::string> texts(std::string_view key);
  // "500ms", "2s", "5m", "1h", "1d": nanoseconds.
  std::int64_t duration_ns(std::string_view key, std::int64_t fallback_ns, std::int64_t min_ns, std::int64_t max_ns);
  // A sub-table; empty when absent.
  ConfigTable table(std::string_view key);
  // An array of tables ([[key]]); empty when absent.
  std::vector<ConfigTable> tables(std::string_view key);
  bool has(std::string_view key) const;
  // "FILE:LINE:COLUMN: " of the key, for rules that are checked after finish(); empty when it is absent.
  std::string place(std::string_view key) const;
  // Records an error at the key's place (or the table's when absent), for rules over several keys.
  void reject(std::string_view key, std::string_view why);

  struct State;
  ConfigTable(std::shared_ptr<State> state, const void* node, std::string path);

 private:
  std::shared_ptr<State> state_;
  const void* node_;  // const toml::table*, null when absent
  std::string path_;
};

class Config {
 public:
  // file_name is only for messages.
  static Result<Config> parse(std::string_view toml, std::string file_name);
  // Exhausted past kMaxBytes.
  static Result<Config> load(const FileReader& files, const std::string& path);
  static constexpr std::size_t kMaxBytes = 1024 * 1024;

  ConfigTable root();
  // First of: bad value, rejected rule, key nobody asked for. "FILE:LINE:COLUMN: message".
  Result<void> finish() const;

 private:
  explicit Config(std::shared_ptr<ConfigTable::State> state) : state_(std::move(state)) {}
  std::shared_ptr<ConfigTable::State> state_;
};

// "250ms" -> ns; units ns, us, ms, s, m, h, d; a number without a unit is an error.
Result<std::int64_t> parse_duration(std::string_view text);

}  // namespace weft
