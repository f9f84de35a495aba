#include "lib/base/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

namespace weft {

struct ConfigTable::State {
  struct Problem {
    toml::source_position at;
    std::string message;
  };
  std::string file_name;
  toml::table root;
  std::set<const toml::node*> asked;
  std::vector<Problem> problems;

  void add(toml::source_position at, std::string message) { problems.push_back({at, std::move(message)}); }
};

namespace {

std::string place(const std::string& file, toml::source_position at, const std::string& message) {
  return file + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": " + message;
}

std::string join(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

void find_unknown(const toml::table& table, const std::string& path, const std::set<const toml::node*>& asked,
                  std::vector<ConfigTable::State::Problem>& out) {
  for (const auto& [key, node] : table) {
    const std::string full = join(path, key.str());
    if (asked.count(&node) == 0) {
      out.push_back({key.source().begin, "unknown key '" + full + "'"});
    } else if (const auto* sub = node.as_table()) {
      find_unknown(*sub, full, asked, out);
    } else if (const auto* array = node.as_array()) {
      for (const auto& element : *array) {
        if (const auto* row = element.as_table()) find_unknown(*row, full, asked, out);
      }
    }
  }
}

}  // namespace

Result<std::int64_t> parse_duration(std::string_view text) {
  const std::string copy(text);
  std::size_t used = 0;
  double amount = 0;
  try {
    amount = std::stod(copy, &used);
  } catch (const std::exception&) {
    return make_error(Error::Kind::Invalid,
                      "'" + copy + "' is no duration; write a number and a unit, like 500ms or 2s");
  }
  static const std::pair<std::string_view, double> kUnits[] = {{"ns", 1},   {"us", 1e3},   {"ms", 1e6},   {"s", 1e9},
                                                               {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}};
  for (const auto& [unit, factor] : kUnits) {
    if (text.substr(used) == unit) {
      const double ns = amount * factor;
      if (!std::isfinite(ns) || std::fabs(ns) > 9e18) break;
      return static_cast<std::int64_t>(std::llround(ns));
    }
  }
  return make_error(Error::Kind::Invalid,
                    "'" + copy + "' is no duration; units are ns, us, ms, s, m, h, d, like 500ms or 2s");
}

ConfigTable::ConfigTable(std::shared_ptr<State> state, const void* node, std::string path)
    : state_(std::move(state)), node_(node), path_(std::move(path)) {}

namespace {

const toml::node* find(ConfigTable::State& state, const void* table, std::string_view key) {
  if (table == nullptr) return nullptr;
  const toml::node* node = static_cast<const toml::table*>(table)->get(key);
  if (node != nullptr) state.asked.insert(node);
  return node;
}

template <typename T>
std::string in_range(T min, T max) {
  return " must be from " + std::to_string(min) + " to " + std::to_string(max);
}

}  // namespace

std::string ConfigTable::text(std::string_view key, std::string_view fallback) {
  const toml::node* node = find(*state_, node_, key);
  if (node == nullptr) return std::string(fallback);
  if (const auto value = node->value_exact<std::string>()) return *value;
  state_->add(node->source().begin, "'" + join(path_, key) + "' must be a string");
  return std::string(fallback);
}

std::string ConfigTable::required_text(std::string_view key) {
  std::string value = text(key);
  if (value.empty()) reject(key, "must be set");
  return value;
}

std::int64_t ConfigTable::integer(std::string_view key, std::int64_t fallback, std::int64_t min, std::int64_t max) {
  const toml::node* node = find(*state_, node_, key);
  if (node == nullptr) return fallback;
  const auto value = node->value_exact<std::int64_t>();
  if (!value) {
    state_->add(node->source().begin, "'" + join(path_, key) + "' must be a whole number");
    return fallback;
  }
  if (*value < min || *value > max) {
    state_->add(node->source().begin, "'" + join(path_, key) + "'" + in_range(min, max));
    return fallback;
  }
  return *value;
}

double ConfigTable::number(std::string_view key, double fallback, double min, double max) {
  const toml::node* node = find(*state_, node_, key);
  if (node == nullptr) return fallback;
  const auto value = node->value<double>();
  if (!value || !node->is_number() || !std::isfinite(*value)) {
    state_->add(node->source().begin, "'" + join(path_, key) + "' must be a number");
    return fallback;
  }
  if (*value < min || *value > max) {
    state_->add(node->source().begin, "'" + join(path_, key) + "'" + in_range(min, max));
    return fallback;
  }
  return *value;
}

bool ConfigTable::boolean(std::string_view key, bool fallback) {
  const toml::node* node = find(*state_, node_, key);
  if (node == nullptr) return fallback;
  if (const auto value = node->value_exact<bool>()) return *value;
  state_->add(node->source().begin, "'" + join(path_, key) + "' must be true or false");
  return fallback;
}

std::string ConfigTable::choice(std::string_view key, std::string_view fallback,
                                const std::vector<std::string>& allowed) {
  std::string value = text(key, fallback);
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
  std::string words;
  for (const std::string& word : allowed) words += (words.empty() ? "" : ", ") + word;
  reject(key, "must be one of " + words);
  return std::string(fallback);
}

std::vector<std::string> ConfigTable::texts(std::string_view key) {
  const toml::node* node = find(*state_, node_, key);
  if (node == nullptr) return {};
  std::vector<std::string> values;
  const auto* array = node->as_array();
  bool good = array != nullptr;
  if (good) {
    for (const auto& element : *array) {
      const auto value = element.value_exact<std::string>();
      good = good && value.has_value();
      if (value) values.push_back(*value);
    }
  }
  if (!good) {
    state_->add(node->source().begin, "'" + join(path_, key) + "' must be a list of strings");
    return {};
  }
  return values;
}

std::int64_t ConfigTable::duration_ns(std::string_view key, std::int64_t fallback_ns, std::int64_t min_ns,
                                      std::int64_t max_ns) {
  if (!has(key)) return fallback_ns;
  const auto parsed = parse_duration(text(key));
  if (!parsed) {
    reject(key, parsed.error().context);
    return fallback_ns;
  }
  if (*parsed < min_ns || *parsed > max_ns) {
    reject(key,
           "must be from " + std::to_string(min_ns / 1'000'000) + "ms to " + std::to_string(max_ns / 1'000'000) + "ms");
    return fallback_ns;
  }
  return *parsed;
}

ConfigTable ConfigTable::table(std::string_view key) {
  const toml::node* node = find(*state_, node_, key);
  const toml::table* sub = node == nullptr ? nullptr : node->as_table();
  if (node != nullptr && sub == nullptr) {
    state_->add(node->source().begin, "'" + join(path_, key) + "' must be a table");
  }
  return ConfigTable(state_, sub, join(path_, key));
}

std::vector<ConfigTable> ConfigTable::tables(std::string_view key) {
  const toml::node* node = find(*state_, node_, key);
  if (node == nullptr) return {};
  std::vector<ConfigTable> rows;
  const auto* array = node->as_array();
  bool good = array != nullptr;
  if (good) {
    for (const auto& element : *array) {
      const auto* row = element.as_table();
      good = good && row != nullptr;
      if (row != nullptr) rows.emplace_back(state_, row, join(path_, key));
    }
  }
  if (!good) {
    state_->add(node->source().begin,
                "'" + join(path_, key) + "' must be an array of tables, [[" + join(path_, key) + "]]");
    return {};
  }
  return rows;
}

bool ConfigTable::has(std::string_view key) const {
  return node_ != nullptr && static_cast<const toml::table*>(node_)->contains(key);
}

std::string ConfigTable::place(std::string_view key) const {
  if (!has(key)) return "";
  return weft::place(state_->file_name, static_cast<const toml::table*>(node_)->get(key)->source().begin, "");
}

void ConfigTable::reject(std::string_view key, std::string_view why) {
  toml::source_position at{1, 1};
  if (node_ != nullptr) {
    const auto* table = static_cast<const toml::table*>(node_);
    const toml::node* node = table->get(key);
    at = node != nullptr ? node->source().begin : table->source().begin;
    if (at.line == 0) at = {1, 1};
  }
  state_->add(at, "'" + join(path_, key) + "': " + std::string(why));
}

Result<Config> Config::parse(std::string_view toml, std::string file_name) {
  auto state = std::make_shared<ConfigTable::State>();
  state->file_name = std::move(file_name);
  try {
    state->root = toml::parse(toml, state->file_name);
  } catch (const toml::parse_error& error) {
    return make_error(Error::Kind::Invalid,
                      place(state->file_name, error.source().begin, std::string(error.description())));
  }
  return Config(std::move(state));
}

Result<Config> Config::load(const FileReader& files, const std::string& path) {
  auto text = files.read(path, kMaxBytes);
  if (!text) return text.error();
  return parse(*text, path);
}

ConfigTable Config::root() { return ConfigTable(state_, &state_->root, ""); }

Result<void> Config::finish() const {
  std::vector<ConfigTable::State::Problem> all = state_->problems;
  find_unknown(state_->root, "", state_->asked, all);
  if (all.empty()) return {};
  const auto first = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.at.line != b.at.line ? a.at.line < b.at.line : a.at.column < b.at.column;
  });
  return make_error(Error::Kind::Invalid, place(state_->file_name, first->at, first->message));
}

}  // namespace weft
