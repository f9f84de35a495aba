#include "lib/model/path.h"

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

}  // namespace weft::model
