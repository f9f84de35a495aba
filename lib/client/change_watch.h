// Hears from an aggregator at once when findings change, over its server-sent events (/api/v1/events). What changed is
// then asked for as ever: this only says when. One that cannot be heard, as an older aggregator or behind a proxy that
// holds streams back, leaves its user to ask every now and then. wait() is for one thread.
#pragma once

#include <chrono>
#include <memory>

#include "lib/client/http.h"

namespace weft::client {

class ChangeWatch {
 public:
  explicit ChangeWatch(Endpoint to);
  // Ends the connection; takes a fraction of a second.
  ~ChangeWatch();
  ChangeWatch(const ChangeWatch&) = delete;
  ChangeWatch& operator=(const ChangeWatch&) = delete;

  // Events come: nobody needs to ask meanwhile.
  bool hears() const;
  // Returns when findings changed since the last call, the stream ended, the time is over, or stopped says so.
  void wait(std::chrono::milliseconds most, const StopAsked& stopped);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace weft::client
