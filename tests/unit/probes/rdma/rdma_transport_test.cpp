#include "probes/rdma/rdma_transport.h"

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

TEST_CASE("a device that cannot be had is refused by name, with the way out, in every build", "[rdma]") {
  const auto transport = open_rdma_transport({.device = "no_such_device"});
  REQUIRE_FALSE(transport);
  const Error::Kind kind = transport.error().kind;
  CHECK((kind == Error::Kind::Unsupported || kind == Error::Kind::NotFound));
  CHECK_THAT(transport.error().message(), ContainsSubstring("no_such_device"));
}
