#include "agent/daemon/daemon.h"

#include <signal.h>
#include <unistd.h>

#include <asio.hpp>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

#include "agent/collectors/health/scheduling_gaps.h"
#include "agent/collectors/inventory/device_gatherer.h"
#include "agent/collectors/inventory/link_watch.h"
#include "agent/collectors/inventory/uevent_watch.h"
#include "agent/daemon/chores.h"
#include "agent/daemon/epoch.h"
#include "agent/daemon/grpc_link.h"
#include "agent/daemon/metrics_server.h"
#include "agent/daemon/pipeline.h"
#include "agent/daemon/real_parts.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/thread_name.h"
#include "weft_config.h"

namespace weft::agent {
namespace {

constexpr Nanos kTick = kSecond;
// Windows of a second have closed by then (kSettle of the engine), and go out at once.
constexpr Nanos kTickPhase = 380 * kMillisecond;
// Containers that come and go change links all the time; reading the devices twice a second follows well enough.
constexpr Nanos kInventoryPause = 500 * kMillisecond;
constexpr Nanos kStopWithin = 1'500 * kMillisecond;

// Lets threads that outlive the loop post into nothing.
struct Gate {
  std::mutex mutex;
  asio::io_context* io = nullptr;
};

Post make_post(std::shared_ptr<Gate> gate) {
  return [gate = std::move(gate)](std::function<void()> work) {
    std::lock_guard lock(gate->mutex);
    if (gate->io != nullptr) asio::post(*gate->io, std::move(work));
  };
}

// Detached: a call that a broken device never returns from must not keep weftd from going on or stopping. busy counts
// those still out there.
Spawn make_spawn(std::shared_ptr<std::atomic<int>> busy) {
  return [busy = std::move(busy)](std::function<void()> work) {
    ++*busy;
    std::thread([busy, work = std::move(work)]() mutable {
      work();
      work = nullptr;
      --*busy;
    }).detach();
  };
}

std::string first_line(const FileReader& files, const std::string& path) {
  const auto text = read_trimmed(files, path);
  return text ? *text : "";
}

class Daemon {
 public:
  Daemon(const DaemonOptions& options, Settings settings) : options_(options) {
    gate_->io = &io_;
    host_ = settings.agent_name;
    post_ = make_post(gate_);
    spawn_ = make_spawn(busy_);
    gatherer_ = make_gatherer();
    links_ = std::make_unique<GrpcLinks>(post_);
    Identity identity;
    identity.version = WEFT_VERSION;
    identity.kernel = first_line(files_, options_.roots.proc + "/sys/kernel/osrelease");
    identity.boot_id = first_line(files_, options_.roots.proc + "/sys/kernel/random/boot_id");
    std::string problem;
    identity.epoch = next_epoch(files_, settings.state_dir, clock_, problem);
    if (!problem.empty()) {
      log::warning("daemon", "no state folder; the wall clock alone tells this start from the last",
                   {{"reason", problem}});
    }
    PipelineParts parts{clock_,
                        post_,
                        spawn_,
                        [this](std::function<void(LinkEvent)> events) { return links_->make(std::move(events)); },
                        [this](const Settings& now) { return real_engines(now, clock_); },
                        [this](const Settings& now) { return real_tracer(now, clock_); },
                        [this] { return std::uniform_real_distribution<double>(0.0, 1.0)(random_); }};
    pipeline_ = std::make_unique<Pipeline>(std::move(settings), std::move(identity), std::move(parts));
  }

  int run(const HostPort& listen) {
    auto server = MetricsServer::start(listen, clock_);
    if (!server) {
      log::error("daemon", "cannot start", {{"reason", server.error().message()}});
      return 1;
    }
    server_ = std::move(*server);
    log::info("daemon", "started",
              {{"version", WEFT_VERSION}, {"metrics", listen.host + ":" + std::to_string(server_->port())}});
    watch_signals();
    watch_devices();
    watch_links();
    read_inventory();
    schedule_tick();
    io_.run();
    {
      std::lock_guard lock(gate_->mutex);
      gate_->io = nullptr;
    }
    if (uevents_) uevent_fd_.release();  // the watches own theirs
    if (links_watch_) link_fd_.release();
    pipeline_->log_totals();
    pipeline_.reset();
    server_.reset();
    log::info("daemon", "stopped");
    // A thread still in a driver's call would run into what exit() takes down.
    if (*busy_ > 0) ::_exit(0);
    return 0;
  }

 private:
  void watch_signals() {
    signals_.async_wait([this](const asio::error_code& error, int number) {
      if (error) return;
      if (number == SIGHUP) {
        reload();
      } else {
        stop(number == SIGINT ? "SIGINT" : "SIGTERM");
      }
      watch_signals();
    });
  }

