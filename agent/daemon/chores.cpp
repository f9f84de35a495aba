#include "agent/daemon/chores.h"

namespace weft::agent {
namespace {

constexpr unsigned kInventoryEvery = 10;
constexpr unsigned kInventoryEveryUnsettled = 3;
constexpr unsigned kInventoryEveryStarved = 12;
// Well within the time after which /healthz takes the main loop for hung.
constexpr unsigned kPageEveryStarved = 4;

}  // namespace

DueChores Chores::next(Nanos max_gap_ns) {
  const bool starved = max_gap_ns >= kStarved_ns;
  const unsigned every = starved ? kInventoryEveryStarved : unsettled_ > 0 ? kInventoryEveryUnsettled : kInventoryEvery;
  if (unsettled_ > 0) --unsettled_;
  DueChores due;
  due.inventory = ++since_inventory_ >= every;
  due.page = ++since_page_ >= (starved ? kPageEveryStarved : 1);
  if (due.inventory) since_inventory_ = 0;
  if (due.page) since_page_ = 0;
  return due;
}

}  // namespace weft::agent
