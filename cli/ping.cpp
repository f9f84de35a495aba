#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/direct.h"
#include "cli/format.h"
#include "cli/option_files.h"
#include "cli/path_tracing.h"
#include "cli/ping_report.h"
#include "cli/stop.h"
#include "cli/terminal.h"

namespace weft::cli {
namespace {

constexpr Nanos kHelloWait = 4 * kSecond;  // five tries take 3.4 s, and then say what they found
constexpr Nanos kForever = 365LL * 86400 * kSecond;
constexpr Nanos kTick = 20 * kMillisecond;
constexpr double kMaxLinesPerSecond = 25;

struct Target {
  HostAddress host;
  std::size_t place = 0;
  PingStats stats;
  bool answered = false, finished = false;
  std::string trouble;
  bool tried = true;  // false: not measured at all, for the reason in trouble
};

class PingRun {
 public:
  PingRun(const PingOptions& options, Output& output, const Clock& clock)
      : o_(options), output_(output), clock_(clock) {}

  ExitCode run() {
    const Nanos started = clock_.monotonic_ns();
    auto files = read_option_files(o_.direct);
    if (!files) return output_.fail("ping", files.error());
    names_ = std::move(files->names);
    if (auto opened = open(files->key); !opened) return output_.fail("ping", opened.error());
    const std::optional<Nanos> deadline = o_.deadline_ns ? std::optional(started + *o_.deadline_ns) : std::nullopt;
    const Nanos hello_until = clock_.monotonic_ns() + kHelloWait;
    bool late = false;
    while (!stop_asked() && !output_.closed()) {
      take();
      const Nanos now = clock_.monotonic_ns();
      look_at_peers(now >= hello_until);
      if (std::all_of(targets_.begin(), targets_.end(), [](const auto& t) { return t.finished; })) break;
      if (deadline && now >= *deadline) {
        late = o_.count > 0;
        break;
      }
      sleep_until(clock_, now + kTick);
    }
    settle(deadline);
    return report(late);
  }

 private:
  Result<void> open(const probes::FabricKey& key) {
    std::vector<std::string> names;
    for (const std::string& text : o_.hosts) {
      if (std::find(names.begin(), names.end(), text) == names.end()) names.push_back(text);
    }
    // Steps that may block share the deadline; with several hosts a blocked one leaves half of it to the others.
    const Nanos whole = o_.deadline_ns.value_or(kForever);
    const Nanos share = names.size() > 1 ? whole / 2 : whole;
    std::vector<HostAddress> hosts;
    std::vector<Error> errors;
    const auto resolved = resolve_hosts(names, std::min<Nanos>(share, 5 * kSecond));
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (resolved[i]) {
        hosts.push_back(*resolved[i]);
      } else {
        errors.push_back(resolved[i].error());
        if (names.size() > 1) add_failed({names[i], ""}, errors.back());
      }
    }
    if (hosts.empty()) return all_failed(errors);
    EngineNeeds needs;
    needs.key = key;
    per_host_ = 1e9 / static_cast<double>(o_.interval_ns);
    needs.open_within_ns = std::min(needs.open_within_ns, share);
    needs.probes_per_s = per_host_ * static_cast<double>(hosts.size());
    needs.ports = o_.port != 0 ? 1 : o_.ports;
    needs.timeout_ns = o_.timeout_ns;
    auto direct = Direct::open(o_.direct, hosts, needs, clock_);
    if (!direct) {
      errors.push_back(cannot_measure(direct.error()));
      return all_failed(errors);
    }
    direct_ = std::move(*direct);
    for (const std::string& note : direct_->notes()) output_.say("weft ping: " + printable(note));
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (const Error* failed = direct_->failed(i)) {
        add_failed(hosts[i], *failed);
      } else {
        targets_.push_back({hosts[i], direct_->place_index(i), PingStats(o_.count), false, false, "", true});
      }
    }
    // As asked: those that failed stand where they were named.
    std::stable_sort(targets_.begin(), targets_.end(), [&](const Target& a, const Target& b) {
      return std::find(names.begin(), names.end(), a.host.name) < std::find(names.begin(), names.end(), b.host.name);
    });
    if (!o_.no_path) tracing_.emplace(o_.direct.traffic_class, clock_);
    for (const auto& place : direct_->places()) {
      if (!output_.json) {
        output_.say("measuring from " + place.label + " (" + printable(how_chosen(place.local)) + "), a probe every " +
                    format_ns(o_.interval_ns) + " to each host");
      }
    }
    set_targets();
    return {};
  }

