// Which of a second's chores are due. A host that is starved of CPU still reports its health and what was measured, and
// puts off what nobody waits for: else the monitor takes what little CPU its own report needs. A host that is merely
// late puts off nothing: a port that goes down is noticed by reading the devices. Pure.
#pragma once

#include "lib/base/clock.h"

namespace weft::agent {

struct DueChores {
  bool inventory = false;  // devices are read again, in case an event was missed
  bool page = false;       // /metrics is written anew
};

class Chores {
 public:
  // Scheduling gaps in a second from which on a host is late, and starved.
  static constexpr Nanos kLate_ns = 100 * kMillisecond;
  static constexpr Nanos kStarved_ns = 400 * kMillisecond;

  // Once a second. max_gap_ns: how late this process was scheduled at worst since the last call.
  DueChores next(Nanos max_gap_ns);
  // The kernel told of a change of devices or links. Not all of what follows is told (a GID comes a little after its
  // device), so for a while they are read more often.
  void changed() { unsettled_ = kUnsettledFor; }

 private:
  static constexpr unsigned kUnsettledFor = 12;  // seconds
  unsigned unsettled_ = kUnsettledFor;
  unsigned since_inventory_ = 0;  // seconds
  unsigned since_page_ = 0;
};

}  // namespace weft::agent
