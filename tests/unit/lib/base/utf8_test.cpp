#include "lib/base/utf8.h"

#include "tests/unit/catch.h"

TEST_CASE("clean text: malformed bytes and control characters become question marks", "[base]") {
  CHECK_FALSE(weft::is_clean_text("a\nb"));
  CHECK_FALSE(weft::is_clean_text(std::string_view("a\0b", 3)));
  CHECK_FALSE(weft::is_clean_text("\x1b[31m"));
  CHECK_FALSE(weft::is_clean_text("\x7f"));
  CHECK_FALSE(weft::is_clean_text("\xc2\x9b"));          // C1 CSI
  CHECK_FALSE(weft::is_clean_text("\xc0\xaf"));          // overlong '/'
  CHECK_FALSE(weft::is_clean_text("\xed\xa0\x80"));      // surrogate
  CHECK_FALSE(weft::is_clean_text("\xf4\x90\x80\x80"));  // past U+10FFFF
  CHECK_FALSE(weft::is_clean_text("\xe2\x82"));          // cut short
  CHECK(weft::clean_text("a\nb\xff", 16) == "a?b?");
  CHECK(weft::clean_text("\xe2\x82", 16) == "??");
}

TEST_CASE("clean text: good text is unchanged and is cut at a character boundary", "[base]") {
  CHECK(weft::is_clean_text(""));
  CHECK(weft::is_clean_text("link \xe2\x82\xac \xf0\x9f\x92\xa1"));
  CHECK(weft::clean_text("\xe2\x82\xac\xe2\x82\xac", 5) == "\xe2\x82\xac");
  CHECK(weft::clean_text("abcdef", 3) == "abc");
  CHECK(weft::clean_text("abc", 0).empty());
}