  void reload() {
    if (stopping_) return;
    notify_service_manager("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(clock_.monotonic_ns() / kMicrosecond));
    auto settings = load_settings(files_, options_.config_path, options_.host_name);
    if (settings) {
      if (!options_.log_level.empty()) log::parse_level(options_.log_level, settings->log_level);
      pipeline_->reload(std::move(*settings));
      log::info("config", "read again", {{"file", options_.config_path}});
    } else {
      pipeline_->config_rejected();
      log::error("config", "the new configuration is bad; the old one stays", {{"reason", settings.error().message()}});
    }
    notify_service_manager("READY=1");
    arm_wake();
  }

  void stop(const std::string& reason) {
    if (stopping_) return;
    stopping_ = true;
    stop_by_ = clock_.monotonic_ns() + kStopWithin;
    log::info("daemon", "stopping", {{"reason", reason}});
    notify_service_manager("STOPPING=1");
    pipeline_->stop(reason);
    tick_timer_.cancel();
    read_timer_.cancel();
    if (uevents_) uevent_fd_.cancel();
    if (links_watch_) link_fd_.cancel();
    await_stop();
  }

  void await_stop() {
    pipeline_->on_wake();
    if (pipeline_->stopped() || clock_.monotonic_ns() >= stop_by_) {
      if (!pipeline_->stopped()) log::warning("daemon", "stopping without waiting longer");
      io_.stop();
      return;
    }
    wake_timer_.expires_after(std::chrono::milliseconds(10));
    wake_timer_.async_wait([this](const asio::error_code&) { await_stop(); });
  }

  void schedule_tick() {
    // Missed ticks are gone, not made up for; but one that came late does not put off the next.
    const Nanos now = clock_.monotonic_ns();
    const Nanos next = (now + kTick / 4 - kTickPhase) / kTick * kTick + kTickPhase + kTick;
    tick_timer_.expires_after(std::chrono::nanoseconds(next - now));
    tick_timer_.async_wait([this](const asio::error_code& error) {
      if (error || stopping_) return;
      on_tick();
      schedule_tick();
    });
  }

  void on_tick() {
    const model::HostHealth health = health_.take_window();
    const DueChores due = chores_.next(health.max_gap_ns);
    pipeline_->on_second(health);
    arm_wake();
    gatherer_->tick();
    if (due.inventory) read_inventory();
    const bool healthy = pipeline_->ready() && pipeline_->progressing();
    if (due.page || healthy != healthy_told_) {
      server_->publish(pipeline_->page(inventory_counts()), healthy,
                       pipeline_->ready() ? "every device blocks in its driver" : "no inventory yet");
    }
    healthy_told_ = healthy;
    tell_service_manager(healthy);
  }

  InventoryCounts inventory_counts() const {
    const auto messages = [](const auto& counts) {
      return InventoryCounts::Messages{counts.received, counts.malformed, counts.overruns};
    };
    InventoryCounts out;
    if (uevents_) out.uevents = messages(uevents_->counts());
    if (links_watch_) out.links = messages(links_watch_->counts());
    out.values = gatherer_->counts();
    return out;
  }

  // The kernel tells of a device that goes before it waits for those who hold it.
  void watch_devices() {
    auto source = inventory::open_kernel_uevents();
    if (!source) {
      log::warning("inventory", "no device events; changes are seen within seconds",
                   {{"reason", source.error().message()}});
      return;
    }
    uevents_ = std::make_unique<inventory::UeventWatch>(std::move(*source), files_, options_.roots.sys);
    uevent_fd_.assign(uevents_->fd());
    await_device_event();
  }

  void await_device_event() {
    uevent_fd_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const asio::error_code& error) {
      if (error || stopping_) return;
      const auto events = uevents_->take();
      if (!events) {
        log::error("inventory", "device events ended; changes are seen within seconds",
                   {{"reason", events.error().message()}});
        return;
      }
      for (const inventory::DeviceEvent& event : *events) {
        using Kind = inventory::DeviceEvent::Kind;
        if (event.kind == Kind::Removed) pipeline_->on_device_gone(event.device);
        if (event.kind == Kind::Added) pipeline_->on_device_back(event.device);
        if (event.kind == Kind::Lost) pipeline_->on_device_back("");
      }
      if (!events->empty()) {
        outdated_ = gatherer_->busy();  // what is being read now may be of before
        on_change();
        arm_wake();
      }
      await_device_event();
    });
  }

  void watch_links() {
    auto source = inventory::open_link_messages();
    if (!source) {
      log::warning("inventory", "no link messages; a lost carrier is seen within seconds",
                   {{"reason", source.error().message()}});
      return;
    }
    links_watch_ = std::make_unique<inventory::LinkWatch>(std::move(*source));
    link_fd_.assign(links_watch_->fd());
    await_link_message();
  }

