// Address handles, cached per (GID, flow label, traffic class).
// Making one enters the kernel and may wait a second for ARP or ND of a dead neighbour, so a thread of its own makes
// them and get() never waits. Failures are remembered for a while; old handles are renewed in the background (a
// neighbour's MAC may change) and stay in use until the new one is there: a dead host must look like lost probes, not
// like a local error.
// get() by one thread. Handles given out stay valid for at least `linger_ns` after they left the cache.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/model/device.h"

struct ibv_ah;

namespace weft::rdma {

struct AddressKey {
  model::Gid gid;
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
  auto operator<=>(const AddressKey&) const = default;
};

struct AddressLimits {
  std::size_t max_entries = 16 * 1024;
  std::size_t max_pending = 1024;  // being made
  Nanos expiry_ns = 60 * kSecond;  // renewed after this
  Nanos retry_ns = 2 * kSecond;    // between failed tries
  Nanos linger_ns = kSecond;
};

class AddressHandles {
 public:
  using Make = std::function<Result<ibv_ah*>(const AddressKey&)>;  // called on the own thread only
  using Drop = std::function<void(ibv_ah*)>;                       // called by any

  // made: called on the own thread after each try, good or not; may be empty.
  AddressHandles(Make make, Drop drop, std::function<void()> made, const Clock& clock, AddressLimits limits);
  // Waits for a creation in progress, then drops every handle.
  ~AddressHandles();
  AddressHandles(const AddressHandles&) = delete;
  AddressHandles& operator=(const AddressHandles&) = delete;

  // nullptr while it is being made; Exhausted when too many are; the error of the last try during its pause.
  Result<ibv_ah*> get(const AddressKey& key);
  // Drops handles that lingered long enough; call now and then from get()'s thread.
  void sweep();

  std::size_t size() const;
  // Waits until nothing is being made; for tests.
  void settle();

 private:
  struct Entry {
    ibv_ah* handle = nullptr;
    Nanos made_ns = 0;
    Nanos used_ns = 0;
    Nanos tried_ns = 0;
    bool pending = false;
    Error error;
  };
  struct Retired {
    ibv_ah* handle;
    Nanos since_ns;
  };

  void run();
  bool request(const AddressKey& key, Entry& entry);  // locked
  void evict_oldest();                                // locked
  void retire(Entry& entry);                          // locked

  const Make make_;
  const Drop drop_;
  const std::function<void()> made_;
  const Clock& clock_;
  const AddressLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::map<AddressKey, Entry> entries_;
  std::deque<AddressKey> queue_;
  std::vector<Retired> retired_;
  bool making_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace weft::rdma
