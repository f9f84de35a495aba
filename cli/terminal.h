// Colour for people only, and a table that stays aligned. Pure: text in, text out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

enum class ColourChoice { Auto, Always, Never };

// no_color, term: the environment's values or null. Auto: a terminal, NO_COLOR unset or empty, TERM set and not "dumb".
bool colour_wanted(ColourChoice choice, bool is_terminal, const char* no_color, const char* term);

enum class Style { Plain, Good, Bad, Warn, Dim, Bold };

class Paint {
 public:
  explicit Paint(bool on = false) : on_(on) {}
  std::string operator()(Style style, std::string_view text) const;

 private:
  bool on_;
};

struct Cell {
  std::string text;
  Style style = Style::Plain;
  Cell(std::string t, Style s = Style::Plain) : text(std::move(t)), style(s) {}
  Cell(const char* t, Style s = Style::Plain) : text(t), style(s) {}
};

enum class Align { Left, Right };

class Table {
 public:
  struct Column {
    std::string header;
    Align align = Align::Left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Missing cells are empty; cells past the columns are dropped.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  // Two spaces between columns, no space at the end of a line; control characters in cells become '?'.
  std::string render(const Paint& paint, std::size_t indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Columns on a screen: UTF-8 code points.
std::size_t display_width(std::string_view text);
// Text from outside (names, messages of peers) made safe for a terminal: no control characters.
std::string printable(std::string_view text);
// Breaks at spaces so that no line is wider, and indents every line but the first.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace weft::cli