  void await_link_message() {
    link_fd_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const asio::error_code& error) {
      if (error || stopping_) return;
      const auto changed = links_watch_->take();
      if (!changed) {
        log::error("inventory", "link messages ended; a lost carrier is seen within seconds",
                   {{"reason", changed.error().message()}});
        return;
      }
      if (*changed) on_change();
      await_link_message();
    });
  }

  void on_change() {
    chores_.changed();
    read_soon();
  }

  void read_soon() {
    const Nanos pause = reading_since_ + kInventoryPause - clock_.monotonic_ns();
    if (gatherer_->busy()) {
      read_again_ = true;
    } else if (reading_since_ != 0 && pause > 0) {
      read_timer_.expires_after(std::chrono::nanoseconds(pause));
      read_timer_.async_wait([this](const asio::error_code& error) {
        if (!error && !stopping_) read_inventory();
      });
    } else {
      read_inventory();
    }
  }

  void tell_service_manager(bool healthy) {
    if (!ready_told_ && pipeline_->ready()) {
      ready_told_ = true;
      notify_service_manager("READY=1");
    }
    const std::string status = pipeline_->status_line();
    if (status != status_told_) notify_service_manager("STATUS=" + status);
    status_told_ = status;
    if (watchdog_ns_ > 0 && healthy) notify_service_manager("WATCHDOG=1");
  }

  // One timer for the stream's next deadline; a busy session is driven by its events.
  void arm_wake() {
    if (stopping_) return;
    const Nanos due = pipeline_->next_wake_ns();
    if (due == INT64_MAX) return;
    wake_timer_.expires_after(std::chrono::nanoseconds(std::max<Nanos>(due - clock_.monotonic_ns(), 0)));
    wake_timer_.async_wait([this](const asio::error_code& error) {
      if (error || stopping_) return;
      pipeline_->on_wake();
      arm_wake();
    });
  }

  // Reading a port may ask firmware, which may block: off the loop, one at a time.
  void read_inventory() {
    if (gatherer_->busy()) {
      read_again_ = true;
      return;
    }
    read_again_ = false;
    reading_since_ = clock_.monotonic_ns();
    gatherer_->start([post = post_, roots = options_.roots, this] {
      name_this_thread("weft-inventory");
      auto interfaces = std::make_shared<Result<std::vector<NetInterface>>>(list_interfaces(SystemFiles(), roots.sys));
      // The loop, and so this daemon, lives when posted work runs.
      post([this, interfaces] { interfaces_ = *interfaces ? std::move(**interfaces) : std::vector<NetInterface>{}; });
    });
  }

  void on_inventory(Result<model::Inventory> inventory) {
    if (!std::exchange(outdated_, false)) pipeline_->on_inventory(std::move(inventory), interfaces_);
    if (std::exchange(read_again_, false)) read_soon();
    arm_wake();
  }

  std::unique_ptr<inventory::DeviceGatherer> make_gatherer() {
    inventory::DeviceGatherer::Options options;
    options.inventory.sys_root = options_.roots.sys;
    options.inventory.host = host_;
    return std::make_unique<inventory::DeviceGatherer>(
        std::move(options), std::make_shared<SystemFiles>(), spawn_, post_, clock_,
        [this](Result<model::Inventory> inventory) { on_inventory(std::move(inventory)); });
  }

  const DaemonOptions options_;
  const SystemClock clock_;
  const SystemFiles files_;
  asio::io_context io_{1};
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::shared_ptr<std::atomic<int>> busy_ = std::make_shared<std::atomic<int>>(0);
  Post post_;
  Spawn spawn_;
  asio::signal_set signals_{io_, SIGTERM, SIGINT, SIGHUP};
  asio::steady_timer tick_timer_{io_};
  asio::steady_timer wake_timer_{io_};
  std::mt19937_64 random_{std::random_device{}()};
  std::string host_;
  std::unique_ptr<GrpcLinks> links_;  // outlives the links of the pipeline
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<inventory::UeventWatch> uevents_;
  asio::posix::stream_descriptor uevent_fd_{io_};
  std::unique_ptr<inventory::LinkWatch> links_watch_;
  asio::posix::stream_descriptor link_fd_{io_};
  asio::steady_timer read_timer_{io_};
  std::vector<NetInterface> interfaces_;  // of the last reading
  std::unique_ptr<inventory::DeviceGatherer> gatherer_;
  health::HealthMonitor health_{clock_, files_, options_.roots.proc};
  std::unique_ptr<MetricsServer> server_;
  const Nanos watchdog_ns_ = watchdog_interval_ns();
  Chores chores_;
  bool healthy_told_ = false;
  bool stopping_ = false;
  Nanos stop_by_ = 0;
  bool ready_told_ = false;
  std::string status_told_;
  bool read_again_ = false, outdated_ = false;
  Nanos reading_since_ = 0;
};

}  // namespace

int run_daemon(const DaemonOptions& options, Settings settings) {
  if (!options.log_level.empty()) log::parse_level(options.log_level, settings.log_level);
  log::set_level(settings.log_level);
  ::signal(SIGPIPE, SIG_IGN);
  const HostPort listen = settings.metrics;
  Daemon daemon(options, std::move(settings));
  return daemon.run(listen);
}

}  // namespace weft::agent
