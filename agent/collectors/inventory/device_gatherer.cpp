#include "agent/collectors/inventory/device_gatherer.h"

#include <deque>
#include <mutex>
#include <utility>

#include "lib/base/log.h"
#include "lib/model/subject.h"

namespace weft::inventory {

struct DeviceGatherer::Alive {
  DeviceGatherer* gatherer = nullptr;  // read and written on the main loop only
};

// One reading of all devices. Shared with its threads, of which any may never come back.
struct DeviceGatherer::Job {
  std::shared_ptr<const FileReader> files;
  InventoryOptions options;
  Run post;
  std::shared_ptr<Alive> alive;
  std::set<std::string> skip;
  std::map<std::string, std::shared_ptr<GidMemory>> gids;

  std::mutex mutex;          // of all below
  std::uint64_t worker = 0;  // whose results count
  std::uint64_t steps = 0;
  bool listed = false;
  Listing listing;
  std::deque<std::string> queue;  // the first is being read
  std::map<std::string, DeviceReading> read;
};

DeviceGatherer::DeviceGatherer(Options options, std::shared_ptr<const FileReader> files, Run spawn, Run post,
                               const Clock& clock, std::function<void(Result<model::Inventory>)> done)
    : options_(std::move(options)),
      files_(std::move(files)),
      spawn_(std::move(spawn)),
      post_(std::move(post)),
      clock_(clock),
      done_(std::move(done)),
      alive_(std::make_shared<Alive>()) {
  alive_->gatherer = this;
}

DeviceGatherer::~DeviceGatherer() { alive_->gatherer = nullptr; }

void DeviceGatherer::start(Work also) {
  if (busy() || listing_stuck_) return;
  job_ = std::make_shared<Job>();
  job_->files = files_;
  job_->options = options_.inventory;
  job_->post = post_;
  job_->alive = alive_;
  job_->skip = stuck_;
  job_->gids = gids_;
  seen_steps_ = 0;
  stepped_ns_ = clock_.monotonic_ns();
  spawn_([job = job_, also = std::move(also)] { list(job, also); });
}

void DeviceGatherer::list(const std::shared_ptr<Job>& job, const Work& also) {
  also();
  Listing listing = list_devices(*job->files, job->options);
  {
    std::lock_guard lock(job->mutex);
    if (job->worker != 0) {
      job->post([alive = job->alive] {
        if (alive->gatherer != nullptr) alive->gatherer->listing_stuck_ = false;
      });
      return;
    }
    for (const std::string& device : listing.devices) {
      if (job->skip.count(device) == 0) job->queue.push_back(device);
      std::shared_ptr<GidMemory>& memory = job->gids[device];
      if (!memory) memory = std::make_shared<GidMemory>();
    }
    job->listing = std::move(listing);
    job->listed = true;
    ++job->steps;
  }
  work(job, 0);
}

void DeviceGatherer::work(const std::shared_ptr<Job>& job, std::uint64_t worker) {
  for (;;) {
    std::string device;
    InventoryOptions options = job->options;
    {
      std::lock_guard lock(job->mutex);
      if (job->worker != worker) return;
      if (job->queue.empty()) break;
      device = job->queue.front();
      options.gids = job->gids[device].get();
    }
    // The listing no longer changes.
    DeviceReading reading = read_device(*job->files, options, job->listing, device);
    std::lock_guard lock(job->mutex);
    if (job->worker != worker) {
      job->post([alive = job->alive, device] {
        if (alive->gatherer != nullptr) alive->gatherer->returned(device);
      });
      return;
    }
    job->read.emplace(device, std::move(reading));
    job->queue.pop_front();
    ++job->steps;
  }
  job->post([job] {
    if (job->alive->gatherer != nullptr) job->alive->gatherer->finish(job);
  });
}

void DeviceGatherer::returned(const std::string& device) {
  if (stuck_.erase(device) > 0) log::info("inventory", "reading the device has returned", {{"device", device}});
}

void DeviceGatherer::tick() {
  if (!busy()) return;
  const std::shared_ptr<Job> job = job_;
  std::uint64_t next = 0;
  {
    std::lock_guard lock(job->mutex);
    const Nanos now = clock_.monotonic_ns();
    if (std::exchange(seen_steps_, job->steps) != job->steps) stepped_ns_ = now;
    if (now - stepped_ns_ < options_.patience_ns) return;
    if (job->listed && job->queue.empty()) return;  // its end is on its way
    stepped_ns_ = now;
    next = ++job->worker;
    if (job->listed) {
      log::warning("inventory", "reading the device has not returned; the others are read without it",
                   {{"device", job->queue.front()}});
      stuck_.insert(job->queue.front());
      job->queue.pop_front();
      ++job->steps;
    }
  }
  if (!job->listed) {
    listing_stuck_ = true;
    job_.reset();
    done_(make_error(Error::Kind::Timeout, "listing RDMA devices and interfaces has not returned"));
  } else if (stuck_.size() >= options_.max_stuck) {
    finish(job);
  } else {
    spawn_([job, next] { work(job, next); });
  }
}

void DeviceGatherer::finish(const std::shared_ptr<Job>& job) {
  if (job != job_) return;
  job_.reset();
  model::Inventory out;
  out.host = options_.inventory.host;
  std::map<std::string, model::RdmaDevice> last;
  std::unique_lock lock(job->mutex);
  ++job->worker;
  out.limitations = job->listing.limitations;
  for (const std::string& name : job->listing.devices) {
    const auto read = job->read.find(name);
    if (read != job->read.end()) {
      counts_.absent += read->second.counts.absent;
      counts_.failed += read->second.counts.failed;
      add_limitations(out, read->second.limitations);
      out.devices.push_back(std::move(read->second.device));
    } else {
      // Of one left out from the start: it may have come back since, which the next reading will show.
      const bool stuck = stuck_.count(name) != 0 || job->skip.count(name) != 0;
      add_limitations(out, {{model::rnic_subject(out.host, name),
                             stuck ? "reading its state has not returned: its driver or firmware blocks"
                                   : "it is not read: too many other devices block",
                             "see dmesg; what was read of it before stands"}});
      const auto before = last_.find(name);
      model::RdmaDevice bare;
      bare.name = name;
      out.devices.push_back(before != last_.end() ? before->second : bare);
    }
    last[name] = out.devices.back();
  }
  last_ = std::move(last);
  gids_.clear();
  for (const std::string& name : job->listing.devices) gids_[name] = job->gids[name];
  lock.unlock();
  done_(std::move(out));
}

}  // namespace weft::inventory
