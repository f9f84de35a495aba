#include "agent/daemon/plan_follower.h"

#include "tests/unit/catch.h"

using namespace weft::agent;
using namespace weft::model;

namespace {

PlanTarget target(std::string from, std::string to) {
  PlanTarget out;
  out.from_device = std::move(from);
  out.to = std::move(to);
  out.paths = {{0, 0, 5}};
  return out;
}

}  // namespace

TEST_CASE("plan: the configured list is followed until the aggregator sends one", "[agent]") {
  PlanFollower follower({target("", "h2/rxe0")});
  const auto alone = follower.targets({"rxe0", "rxe1"});
  REQUIRE(alone.size() == 2);
  CHECK(alone.at("rxe1")[0].from_device == "rxe1");

  CHECK(follower.set_plan({1, 8, {target("rxe0", "h3/rxe0")}}));
  CHECK(follower.ports_wanted() == 8);
  const auto planned = follower.targets({"rxe0", "rxe1"});
  REQUIRE(planned.size() == 1);
  CHECK(planned.at("rxe0")[0].to == "h3/rxe0");
}

TEST_CASE("plan: the same list under a new revision changes nothing", "[agent]") {
  PlanFollower follower({});
  CHECK(follower.set_plan({1, 4, {target("rxe0", "h2/rxe0")}}));
  CHECK_FALSE(follower.set_plan({2, 4, {target("rxe0", "h2/rxe0")}}));
  CHECK(follower.revision() == 2);
  CHECK(follower.set_plan({3, 4, {}}));
  CHECK(follower.targets({"rxe0"}).empty());
}

TEST_CASE("plan: a reload of the configured list waits while a plan is followed", "[agent]") {
  PlanFollower follower({});
  follower.set_plan({1, 0, {target("rxe0", "h2/rxe0")}});
  CHECK_FALSE(follower.set_configured({target("rxe0", "h9/rxe0")}));
  CHECK(follower.targets({"rxe0"}).at("rxe0")[0].to == "h2/rxe0");
  CHECK(follower.forget_plan());
  CHECK(follower.targets({"rxe0"}).at("rxe0")[0].to == "h9/rxe0");
}
