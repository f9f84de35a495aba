#include "lib/model/subject.h"

#include "tests/unit/catch.h"

namespace model = weft::model;

TEST_CASE("subject: a name with bytes that would break the grammar is refused", "[model]") {
  const char* name = GENERATE("", "a b", "a>b", "a/b", "h1\n", "\xff", "a\"b");
  CHECK_FALSE(model::valid_name(name));
}

TEST_CASE("subject: each kind is written as the grammar says", "[model]") {
  CHECK(model::host_subject("h1") == "host:h1");
  CHECK(model::rnic_subject("h1", "rxe0") == "rnic:h1/rxe0");
  CHECK(model::port_subject("h1", "rxe0", 1) == "port:h1/rxe0/1");
  CHECK(model::link_subject("l1", "s1") == "link:l1>s1");
  CHECK(model::undirected_link_subject("l1", "s1") == "link:l1-s1");
  CHECK(model::switch_subject("s1") == "switch:s1");
  CHECK(model::path_subject("h1/rxe0", 49152, "h3/rxe0") == "path:h1/rxe0:49152>h3/rxe0");
  CHECK(model::pair_subject("h1", "h3") == "pair:h1>h3");
  CHECK(model::subject_type("link:l1>s1") == "link");
  CHECK(model::subject_type("nothing").empty());
  CHECK(model::valid_name("10.1.11.2"));
}
