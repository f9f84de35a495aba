#include "cli/terminal.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/output.h"
#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::cli;

TEST_CASE("colour only on a terminal, with NO_COLOR unset or empty and a TERM that can", "[cli]") {
  CHECK(colour_wanted(ColourChoice::Auto, true, nullptr, "xterm"));
  CHECK(colour_wanted(ColourChoice::Auto, true, "", "xterm"));
  CHECK_FALSE(colour_wanted(ColourChoice::Auto, false, nullptr, "xterm"));
  CHECK_FALSE(colour_wanted(ColourChoice::Auto, true, "1", "xterm"));
  CHECK_FALSE(colour_wanted(ColourChoice::Auto, true, nullptr, "dumb"));
  CHECK_FALSE(colour_wanted(ColourChoice::Auto, true, nullptr, nullptr));
  CHECK(colour_wanted(ColourChoice::Always, false, "1", "dumb"));
  CHECK_FALSE(colour_wanted(ColourChoice::Never, true, nullptr, "xterm"));
}

TEST_CASE("a table stays aligned, with no space at line ends", "[cli]") {
  Table table({{"name"}, {"lost", Align::Right}, {"way"}});
  table.add({"h1", "0 %", "l1 > s1"});
  table.add({"a-longer-name", "12 %"});
  table.add({"", "", "only this"});
  CHECK(table.render(Paint(false)) ==
        "name           lost  way\n"
        "h1              0 %  l1 > s1\n"
        "a-longer-name  12 %\n"
        "                     only this\n");
}

TEST_CASE("colour changes no column, and text from outside cannot steer the terminal", "[cli]") {
  Table table({{"a"}, {"b"}});
  table.add({{"x", Style::Bad}, "y"});
  table.add({"\033[2Jzz", "y"});
  const std::string text = table.render(Paint(true));
  CHECK(text ==
        "\033[2ma\033[0m       \033[2mb\033[0m\n"
        "\033[1;31mx\033[0m       y\n"
        "?[2Jzz  y\n");
}

TEST_CASE("width counts characters, not bytes", "[cli]") {
  CHECK(display_width("äöü") == 3);
  Table table({{""}, {""}});
  table.add({"äöü", "1"});
  table.add({"abc", "2"});
  CHECK(table.render(Paint(false)) == "äöü  1\nabc  2\n");
}

TEST_CASE("wrapping breaks at spaces, indents, and leaves a long word whole", "[cli]") {
  CHECK(wrap("one two three", 8, 0) == "one two\nthree");
  CHECK(wrap("one two three", 9, 2) == "one two\n  three");
  CHECK(wrap("averyveryverylongword x", 8, 0) == "averyveryverylongword\nx");
  CHECK(wrap("", 8, 0).empty());
}

TEST_CASE("an error is words on stderr, and with --json also one object on stdout", "[cli]") {
  std::ostringstream out, err;
  Output output{out, err, false, Paint(false), Paint(false), false, 80};
  const Error error = make_error(Error::Kind::Permission, "device rxe0: no right");
  CHECK(output.fail("ping", error, "try as root") == ExitCode::CannotMeasure);
  CHECK(out.str().empty());
  CHECK(err.str() == "weft ping: device rxe0: no right\n  try as root\n");
  output.json = true;
  CHECK(output.fail("ping", make_error(Error::Kind::Timeout, "hello")) == ExitCode::Deadline);
  const auto body = nlohmann::json::parse(out.str());
  CHECK(body["schema"] == 1);
  CHECK(body["exit_code"] == 124);
  CHECK(body["error"]["kind"] == "timeout");
}

TEST_CASE("JSON holds no NaN and no broken UTF-8 (esnet/iperf 613, 826, 1143)", "[cli]") {
  std::ostringstream out, err;
  Output output{out, err, true, Paint(false), Paint(false), false, 80};
  nlohmann::json body;
  body["value"] = std::numeric_limits<double>::quiet_NaN();
  body["text"] = "bad \xff byte";
  output.finish_json("ping", ExitCode::Healthy, body);
  const auto parsed = nlohmann::json::parse(out.str());
  CHECK(parsed["value"].is_null());
  CHECK(parsed["exit_code"] == 0);
  CHECK(out.str().find("nan") == std::string::npos);
}
