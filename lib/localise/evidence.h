// What the paths told, second by second: 24 slots of a second and 16 of 20 s a path, and the memory of its healthy
// round trip. Windows that contradict themselves are refused; counts are clamped; idle paths are forgotten. Not thread
// safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lib/base/clock.h"
#include "lib/localise/fabric.h"
#include "lib/model/path.h"

namespace weft::localise {

inline constexpr unsigned kSlots = 24;
inline constexpr unsigned kLongSlots = 16;
inline constexpr std::int64_t kLongSlotSeconds = 20;

struct Bucket {
  std::int64_t slot = -1;  // receive second; -1: empty
  Nanos received = 0;
  Nanos rtt_median = -1, rtt_p90 = -1, rtt_min = -1;  // -1: none
  std::uint16_t sent = 0, acked = 0, lost_unknown = 0, lost_out = 0, lost_back = 0, late = 0;
  std::uint16_t ecn_out = 0, ce_out = 0, bleached_out = 0, ecn_back = 0, ce_back = 0, bleached_back = 0;
  // By classify(): later than its siblings in the same second; later than its own past.
  double late_by_ns = 0;       // when late
  double off_siblings_ns = 0;  // beyond its own past and theirs, where has_siblings
  bool late_to_siblings = false, late_to_past = false, judged_delay = false, learned = false, graduated = false;
  bool has_siblings = false;
  // Set by the judge: an end was late for a moment of this second, too short to be in each of its round trips.
  bool doubtful = false;
  // What the network took: the typical probe, or where some of them waited for a host the fastest. -1: unknown.
  Nanos rtt() const { return doubtful ? rtt_min : rtt_median; }
};

struct LongBucket {
  std::int64_t slot = -1;
  std::uint32_t sent = 0;
  std::uint16_t lost_unknown = 0, lost_out = 0, lost_back = 0;
};

struct Path {
  EndpointId from = kNone, to = kNone;
  std::uint16_t forward_port = 0, return_port = 0;
  UdpPorts ports_out() const { return {forward_port, return_port}; }
  UdpPorts ports_back() const { return {return_port, forward_port}; }
  std::uint32_t pair = 0;  // of the two endpoints, either way round
  Nanos last_received = 0;
  std::array<Bucket, kSlots> ring;
  std::array<LongBucket, kLongSlots> past;
  double base_ns = 0, spread_ns = 0;  // of the healthy round trip
  // Of what it takes beyond its siblings: what makes all paths of a pair late at once is not in it.
  double siblings_spread_ns = 0;
  unsigned learned = 0;
  unsigned late_run = 0;  // late seconds in a row
  std::uint64_t route_revision = 0;
  // Set by the judge, each time. The routes belong to the Fabric.
  const Route* out = nullptr;
  const Route* back = nullptr;
  Nanos placed() const { return std::max(out->changed, back->changed); }
  std::uint32_t usable = 0, usable_delay = 0;  // bits by ring index
  bool mature() const { return learned >= 20; }
};

class Evidence {
 public:
  // False when refused. The window's endpoints are interned already.
  bool add(const model::PathWindow& window, EndpointId from, EndpointId to, Nanos received);
  void forget();
  void expire(Nanos now);

  const std::vector<Path>& paths() const { return paths_; }
  std::vector<Path>& paths() { return paths_; }
  std::size_t pair_count() const { return pairs_.size(); }
  // Paths of each pair, indices into paths(); rebuilt when paths came or went.
  const std::vector<std::vector<std::uint32_t>>& by_pair();

 private:
  struct Key {
    EndpointId from, to;
    std::uint16_t forward_port, return_port;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& k) const {
      std::uint64_t h = (std::uint64_t{k.from} << 32) ^ k.to;
      h ^= ((std::uint64_t{k.forward_port} << 16) ^ k.return_port) * 0x9e3779b97f4a7c15ULL;
      h ^= h >> 31;
      h *= 0xbf58476d1ce4e5b9ULL;
      return static_cast<std::size_t>(h ^ (h >> 30));
    }
  };
  std::vector<Path> paths_;
  std::unordered_map<Key, std::uint32_t, KeyHash> index_;
  std::map<std::pair<EndpointId, EndpointId>, std::uint32_t> pairs_;
  std::vector<std::vector<std::uint32_t>> by_pair_;
  bool by_pair_stale_ = true;
};

inline bool usable_at(const Path& path, unsigned index) { return (path.usable >> index & 1U) != 0; }

}  // namespace weft::localise
