// A page compared byte by byte with a file of tests/fixtures. After a change that is meant, run the test with
// WEFT_WRITE_GOLDEN=1 and read the difference.
#pragma once

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/unit/catch.h"

namespace weft::test {

inline void check_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(WEFT_FIXTURES "/") + name;
  if (std::getenv("WEFT_WRITE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
  std::ifstream file(path, std::ios::binary);
  std::stringstream want;
  want << file.rdbuf();
  INFO(path);
  CHECK(text == want.str());
}

}  // namespace weft::test
