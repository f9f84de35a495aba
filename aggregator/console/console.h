// The console's files, built into the program by embed.py: the page, its style and its modules.
#pragma once

#include <string_view>
#include <vector>

namespace weft::aggregator {

struct ConsoleFile {
  std::string_view name;  // "index.html"
  std::string_view type;  // Content-Type
  std::string_view text;
};
const std::vector<ConsoleFile>& console_files();

}  // namespace weft::aggregator
