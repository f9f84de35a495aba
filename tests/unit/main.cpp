#define CATCH_CONFIG_RUNNER
#include "tests/unit/catch.h"

#include <algorithm>
#include <mutex>

#include "lib/base/log.h"

namespace weft::test {
namespace {

std::mutex g_mutex;
std::vector<std::string> g_lines;
std::vector<std::string> g_expected;

}  // namespace

std::vector<std::string> logged() {
  std::lock_guard lock(g_mutex);
  return g_lines;
}

void expect_log(const std::string& text) {
  std::lock_guard lock(g_mutex);
  g_expected.push_back(text);
}

namespace {

bool contains(const std::string& line, const std::string& text) { return line.find(text) != std::string::npos; }

int check_log(const std::string& test) {
  std::lock_guard lock(g_mutex);
  int bad = 0;
  for (const std::string& line : g_lines) {
    if (std::none_of(g_expected.begin(), g_expected.end(), [&](const auto& text) { return contains(line, text); })) {
      std::fprintf(stderr, "%s: unexpected in the log: %s\n", test.c_str(), line.c_str());
      ++bad;
    }
  }
  for (const std::string& text : g_expected) {
    if (std::none_of(g_lines.begin(), g_lines.end(), [&](const auto& line) { return contains(line, text); })) {
      std::fprintf(stderr, "%s: expected in the log, never came: %s\n", test.c_str(), text.c_str());
      ++bad;
    }
  }
  g_lines.clear();
  g_expected.clear();
  return bad;
}

int g_log_failures = 0;

struct LogListener : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    g_log_failures += check_log(stats.testInfo.name);
    TestEventListenerBase::testCaseEnded(stats);
  }
};
CATCH_REGISTER_LISTENER(LogListener)

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) {
  weft::log::set_sink([](weft::log::Level level, const std::string& line) {
    if (level < weft::log::Level::Warning) return;
    std::lock_guard lock(weft::test::g_mutex);
    weft::test::g_lines.push_back(line);
  });
  const int result = Catch::Session().run(argc, argv);
  weft::log::set_sink(nullptr);
  return result != 0 ? result : (weft::test::g_log_failures != 0 ? 1 : 0);
}
