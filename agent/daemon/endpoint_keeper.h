// Keeps one engine open for each wanted endpoint: opens and closes off the main loop (verbs calls may block for as long
// as a broken device likes), gives up a device the moment it goes, and opens it again by itself with back-off. One
// device that blocks or fails never holds up another: each has at most one call under way, on a thread of its own.
// All methods on the main loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/daemon/endpoint_choice.h"
#include "agent/daemon/main_loop.h"
#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "probes/ping/engine.h"

namespace weft::agent {

// Opens an engine; may block, runs on a spawned thread.
using EngineFactory = std::function<Result<std::unique_ptr<probes::Engine>>(const EndpointSpec&)>;

struct KeeperOptions {
  Nanos slow_after_ns = 5 * kSecond;  // an open or close this long is reported
  Nanos backoff_first_ns = 500 * kMillisecond;
  Nanos backoff_cap_ns = 30 * kSecond;
  Nanos gone_at_most_ns = 15 * kSecond;   // still listed this long after: it did not go after all
  Nanos stalled_after_ns = 20 * kSecond;  // ready peers and not one probe for this long: open anew
  unsigned refused_after = 3;
};

struct RdmaVerdict {
  enum class Use : std::uint8_t {
    Unknown,  // some were not tried yet
    Usable,   // one was opened, or failed for a reason that may pass
    Refused   // none can be opened here
  };
  Use use = Use::Unknown;
  std::vector<RdmaRefusal> refusals;  // when Refused
};

// What one engine had to say in a collection.
struct EngineReport {
  EndpointSpec spec;
  model::ProbeEndpoint endpoint;
  std::vector<model::PathWindow> windows;
  std::vector<probes::PeerStatus> peers;
  std::vector<probes::RegisteredPeer> registered;
  probes::EngineStats stats;
};

class EndpointKeeper {
 public:
  EndpointKeeper(KeeperOptions options, std::string host, EngineFactory factory, Spawn spawn, Post post,
                 const Clock& clock);
  ~EndpointKeeper();

  // The endpoints there should be. Ones no longer named are closed.
  void set_wanted(std::vector<EndpointSpec> specs);
  // The device is going: let go of it now. sysfs lists it until everyone has, so it is opened again only after
  // device_back, or after set_wanted once did not name it.
  void device_gone(const std::string& rdma_device);
  // Empty: all (events were lost). What failed is tried again now.
  void device_back(const std::string& rdma_device);
  // Closes and opens all anew (settings of engines changed).
  void reopen_all(EngineFactory factory);
  void set_targets(std::map<std::string, std::vector<model::PlanTarget>> targets_by_device);
  void want_ports(unsigned count);
  // Opens what is due, notices failures and calls that take too long.
  void tick();
  // starved: this host has next to no CPU, which excuses engines that make no progress.
  std::vector<EngineReport> collect(bool starved = false);

  std::vector<model::ProbeEndpoint> endpoints() const;
  std::vector<model::Limitation> limitations() const;
  // Called when an endpoint came or went.
  void on_change(std::function<void()> changed) { changed_ = std::move(changed); }
  void close_all();
  bool all_closed() const;
  // What opening of the RDMA endpoints has come to. Refusals say Unsupported or Permission; one counts after it came
  // refused_after times in a row, as udev sets the rights of a node a moment after it appears. An endpoint whose port
  // was never ACTIVE is not tried and does not count.
  RdmaVerdict rdma_verdict() const;
  // A call into the device has not returned for slow_after_ns.
  bool any_stuck() const;
  // There are endpoints, and none of them can be worked with for that reason.
  bool all_stuck() const;

 private:
  enum class State : std::uint8_t { Waiting, Opening, Open, Closing };
  struct Slot {
    EndpointSpec spec;
    State state = State::Waiting;
    bool wanted = true;
    bool gone = false;  // see device_gone
    Nanos gone_at_ns = 0;
    std::shared_ptr<probes::Engine> engine;
    std::uint64_t generation = 0;
    Nanos since_ns = 0;     // of the state
    Nanos retry_at_ns = 0;  // Waiting
    unsigned failures = 0;
    bool opens = false;    // opened or failed for a reason that may pass, since it was last refused
    unsigned refused = 0;  // in a row
    Error refusal;
    bool slow_reported = false;
    std::string problem, remedy;  // of the last failure; empty when open
    std::uint64_t last_progress = 0;
    Nanos progressed_ns = 0;
  };
  static bool is_stuck(const std::map<std::string, Slot>::value_type& entry) { return entry.second.slow_reported; }
  struct Alive;  // lets late answers of spawned work find that the keeper is gone

  void open(Slot& slot);
  void close(Slot& slot);
  void opened(const std::string& device, std::uint64_t generation, Result<std::unique_ptr<probes::Engine>> result);
  void closed(const std::string& device, std::uint64_t generation);
  void fail(Slot& slot, std::string problem, std::string remedy);
  static void judge(Slot& slot, const Error& error);
  static void forget_verdict(Slot& slot);
  void apply(Slot& slot);
  void watch_progress(Slot& slot, const EngineReport& report, bool starved);
  void changed() const {
    if (changed_) changed_();
  }

  KeeperOptions options_;
  std::string host_;
  std::shared_ptr<EngineFactory> factory_;
  Spawn spawn_;
  Post post_;
  const Clock& clock_;
  std::shared_ptr<Alive> alive_;
  std::function<void()> changed_;
  std::map<std::string, Slot> slots_;  // by device
  std::map<std::string, std::vector<model::PlanTarget>> targets_;
  unsigned ports_wanted_ = 0;
  std::uint64_t next_generation_ = 1;
  bool closing_all_ = false;
};

}  // namespace weft::agent
