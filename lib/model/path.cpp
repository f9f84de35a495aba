#include "lib/model/path.h"

#include <algorithm>

namespace weft::model {

std::string_view to_string(TimestampRung rung) {
  switch (rung) {
    case TimestampRung::NicWallClock:
      return "nic-wall-clock";
    case TimestampRung::NicTicks:
      return "nic-ticks";
    case TimestampRung::KernelSoftware:
      return "kernel";
    case TimestampRung::Software:
      return "software";
  }
  return "software";
}

std::size_t udp_partner(const std::vector<std::uint16_t>& own, std::uint16_t port, std::size_t theirs) {
  return static_cast<std::size_t>(std::find(own.begin(), own.end(), port) - own.begin()) % theirs;
}

}  // namespace weft::model
