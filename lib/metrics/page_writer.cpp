#include "lib/metrics/page_writer.h"

#include <array>
#include <charconv>
#include <cmath>

namespace weft::metrics {
namespace {

using model::MetricType;

void escape(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

// The shortest text that reads back as the same value; whole numbers without an exponent.
std::string number(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  std::array<char, 32> text;
  const bool whole = std::abs(value) < kExact && value == std::trunc(value);
  const auto [end, error] = whole ? std::to_chars(text.begin(), text.end(), static_cast<std::int64_t>(value))
                                  : std::to_chars(text.begin(), text.end(), value);
  return error == std::errc{} ? std::string(text.begin(), end) : "NaN";
}

// OpenMetrics 1.0, canonical numbers: "1.0", never "1". In both formats, as the bound is a label: a series would else
// change its name with the format.
std::string bound(double value) {
  std::string text = number(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Of OpenMetrics, where a unit is the name's last word; what is merely counted ("probes") has none.
bool is_unit(std::string_view unit) {
  return unit == "seconds" || unit == "bytes" || unit == "bytes_per_second" || unit == "ratio";
}

std::string_view type_name(const model::MetricInfo& info, PageFormat format) {
  switch (info.type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return format == PageFormat::OpenMetrics && info.unit == "info" ? "info" : "gauge";
    case MetricType::Histogram:
      return "histogram";
  }
  return "unknown";
}

}  // namespace

void PageWriter::family(const model::MetricInfo& info) {
  name_ = info.name;
  // OpenMetrics names the family; its samples have the suffix of the type.
  std::string_view name = info.name;
  const bool open_metrics = format_ == PageFormat::OpenMetrics;
  if (open_metrics && info.type == MetricType::Counter && name.ends_with("_total")) name.remove_suffix(6);
  if (open_metrics && info.unit == "info" && name.ends_with("_info")) name.remove_suffix(5);
  const auto comment = [&](std::string_view what, std::string_view text) {
    page_ += "# ";
    page_ += what;
    page_ += ' ';
    page_ += name;
    page_ += ' ';
    escape(page_, text, open_metrics);
    page_ += '\n';
  };
  comment("HELP", info.help);
  comment("TYPE", type_name(info, format_));
  if (open_metrics && is_unit(info.unit)) comment("UNIT", info.unit);
}

void PageWriter::line(std::string_view suffix, const Labels& labels, std::string_view le, double value) {
  page_ += name_;
  page_ += suffix;
  char before = '{';
  const auto label = [&](std::string_view key, std::string_view text) {
    page_ += before;
    page_ += key;
    page_ += "=\"";
    escape(page_, text, true);
    page_ += '"';
    before = ',';
  };
  for (const auto& [key, text] : labels) label(key, text);
  if (!le.empty()) label("le", le);
  if (before == ',') page_ += '}';
  page_ += ' ';
  page_ += number(value);
  page_ += '\n';
}

void PageWriter::series(const Labels& labels, double value) { line({}, labels, {}, value); }

void PageWriter::histogram(const Labels& labels, const std::vector<std::pair<double, std::uint64_t>>& buckets,
                           double sum, std::uint64_t count) {
  for (const auto& [upper, below] : buckets) line("_bucket", labels, bound(upper), static_cast<double>(below));
  line("_bucket", labels, "+Inf", static_cast<double>(count));
  line("_sum", labels, {}, sum);
  line("_count", labels, {}, static_cast<double>(count));
}

std::string PageWriter::finish() {
  if (format_ == PageFormat::OpenMetrics) page_ += "# EOF\n";
  return std::move(page_);
}

}  // namespace weft::metrics
