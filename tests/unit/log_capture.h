// Log lines of the running test. A warning or error that the test did not expect fails it (see main.cpp).
#pragma once

#include <string>
#include <vector>

namespace weft::test {

// Every warning and error line since the test began, oldest first.
std::vector<std::string> logged();
// The test expects warnings or errors that contain the text; at least one must come.
void expect_log(const std::string& text);

}  // namespace weft::test
