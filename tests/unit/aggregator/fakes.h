// Stand-ins for the seams of the aggregator: a stream, a store, a localiser, and a folder that goes away by itself.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "aggregator/ingest/stream_link.h"
#include "aggregator/store/store.h"
#include "lib/localise/localiser.h"

namespace weft::test {

struct FakeLink final : aggregator::StreamLink {
  std::vector<wire::Welcome> welcomes;
  std::vector<wire::Ack> acks;
  std::vector<model::ProbePlan> plans;
  int resumed = 0;
  std::vector<End> ends;
  void welcome(const wire::Welcome& welcome) override { welcomes.push_back(welcome); }
  void ack(const wire::Ack& ack) override { acks.push_back(ack); }
  void plan(const model::ProbePlan& plan) override { plans.push_back(plan); }
  void resume() override { ++resumed; }
  void end(End why, const std::string&) override { ends.push_back(why); }
};

struct FakeStore final : aggregator::Store {
  bool room = true;
  bool saves = true;
  aggregator::StoreStatus state;
  aggregator::Recovered recovered;
  std::vector<aggregator::BatchRow> batches;
  std::vector<model::Finding> findings;  // every version saved
  bool add(aggregator::BatchRow batch) override {
    if (room) batches.push_back(std::move(batch));
    return room;
  }
  bool save(const std::vector<model::Finding>& rows, std::chrono::milliseconds) override {
    findings.insert(findings.end(), rows.begin(), rows.end());
    return saves;
  }
  Result<aggregator::Recovered> load(std::chrono::milliseconds) override { return recovered; }
  aggregator::StoreStatus status() const override { return state; }
};

// Remembers what it was told and says what it is made to say.
struct FakeLocaliser final : localise::Localiser {
  struct Heard {
    std::vector<std::string> calls;  // "contact h1", "start h1 5", "goodbye h1 30", "window ...", in order
    std::vector<Nanos> window_times;
    std::vector<localise::Verdict> verdicts;
    std::map<std::string, model::ProbePlan> plans;
    int forgotten = 0;
  };
  explicit FakeLocaliser(Heard& h) : heard(h) {}
  Heard& heard;
  void on_contact(const std::string& host, Nanos) override { heard.calls.push_back("contact " + host); }
  void on_start(const std::string& host, std::uint64_t epoch, Nanos) override {
    heard.calls.push_back("start " + host + " " + std::to_string(epoch));
  }
  void on_goodbye(const std::string& host, Nanos allowance, Nanos) override {
    heard.calls.push_back("goodbye " + host + " " + std::to_string(allowance / kSecond));
  }
  void on_inventory(const model::Inventory& inventory, Nanos) override {
    heard.calls.push_back("inventory " + inventory.host);
  }
  void on_window(const model::PathWindow& window, Nanos received) override {
    heard.calls.push_back("window " + window.key.from + " " + window.key.to);
    heard.window_times.push_back(received);
  }
  void on_trace(const model::PathTrace& trace, Nanos) override { heard.calls.push_back("trace " + trace.from); }
  void on_health(const std::string& host, const model::HostHealth&, Nanos) override {
    heard.calls.push_back("health " + host);
  }
  void resume(const std::vector<model::Finding>& active, Nanos) override {
    for (const model::Finding& finding : active) heard.calls.push_back("resume " + finding.subject);
  }
  std::vector<localise::Verdict> judge(Nanos) override { return heard.verdicts; }
  std::set<std::string> blind() const override { return {}; }
  const std::vector<std::string>& suspicions() const override { return suspicions_; }
  std::map<std::string, model::ProbePlan> plan(Nanos) override { return heard.plans; }
  std::vector<localise::MeshCell> mesh(Nanos) const override { return {}; }
  std::vector<localise::PathView> paths(Nanos) const override { return {}; }
  std::vector<localise::LinkView> links(Nanos) const override { return {}; }
  std::vector<localise::HostView> hosts(Nanos) const override { return {}; }
  localise::Coverage coverage(Nanos) const override { return {}; }
  void forget_evidence() override { ++heard.forgotten; }
  std::uint64_t dropped() const override { return 0; }

 private:
  std::vector<std::string> suspicions_;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "weft-test-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace weft::test
