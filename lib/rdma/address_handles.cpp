#include "lib/rdma/address_handles.h"
#include "lib/base/thread_name.h"

#include <algorithm>
#include <utility>

namespace weft::rdma {
AddressHandles::AddressHandles(Make make, Drop drop, std::function<void()> made, const Clock& clock,
                               AddressLimits limits)
    : make_(std::move(make)),
      drop_(std::move(drop)),
      made_(std::move(made)),
      clock_(clock),
      limits_(limits),
      thread_([this] { run(); }) {}

AddressHandles::~AddressHandles() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
  for (auto& [key, entry] : entries_)
    if (entry.handle != nullptr) drop_(entry.handle);
  for (const Retired& old : retired_) drop_(old.handle);
}

Result<ibv_ah*> AddressHandles::get(const AddressKey& key) {
  std::lock_guard lock(mutex_);
  const Nanos now = clock_.monotonic_ns();
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() >= limits_.max_entries) evict_oldest();
    if (entries_.size() >= limits_.max_entries)
      return make_error(Error::Kind::Exhausted, "address of " + key.gid.to_string() + ": all handles are being made");
    found = entries_.try_emplace(key).first;
    found->second.tried_ns = now - limits_.retry_ns;
  }
  Entry& entry = found->second;
  entry.used_ns = now;
  if (entry.handle != nullptr) {
    const bool old = now - entry.made_ns >= limits_.expiry_ns && now - entry.tried_ns >= limits_.retry_ns;
    if (old && !entry.pending) request(key, entry);
    return entry.handle;
  }
  if (entry.pending) return nullptr;
  if (now - entry.tried_ns < limits_.retry_ns) return entry.error;
  if (request(key, entry)) return nullptr;
  entries_.erase(found);
  return make_error(Error::Kind::Exhausted, "address of " + key.gid.to_string() + ": too many are being resolved");
}

bool AddressHandles::request(const AddressKey& key, Entry& entry) {
  if (queue_.size() >= limits_.max_pending) return false;
  entry.pending = true;
  queue_.push_back(key);
  work_.notify_one();
  return true;
}

void AddressHandles::evict_oldest() {
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (!it->second.pending && (oldest == entries_.end() || it->second.used_ns < oldest->second.used_ns)) oldest = it;
  if (oldest == entries_.end()) return;
  retire(oldest->second);
  entries_.erase(oldest);
}

void AddressHandles::retire(Entry& entry) {
  if (entry.handle != nullptr) retired_.push_back({std::exchange(entry.handle, nullptr), clock_.monotonic_ns()});
}

void AddressHandles::sweep() {
  std::vector<ibv_ah*> ripe;
  {
    std::lock_guard lock(mutex_);
    const Nanos now = clock_.monotonic_ns();
    std::erase_if(retired_, [&](const Retired& old) {
      if (now - old.since_ns < limits_.linger_ns) return false;
      ripe.push_back(old.handle);
      return true;
    });
  }
  for (ibv_ah* handle : ripe) drop_(handle);
}

std::size_t AddressHandles::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

void AddressHandles::settle() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return queue_.empty() && !making_; });
}

void AddressHandles::run() {
  name_this_thread("weft-address");
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const AddressKey key = queue_.front();
    queue_.pop_front();
    making_ = true;
    lock.unlock();
    Result<ibv_ah*> made = make_(key);
    lock.lock();
    making_ = false;
    Entry& entry = entries_[key];  // pending ones are never evicted
    entry.pending = false;
    entry.tried_ns = clock_.monotonic_ns();
    if (made) {
      retire(entry);
      entry.handle = *made;
      entry.made_ns = entry.tried_ns;
    } else {
      entry.error = made.error();
    }
    done_.notify_all();
    if (made_) {
      lock.unlock();
      made_();
      lock.lock();
    }
  }
}

}  // namespace weft::rdma
