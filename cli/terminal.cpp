#include "cli/terminal.h"

#include <algorithm>
#include <cstring>

namespace weft::cli {

bool colour_wanted(ColourChoice choice, bool is_terminal, const char* no_color, const char* term) {
  if (choice != ColourChoice::Auto) return choice == ColourChoice::Always;
  const bool refused = no_color != nullptr && *no_color != '\0';  // no-color.org: empty counts as unset
  const bool capable = term != nullptr && *term != '\0' && std::strcmp(term, "dumb") != 0;
  return is_terminal && !refused && capable;
}

std::string Paint::operator()(Style style, std::string_view text) const {
  if (!on_ || style == Style::Plain || text.empty()) return std::string(text);
  const char* code = "0";
  switch (style) {
    case Style::Good:
      code = "32";
      break;
    case Style::Bad:
      code = "1;31";
      break;
    case Style::Warn:
      code = "33";
      break;
    case Style::Dim:
      code = "2";
      break;
    case Style::Bold:
      code = "1";
      break;
    case Style::Plain:
      break;
  }
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

std::string Table::render(const Paint& paint, std::size_t indent) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.header));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < std::min(row.size(), widths.size()); ++i) {
      widths[i] = std::max(widths[i], display_width(printable(row[i].text)));
    }
  }
  std::string out;
  const auto line = [&](const std::vector<Cell>& row) {
    std::string text(indent, ' ');
    std::size_t owed = 0;  // spaces written only when something follows
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = i < row.size() ? printable(row[i].text) : "";
      const std::size_t fill = widths[i] - display_width(cell);
      if (columns_[i].align == Align::Right) owed += fill;
      if (!cell.empty()) {
        text.append(owed, ' ');
        owed = 0;
        text += paint(row[i].style, cell);
      }
      if (columns_[i].align == Align::Left) owed += fill;
      owed += 2;
    }
    out += text + '\n';
  };
  std::vector<Cell> header;
  bool titled = false;
  for (const Column& column : columns_) {
    header.emplace_back(column.header, Style::Dim);
    titled |= !column.header.empty();
  }
  if (titled) line(header);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    const std::size_t size = display_width(word);
    if (column > indent && column + 1 + size > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += size;
  }
  return out;
}

}  // namespace weft::cli
