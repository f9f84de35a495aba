// Folds the ends of probes into path windows: one a second for each path with anything to say.
// A probe counts in the second its outcome was decided. Windows stay open for a while after their second, so that a
// loss whose direction a later acknowledgement tells, or that a new responder epoch excuses, can still move: shortly
// when nothing is unknown in them, for a grace else. Pure over the time passed in; not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/model/path.h"

namespace weft::probes {

enum class Loss : std::uint8_t { Unknown, Forward, Back, Stale };

// What an acknowledgement said. Times and header fields are absent where unknown.
struct AckFacts {
  std::optional<Nanos> rtt_ns, prober_delay_ns, responder_delay_ns;
  std::optional<std::uint8_t> forward_tos, forward_hop_limit, back_tos, back_hop_limit;
  bool without_times = false;
  bool bad_timestamp = false;
  model::TimestampRung rung = model::TimestampRung::NicWallClock;  // the worse of both ends
};

// Events that say nothing about the network, or only explain.
enum class Aside : std::uint8_t { Late, Duplicate, LocalError, Overslept, Throttled };

struct WindowTotals {
  std::uint64_t lost_forward = 0, lost_back = 0, lost_unknown = 0, ce_forward = 0, ce_back = 0;
};

class WindowFolder {
 public:
  // settle_ns <= grace_ns <= settle_ns + 1 s. At most max_closed closed windows wait to be taken; then the oldest go
  // and are counted.
  WindowFolder(Nanos settle_ns, Nanos grace_ns, std::size_t max_closed = 65536);

  // Of this end; a window's is the worst of what its acknowledgements had.
  void set_rung(model::TimestampRung rung) { rung_ = rung; }
  // Both return the window it was counted in, for uncount_acked() and move().
  std::int64_t acked(const model::PathKey& key, std::uint64_t epoch, Nanos now, const AckFacts& facts);
  std::int64_t lost(const model::PathKey& key, std::uint64_t epoch, Nanos now, Loss loss);
  // Changes the kind of a counted loss; false when its window has closed.
  bool move(const model::PathKey& key, std::int64_t window, Loss from, Loss to);
  // An answered probe turns out to have been overslept: it counts no more, what it measured stays. Nothing when its
  // window has closed.
  void uncount_acked(const model::PathKey& key, std::int64_t window, bool without_times);
  void aside(const model::PathKey& key, std::uint64_t epoch, Nanos now, Aside what);

  // Closes what is due; next_close is when that is next needed, absent while nothing is open.
  void close_due(Nanos now);
  std::optional<Nanos> next_close() const;
  std::vector<model::PathWindow> take();
  const WindowTotals& totals() const { return totals_; }  // of closed windows
  std::uint64_t dropped() const { return dropped_; }

 private:
  struct Open {
    model::PathWindow window;
    std::vector<Nanos> rtts_ns;
  };
  Open& open(const model::PathKey& key, std::uint64_t epoch, Nanos now);

  const Nanos settle_ns_, grace_ns_;
  const std::size_t max_closed_;
  model::TimestampRung rung_ = model::TimestampRung::Software;
  std::map<std::pair<std::int64_t, model::PathKey>, Open> open_;
  std::vector<model::PathWindow> closed_;
  WindowTotals totals_;
  std::uint64_t dropped_ = 0;
  Nanos last_close_ = 0;
};

}  // namespace weft::probes
