// A leaf-spine fabric of hosts with agents, told second by second to a Localiser, with faults to inject. Deterministic.
// Windows, traces, health and inventories are made as weftd makes them: losses decided 500 ms after the probe, the
// direction known when a later probe of the path was answered before that, agents reporting once a second out of step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/detect/finding_tracker.h"
#include "lib/localise/fabric.h"
#include "lib/localise/localiser.h"

namespace weft::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  std::uint64_t next();
  double uniform();  // [0, 1)
  bool chance(double p) { return p > 0 && uniform() < p; }
  std::uint64_t below(std::uint64_t n) { return next() % n; }

 private:
  std::uint64_t state_;
};

struct Noise {
  double rtt_ms = 2;              // typical
  double tail = 0.01;             // share of probes that take up to ten times as long
  double host_stall_per_s = 0;    // of each host, 20 ms to the most, seen in its health
  double fabric_stall_per_s = 0;  // of everything, 20 to 400 ms, seen nowhere
  double loss = 0;                // of each directed link
  double host_stall_most_ms = 250;
  static Noise emulated() { return {2.5, 0.02, 1.0 / 60, 1.0 / 90, 0, 250}; }
  static Noise production() { return {0.008, 0.01, 0, 0, 0.00002, 250}; }
};

struct SimConfig {
  unsigned leaves = 2, hosts_per_leaf = 2, spines = 2;
  unsigned devices = 1;  // of each host: rxe0 on the host's leaf, rxe1 on the next one
  bool topology = true;
  bool inbound_addresses = true;  // routers answer from the interface the packet came in by
  bool hop_counts = true;         // agents count hops of traces that the plan asks for
  double silent_hop = 0.05;
  bool udp = false;              // probes over UDP: both ports choose each way
  bool limited_routers = false;  // at the default ICMP limit: agents count what the tracer would dare to ask
  unsigned ports = 8;
  std::uint64_t seed = 1;
  Noise noise = Noise::emulated();
  localise::LocaliserConfig localiser;
};

struct LinkFault {
  double loss = 0, ce = 0;
  double delay_ms = 0;
  bool bleach = false;
};

struct SimHost {
  std::string name;
  unsigned leaf = 0;
  bool frozen = false;                     // SIGSTOP: neither answers nor reports nor probes
  bool stopped = false;                    // weftd ended
  bool device = true, port_up = true;      // of rxe0
  bool reports = true;                     // false: only the management network is cut
  double hog = 0;                          // share of time that nothing is scheduled, in bursts
  unsigned report_every_s = 1;             // the main loop comes so late; it reports for all the time since
  double receive_loss = 0, send_loss = 0;  // of rxe0
  std::uint64_t epoch = 1, agent_epoch = 1;
  std::set<std::string> peers_refused;  // pairs a filter drops
};

class Simulator {
 public:
  explicit Simulator(SimConfig config);

  SimHost& host(const std::string& name) { return hosts_.at(name); }
  void set_busy_ms(double ms) { busy_ms_ = ms; }  // every second all round trips take up to so much longer, together
  LinkFault& link(const std::string& directed) { return faults_[directed]; }  // "s1>l2", "h1>l1"
  void both_ways(const std::string& a, const std::string& b, LinkFault fault);
  void clear_links() { faults_.clear(); }
  void goodbye(const std::string& host, Nanos allowance);
  void start(const std::string& host);
  void send_inventory(const std::string& host);
  // Agents keep running, the aggregator loses all it knew but the active findings.
  void restart_aggregator();

  void step();  // one second
  void run(unsigned seconds) {
    for (unsigned i = 0; i < seconds; ++i) step();
  }
  // Runs until a finding of the kind and subject is raised, at most so many seconds. Seconds it took.
  std::optional<double> until(model::FindingKind kind, const std::string& subject, unsigned seconds);

  Nanos now() const { return now_; }
  localise::Localiser& localiser() { return *localiser_; }
  detect::FindingTracker& tracker() { return tracker_; }
  // "link_loss link:s1>l2" of every finding ever raised that is more than information.
  const std::vector<std::string>& raised() const { return raised_; }
  const std::vector<model::Finding>& raised_findings() const { return raised_findings_; }
  std::vector<std::string> active() const;
  // Everything raised, information too.
  const std::vector<std::string>& told() const { return told_; }
  std::vector<std::string> host_names() const;
  unsigned spine_of(const std::string& from, const std::string& to, localise::UdpPorts ports) const;
  std::map<std::string, model::ProbePlan> plans() const { return plans_; }
  double judge_seconds() const { return judge_seconds_; }
  std::uint64_t windows() const { return windows_; }

 private:
  struct Crossing {
    std::string name;
    LinkFault fault;
  };
  struct Probe {
    double sent_at = 0;
    int outcome = 0;  // 0 acknowledged, 1 lost out, 2 lost back
    double rtt_ms = 0;
    bool ce_out = false, ce_back = false, bleach_out = false, bleach_back = false, late = false;
  };
  struct Sent {
    std::vector<Probe> probes;  // undecided ones
    double credit = 0;
  };

  void build_topology();
  // Of a port, "h1/rxe0".
  std::vector<std::string> way(const std::string& from, const std::string& to, localise::UdpPorts ports) const;
  std::string leaf_of(const SimHost& host, unsigned device) const;
  std::uint16_t first_port(const std::string& port) const;
  std::string address_of(const std::string& node, const std::string& from) const;
  void agent_second(SimHost& host, double at);
  void probe_path(SimHost& host, const model::PlanTarget& target, std::uint16_t forward, std::uint16_t back,
                  double rate, double at);
  void trace(SimHost& host, unsigned device, const std::string& to, localise::UdpPorts ports, double at,
             unsigned counted);
  static bool away(const SimHost& host, unsigned device);
  bool burst(const SimHost& host, double at) const;
  double stall_ms(const std::string& host, double at) const;

  SimConfig config_;
  Random random_;
  localise::Topology topology_;
  std::string topology_text_;
  std::map<std::string, SimHost> hosts_;
  std::map<std::string, LinkFault> faults_;
  std::unique_ptr<localise::Localiser> localiser_;
  detect::FindingTracker tracker_;
  std::map<std::string, model::ProbePlan> plans_;
  std::map<model::PathKey, Sent> sent_;
  std::map<std::string, std::map<std::string, double>> traced_at_;
  std::map<std::string, double> router_tokens_;  // "h1 s1"
  std::set<std::string> known_hops_;
  struct Stall {
    double from, to;
  };
  std::map<std::string, Stall> host_stall_;
  Stall fabric_stall_{0, 0};
  double busy_ms_ = 0, busy_now_ms_ = 0;
  Nanos now_ = 1'000 * kSecond;
  std::vector<std::string> raised_, told_;
  std::vector<model::Finding> raised_findings_;
  double judge_seconds_ = 0;
  std::uint64_t windows_ = 0;
};

std::string describe(const model::Finding& finding);

}  // namespace weft::test