  // Told at once, and again in the report; the others are measured.
  void add_failed(HostAddress host, const Error& error) {
    const std::string why = error.message();
    output_.say("weft ping: " + printable(host.name) + ": cannot measure: " + printable(why));
    targets_.push_back({std::move(host), kNoPlace, PingStats(o_.count), false, true, why, false});
  }

  void set_targets() {
    for (std::size_t p = 0; p < direct_->places().size(); ++p) {
      auto& place = direct_->places()[p];
      const std::vector<std::uint16_t> ports =
          o_.port != 0 ? std::vector{o_.port} : direct_->ports(place, std::max(1U, o_.ports));
      std::vector<model::PlanTarget> plan;
      for (const Target& t : targets_) {
        if (t.place != p) continue;
        model::PlanTarget target{place.local.device, t.host.name, t.host.address, o_.direct.hello_port, {}};
        for (std::uint16_t port : ports) {
          target.paths.push_back({port, 0, per_host_ / static_cast<double>(ports.size())});
        }
        if (ports.empty()) target.paths.push_back({0, 0, per_host_});
        plan.push_back(std::move(target));
      }
      place.engine->set_targets(std::move(plan));
    }
  }

  Target* find(std::size_t place, const std::string& to) {
    for (Target& t : targets_) {
      if (t.place == place && t.host.name == to) return &t;
    }
    return nullptr;
  }

  void take() {
    while (auto placed = direct_->outcomes().try_pop()) {
      Target* t = find(placed->place, placed->outcome.key.to);
      if (t == nullptr) continue;
      const bool counted = t->stats.add(placed->outcome);
      using probes::ProbeResult;
      if (placed->outcome.result != ProbeResult::LocalError && placed->outcome.result != ProbeResult::Timeout) {
        t->answered = true;
      }
      if (counted) show(*t, placed->outcome);
      if (tracing_) tracing_->see(t->host, direct_->places()[placed->place], placed->outcome);
      t->finished |= t->stats.done();  // probing goes on: later acknowledgements tell where earlier probes were lost
    }
    for (std::size_t p = 0; p < direct_->places().size(); ++p) {
      for (const auto& window : direct_->places()[p].engine->take_windows()) {
        if (Target* t = find(p, window.key.to)) t->stats.add(window);
      }
    }
  }

  void show(const Target& t, const probes::ProbeOutcome& outcome) {
    if (output_.json || o_.quiet) return;
    const bool remarkable = outcome.result != probes::ProbeResult::Ok;
    if (!remarkable && per_host_ * static_cast<double>(targets_.size()) > kMaxLinesPerSecond) return;
    output_.out << outcome_line(t.host.name, outcome, o_.ports > 1, output_.paint) << '\n' << std::flush;
  }

  void look_at_peers(bool hello_over) {
    for (Target& t : targets_) {
      if (t.finished) continue;
      const probes::Engine& engine = *direct_->places()[t.place].engine;
      if (const std::string failure = engine.failure(); !failure.empty()) {
        t.trouble = failure;
        t.finished = true;
        continue;
      }
      const auto peer = peer_status(engine, t.host.name);
      if (peer && peer->state == probes::PeerState::Ready) t.answered = true;
      // Also of one that answered before: lost probes to a responder that is gone are not the network's.
      if (peer) t.trouble = peer->reason;
      if (t.answered) continue;
      if (hello_over || (peer && peer->state == probes::PeerState::Refused)) t.finished = true;
    }
  }

