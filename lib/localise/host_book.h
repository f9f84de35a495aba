// Which hosts were alive and on time, and when: decides whose evidence counts. A probe that was lost while an end of
// its path was stopped, silent, restarting or badly scheduled says nothing about the network. All times are receive
// times, monotonic ns. Bounded; not thread safe.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/model/device.h"
#include "lib/model/path.h"

namespace weft::localise {

enum class HostState { NeverSeen, Reporting, Restarting, Stopped, Silent, Unreachable };

struct Span {
  Nanos from = 0, to = 0;
  bool holds(Nanos at) const { return at >= from && at <= to; }
};

// A device of a host, as its inventories tell.
struct EndpointState {
  bool seen = false;  // some inventory had it
  bool device_gone = false;
  bool endpoint_missing = false;  // the device is there, but weftd offers no endpoint on it
  bool port_down = false;
  Nanos since = 0;  // of the present trouble
  Nanos recovered = 0;
  model::ProbeEndpoint offer;  // last one
  std::vector<Span> taint;
  bool trouble() const { return device_gone || endpoint_missing || port_down; }
  bool tainted(Nanos at) const;
};

struct Host {
  std::string name;
  Nanos first_seen = 0;  // named by anybody
  std::optional<Nanos> last_contact;
  std::optional<Nanos> last_health;
  std::optional<Nanos> last_answer;  // newest window of another host with an answer of this one
  std::optional<Nanos> last_probed;  // newest window of another host with a probe to it
  std::optional<Nanos> goodbye;
  Nanos restart_allowance_ns = 0;
  std::uint64_t agent_epoch = 0;
  std::optional<Nanos> started;
  bool awaiting_inventory = false;
  std::optional<model::Inventory> inventory;
  std::optional<model::HostHealth> health;
  struct Beat {
    Nanos at = 0;
    Nanos max_gap_ns = 0;
    unsigned seconds = 1;   // covered; more than one when the report itself came late
    double late_share = 0;  // of the window
    bool starved = false;   // no receive buffer left
    bool peers_complain = false;
  };
  std::deque<Beat> beats;                                      // newest last
  std::map<Nanos, std::map<std::string, Nanos>> slow_answers;  // second -> prober -> responder delay
  bool overloaded = false;
  Nanos overloaded_since = 0;
  std::vector<Span> loss_taint, delay_taint;
  // Late for moments: some of its round trips have the wait in them, the fastest of a second has not.
  std::vector<Span> delay_doubt;
  std::map<std::string, EndpointState> endpoints;  // by device
};

class HostBook {
 public:
  HostBook(Nanos silent_after_ns, Nanos delay_floor_ns)
      : silent_after_(silent_after_ns), delay_floor_(delay_floor_ns) {}

  // Null when the bound is reached.
  Host* touch(const std::string& name, Nanos now);
  const Host* find(const std::string& name) const;

  void on_contact(Host& host, Nanos at);
  void on_start(Host& host, std::uint64_t epoch, Nanos at);
  void on_goodbye(Host& host, Nanos allowance, Nanos at);
  void on_inventory(Host& host, const model::Inventory& inventory, Nanos at);
  void on_health(Host& host, const model::HostHealth& health, Nanos at);
  void on_slow_answer(Host& host, const std::string& prober, Nanos delay, Nanos at);

  HostState state(const Host& host, Nanos now) const;
  // How long this host may say nothing before it is silent: a host whose last words were that it runs late is heard
  // now and then, and gets more time than one that falls silent out of nothing.
  Nanos silence_allowed(const Host& host, Nanos now) const;
  // Up to when the host has shown that it was alive and on time.
  Nanos confirmed_until(const Host& host) const;
  // Once a judge(): N of M on scheduling gaps, with hysteresis; forgets old spans.
  void review(Nanos now);

  // Rises when what the planner goes by changes: offers, starts, goodbyes.
  std::uint64_t revision() const { return revision_; }

  const std::map<std::string, Host>& all() const { return hosts_; }
  std::map<std::string, Host>& all() { return hosts_; }

  // A gap from which on timeouts accuse nobody, and the one that counts towards overload.
  static constexpr Nanos kLossGap = 200 * kMillisecond;
  static constexpr Nanos kOverloadGap = 150 * kMillisecond;

 private:
  Nanos silent_after_;
  Nanos delay_floor_;
  std::uint64_t revision_ = 1;
  std::map<std::string, Host> hosts_;
};

}  // namespace weft::localise
