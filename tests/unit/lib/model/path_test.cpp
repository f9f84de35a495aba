#include "lib/model/path.h"

#include <set>

#include "tests/unit/catch.h"

namespace weft::model {
namespace {

TEST_CASE("a port that is none of ours still goes with a port that the peer has, always the same") {
  const std::vector<std::uint16_t> own = {50000, 50001, 50002};
  for (std::size_t theirs = 1; theirs < 9; ++theirs) {
    const auto place = udp_partner(own, 40000, theirs);
    CHECK(place < theirs);
    CHECK(udp_partner(own, 40000, theirs) == place);
  }
  CHECK(udp_partner({}, 50000, 4) < 4);
}

TEST_CASE("as many ports here as there go one with one; fewer there are shared evenly") {
  const std::vector<std::uint16_t> own = {50000, 50001, 50002, 50003, 50004, 50005, 50006, 50007};
  std::set<std::size_t> used;
  std::size_t first_of_two = 0;
  for (const auto port : own) {
    used.insert(udp_partner(own, port, own.size()));
    if (udp_partner(own, port, 2) == 0) ++first_of_two;
  }
  CHECK(used.size() == own.size());
  CHECK(first_of_two == own.size() / 2);
}

}  // namespace
}  // namespace weft::model
