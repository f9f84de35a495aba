#include "lib/base/bounded_queue.h"

#include "tests/unit/catch.h"

using weft::BoundedQueue;

TEST_CASE("bounded queue: when full the oldest goes and is counted", "[base]") {
  BoundedQueue<int> queue(2);
  CHECK(queue.push(1));
  CHECK(queue.push(2));
  CHECK_FALSE(queue.push(3));
  CHECK(queue.dropped() == 1);
  CHECK(queue.try_pop() == 2);
  CHECK(queue.try_pop() == 3);
  CHECK_FALSE(queue.try_pop().has_value());
}

TEST_CASE("bounded queue: a closed one wakes its waiters and still hands out what it holds", "[base]") {
  BoundedQueue<int> queue(4);
  queue.push(7);
  queue.close();
  CHECK(queue.pop_for(std::chrono::hours(1)) == 7);
  CHECK_FALSE(queue.pop_for(std::chrono::hours(1)).has_value());
}