  // Probes still under way, the direction of losses (told by later windows) and the last traces.
  void settle(std::optional<Nanos> deadline) {
    const Nanos now = clock_.monotonic_ns();
    Nanos until = now;
    const bool lossy = std::any_of(targets_.begin(), targets_.end(), [](const auto& t) {
      const PingSummary s = t.stats.summary();
      return s.lost > s.forward.lost + s.back.lost;
    });
    if (lossy) until = now + o_.timeout_ns + 1500 * kMillisecond;
    if (tracing_ && !tracing_->finished()) until = std::max(until, now + kSecond);
    if (deadline) until = std::min(until, std::max(now, *deadline + 200 * kMillisecond));
    while (clock_.monotonic_ns() < until) {
      take();
      if (!lossy && (!tracing_ || tracing_->finished())) break;
      if (!sleep_until(clock_, clock_.monotonic_ns() + kTick)) {
        (void)::usleep(20'000);  // stop was asked already: still give the windows their moment
      }
    }
    take();
  }

  ExitCode report(bool late) {
    ExitCode code = ExitCode::Healthy;
    std::vector<HostReport> reports;
    bool any_missing = false, any_finding = false;
    for (Target& t : targets_) {
      HostReport r;
      r.host = t.host.name;
      r.address = t.host.address;
      r.tried = t.tried;
      r.answered = t.answered;
      r.trouble = t.trouble;
      r.payload_bytes = o_.direct.size_bytes;
      r.summary = t.stats.summary();
      if (t.tried) {
        const Direct::Place& place = direct_->places()[t.place];
        r.local = place.label;
        r.local_why = how_chosen(place.local);
        if (!r.summary.rung) r.summary.rung = place.rung;
      }
      if (t.tried && tracing_) {
        r.path_by_port = tracing_->paths(t.host.name, names_);
        r.path_note = tracing_->note();
      }
      const ExitCode one = ping_exit(r);
      any_finding |= one == ExitCode::Findings;
      any_missing |= one == ExitCode::CannotMeasure;
      reports.push_back(std::move(r));
    }
    if (any_finding) {
      code = ExitCode::Findings;
    } else if (late) {
      code = ExitCode::Deadline;
    } else if (any_missing) {
      code = ExitCode::CannotMeasure;
    }
    if (output_.json) {
      nlohmann::json body{{"hosts", nlohmann::json::array()}};
      for (const HostReport& r : reports) body["hosts"].push_back(ping_json(r));
      if (code == ExitCode::CannotMeasure) {
        body["error"] = {{"kind", "cannot_measure"}, {"message", first_trouble(reports)}};
      } else if (code == ExitCode::Deadline) {
        body["error"] = {{"kind", "timeout"}, {"message", "the deadline passed before all probes were done"}};
      }
      return output_.finish_json("ping", code, std::move(body));
    }
    for (const HostReport& r : reports) {
      output_.out << '\n' << ping_report(r, output_.paint);
      if (const std::string hint = ping_hint(r); !hint.empty()) output_.out << "  next: " << hint << '\n';
    }
    output_.out << std::flush;
    if (code == ExitCode::Deadline) output_.say("weft ping: the deadline passed before all probes were done");
    if (const auto dropped = direct_->outcomes().dropped(); dropped > 0) {
      output_.say("weft ping: " + count_of(dropped, "outcome") + " not counted: too many to keep up with");
    }
    return code;
  }

  static std::string first_trouble(const std::vector<HostReport>& reports) {
    for (const HostReport& r : reports) {
      if (ping_exit(r) != ExitCode::CannotMeasure) continue;
      const std::string why = ping_trouble(r);
      if (!r.tried) return r.host + ": " + why;
      return r.host + ": " + (r.answered ? "no probe counts" : "no answer to the hello") +
             (why.empty() ? "" : ": " + why);
    }
    return "";
  }

  const PingOptions& o_;
  Output& output_;
  const Clock& clock_;
  RouteNames names_;
  double per_host_ = 1;
  std::unique_ptr<Direct> direct_;
  std::vector<Target> targets_;
  std::optional<PathTracing> tracing_;
};

}  // namespace

ExitCode run_ping(const PingOptions& options, Output& output, const Clock& clock) {
  return PingRun(options, output, clock).run();
}

}  // namespace weft::cli
