#include "aggregator/state/core.h"

#include <algorithm>
#include <utility>

#include "aggregator/state/store_rows.h"
#include "lib/base/log.h"
#include "lib/wire/codec.h"

namespace weft::aggregator {
namespace {

constexpr Nanos kDayNs = 86'400 * kSecond;

std::string finding_key(const model::Finding& finding) {
  return std::string(model::finding_info(finding.kind).name) + " " + finding.subject;
}

}  // namespace

Core::Core(CoreConfig config, MakeLocaliser make, localise::LocaliserConfig localiser, localise::Topology topology,
           Store& store, const MessageQueue& queue, const Clock& clock)
    : config_(std::move(config)),
      make_(std::move(make)),
      localiser_(make_(localiser, std::move(topology))),
      tracker_(config_.tracker),
      sessions_(config_.max_agents),
      store_(store),
      queue_(queue),
      clock_(clock),
      started_wall_ns_(clock.wall_ns()),
      started_monotonic_ns_(clock.monotonic_ns()),
      cleared_shared_(std::make_shared<std::vector<model::Finding>>()),
      views_(std::make_shared<Snapshot::Views>()) {
  publish(clock_.monotonic_ns(), 0);
}

Nanos Core::to_monotonic(Nanos wall_ns) const {
  const Nanos age = std::clamp<Nanos>(clock_.wall_ns() - wall_ns, 0, kDayNs);
  return clock_.monotonic_ns() - age;
}

void Core::restore(const Recovered& recovered) {
  const Nanos now = clock_.monotonic_ns();
  for (const AgentRow& row : recovered.agents) sessions_.restore(row);
  feed_evidence(recovered);
  std::vector<model::Finding> active;
  for (const model::Finding& finding : recovered.findings) {
    if (finding.active()) {
      active.push_back(finding);
    } else if (cleared_.size() < config_.cleared_kept) {
      cleared_.push_back(finding);
    }
  }
  cleared_shared_ = std::make_shared<std::vector<model::Finding>>(cleared_.begin(), cleared_.end());
  // Their support starts to run out only after agents had time to return: being away is not evidence of health.
  localiser_->resume(active, now);
  tracker_.restore(active, now + config_.tracker.clear_after_ns);
  if (!recovered.agents.empty()) {
    log::info(
        "state", "continues where it stopped",
        {{"agents", recovered.agents.size()}, {"batches", recovered.journal.size()}, {"findings", active.size()}});
  }
  publish(now, 0);
}

void Core::feed_evidence(const Recovered& recovered) {
  const Nanos wall_now = clock_.wall_ns();
  std::map<std::string, std::pair<Nanos, Nanos>> left;  // said goodbye: allowance, when
  std::map<std::string, Nanos> first;                   // oldest word of each agent
  const auto heard = [&](const std::string& agent, Nanos at) {
    const auto [it, fresh] = first.emplace(agent, at);
    if (!fresh) it->second = std::min(it->second, at);
  };
  for (const LatestRow& row : recovered.latest) {
    heard(row.agent, row.received_wall_ns);
    if (row.key == kGoodbyeKey && row.record) left[row.agent] = {parse_goodbye(*row.record), row.received_wall_ns};
  }
  for (const JournalRow& row : recovered.journal) heard(row.agent, row.received_wall_ns);
  for (const AgentRow& row : recovered.agents) {
    heard(row.agent, row.last_seen_wall_ns);
    if (wall_now - row.last_seen_wall_ns < kDayNs) {
      localiser_->on_start(row.agent, row.epoch, to_monotonic(first[row.agent]));
    }
  }
  for (const LatestRow& row : recovered.latest) {
    if (row.key == kGoodbyeKey || !row.record) continue;
    const auto decoded = wire::decode_record(*row.record, row.agent);
    if (decoded) feed(row.agent, decoded->record, to_monotonic(row.received_wall_ns));
  }
  for (const JournalRow& row : recovered.journal) {
    const Nanos received = to_monotonic(row.received_wall_ns);
    localiser_->on_contact(row.agent, received);
    for (const std::string& record : row.records) {
      const auto decoded = wire::decode_record(record, row.agent);
      if (decoded) feed(row.agent, decoded->record, received);
    }
  }
  for (const auto& [agent, goodbye] : left) {
    localiser_->on_goodbye(agent, goodbye.first, to_monotonic(goodbye.second));
  }
  for (const AgentRow& row : recovered.agents) {
    const Session* session = sessions_.find(row.agent);
    if (session == nullptr || left.count(row.agent) != 0 || wall_now - row.last_seen_wall_ns >= kDayNs) continue;
    if (session->link != nullptr) {
      localiser_->on_start(row.agent, session->epoch, clock_.monotonic_ns());
    } else {
      awaited_.insert(row.agent);
    }
  }
}

void Core::excuse_awaited(Nanos now) {
  if (now - started_monotonic_ns_ > config_.return_allowance_ns) awaited_.clear();
  for (const std::string& agent : awaited_) localiser_->on_contact(agent, now);
}

// An agent whose batches the store does not take sends no more after a while: its silence is ours.
void Core::excuse_held_up(Nanos now) {
  for (const auto& [agent, session] : sessions_.all()) {
    if (session.link != nullptr && session.judged > session.stored) localiser_->on_contact(agent, now);
  }
}

void Core::handle(Message&& message) {
  std::visit([this](auto& body) { on(body); }, message);
}

void Core::refuse(const Link& link, const std::string& reason, const std::string& text) {
  ++counters_.streams_refused[reason];
  link->welcome({0, 10 * kSecond, text});
  link->end(StreamLink::End::Refused, text);
}

void Core::turned_away(std::uint64_t streams) {
  counters_.streams_refused["capacity"] += streams;
  // Once for each time it begins.
  if (streams > 0 && !crowded_) {
    log::warning("ingest",
                 "no room for more streams: more agents than one aggregator takes, or a peer that opens too many",
                 {{"refused", streams}});
  }
  crowded_ = streams > 0;
}

void Core::on(Opened& message) {
  const wire::Hello& hello = message.hello;
  if (hello.schema != wire::kSchema) {
    refuse(message.link, "schema",
           "this aggregator speaks schema " + std::to_string(wire::kSchema) + ", the agent " +
               std::to_string(hello.schema) + ": upgrade the older one");
    return;
  }
  if (hello.fabric != config_.fabric) {
    refuse(message.link, "fabric",
           "this aggregator watches fabric \"" + config_.fabric + "\", the agent says \"" + hello.fabric +
               "\": correct [fabric] name on one side");
    return;
  }
  const Sessions::Opening opening = sessions_.open(hello.agent, hello.epoch, message.link, message.at.monotonic_ns);
  if (opening.admission == Sessions::Admission::NoRoom) {
    refuse(message.link, "capacity", "this aggregator already knows its most agents");
    return;
  }
  if (opening.admission == Sessions::Admission::OlderEpoch) {
    refuse(message.link, "epoch",
           "a newer agent of the name " + hello.agent + " is connected: two hosts with one name, or an old process");
    return;
  }
  if (opening.replaced != nullptr) {
    log::info("ingest", "a newer stream takes over", {{"agent", hello.agent}, {"epoch", hello.epoch}});
    opening.replaced->end(StreamLink::End::Replaced, "a newer stream of this agent took over");
  }
  log::info("ingest", "agent connected", {{"agent", hello.agent}, {"epoch", hello.epoch}, {"version", hello.version}});
  awaited_.erase(hello.agent);
  localiser_->on_start(hello.agent, hello.epoch, message.at.monotonic_ns);
  localiser_->on_contact(hello.agent, message.at.monotonic_ns);
  note(*opening.session, kGoodbyeKey, std::nullopt, message.at.wall_ns);
  // Spread over a second for each thousand agents, so that a restart is not a stampede.
  const auto spread = static_cast<Nanos>(sessions_.all().size()) * kMillisecond + kSecond;
  message.link->welcome({opening.session->stored, spread, ""});
  message.link->resume();
}

void Core::note(Session& session, const std::string& key, std::optional<std::string> record, Nanos wall_ns) {
  BatchRow row{session.agent, session.epoch, 0, wall_ns, {}, {{session.agent, key, std::move(record), wall_ns}}, 0};
  if (!store_.add(std::move(row))) Sessions::not_kept(session);
}

void Core::on(Arrived& message) {
  Session* session = sessions_.of(message.link);
  if (session == nullptr) return;
  const Nanos now = message.at.monotonic_ns;
  session->last_contact_ns = now;
  localiser_->on_contact(session->agent, now);
  const Sessions::Novelty novelty = Sessions::arrived(*session, message.sequence);
  if (!novelty.judge && !novelty.store) ++counters_.batches_duplicate;
  if (novelty.judge) {
    counters_.records_malformed += message.malformed;
    counters_.records_foreign += message.foreign;
    counters_.records_unknown += message.unknown;
    session->rejected_since_ack += message.malformed + message.foreign + message.unknown;
    for (const ValidRecord& record : message.records) feed(session->agent, record.record, now);
  }
  if (novelty.store) {
    if (!store_.add(make_batch_row(*session, message))) {
      ++counters_.batches_refused;
      Sessions::not_kept(*session);
    }
  } else if (message.sequence <= session->stored) {
    message.link->ack({session->stored, std::exchange(session->rejected_since_ack, 0)});
  }
  message.link->resume();
}

void Core::feed(const std::string& agent, const wire::Record& record, Nanos received) {
  if (const auto* inventory = std::get_if<model::Inventory>(&record)) {
    localiser_->on_inventory(*inventory, received);
  } else if (const auto* window = std::get_if<model::PathWindow>(&record)) {
    localiser_->on_window(*window, received);
  } else if (const auto* trace = std::get_if<model::PathTrace>(&record)) {
    localiser_->on_trace(*trace, received);
  } else if (const auto* health = std::get_if<model::HostHealth>(&record)) {
    localiser_->on_health(agent, *health, received);
  } else if (const auto* finding = std::get_if<model::Finding>(&record)) {
    if (!take_agent_finding(agent, *finding, received)) ++counters_.findings_over_bound;
  } else if (const auto* gap = std::get_if<wire::Gap>(&record)) {
    counters_.agent_gaps += gap->dropped;
  }
}

bool Core::take_agent_finding(const std::string& agent, const model::Finding& finding, Nanos received) {
  auto& own = agent_findings_[agent];
  const std::string key = finding_key(finding);
  if (!finding.active()) {
    own.erase(key);
    return true;
  }
  const auto it = own.find(key);
  if (it == own.end() && own.size() >= config_.agent_findings_max) return false;
  const Nanos since = it == own.end() ? received : it->second.since_ns;
  model::Finding& kept = own[key];
  kept = finding;
  kept.since_ns = since;
  return true;
}

void Core::on(Left& message) {
  Session* session = sessions_.of(message.link);
  if (session == nullptr) return;
  log::info("ingest", "agent said goodbye",
            {{"agent", session->agent},
             {"allowance_s", message.goodbye.restart_allowance_ns / kSecond},
             {"reason", message.goodbye.reason}});
  localiser_->on_goodbye(session->agent, message.goodbye.restart_allowance_ns, message.at.monotonic_ns);
  note(*session, kGoodbyeKey, format_goodbye(message.goodbye.restart_allowance_ns), message.at.wall_ns);
  // A stopped agent says nothing more about its host.
  agent_findings_.erase(session->agent);
  message.link->resume();
}

void Core::on(Closed& message) {
  if (message.broke_rules) ++counters_.streams_refused["protocol"];
  Session* session = sessions_.of(message.link);
  if (session == nullptr) return;
  log::info("ingest", "agent disconnected", {{"agent", session->agent}});
  sessions_.closed(*session);
}

void Core::on(Stored& message) {
  for (const AgentRow& row : message.rows) {
    counters_.batches_stored += row.batches;
    counters_.records_stored += row.records;
  }
  for (Session* session : sessions_.stored(message.rows)) {
    if (session->link != nullptr) {
      session->link->ack({session->stored, std::exchange(session->rejected_since_ack, 0)});
    }
  }
}

void Core::on(AcknowledgeFinding& message) {
  tracker_.acknowledge(message.id);
  std::optional<model::Finding> found;
  for (model::Finding& finding : tracker_.active()) {
    if (finding.id == message.id) found = std::move(finding);
  }
  for (model::Finding& finding : cleared_) {
    if (finding.id != message.id) continue;
    finding.acknowledged = true;
    found = finding;
    cleared_shared_ = std::make_shared<std::vector<model::Finding>>(cleared_.begin(), cleared_.end());
  }
  if (!found) {
    message.answer->set_value(make_error(Error::Kind::NotFound, "no finding has this id; see /api/v1/findings"));
    return;
  }
  store_.save({*found}, config_.save_wait);
  publish(clock_.monotonic_ns(), snapshot()->judge_seconds);
  message.answer->set_value(std::move(*found));
}

void Core::on(ClearFindings& message) {
  localiser_->forget_evidence();
  for (const auto& [agent, own] : agent_findings_) {
    Session* session = sessions_.find(agent);
    for (const auto& [key, finding] : own) {
      if (session != nullptr) note(*session, agent_finding_key(finding), std::nullopt, clock_.wall_ns());
    }
  }
  agent_findings_.clear();
  std::vector<detect::FindingChange> changes = tracker_.clear_all(clock_.wall_ns());
  const std::size_t count = changes.size();
  apply(std::move(changes));
  publish(clock_.monotonic_ns(), snapshot()->judge_seconds);
  log::info("findings", "cleared by an operator", {{"count", count}});
  message.answer->set_value(count);
}

void Core::on(Reload& message) {
  config_rejected_ = false;
  localiser_ = make_(message.config, std::move(message.topology));
  agent_findings_.clear();
  Result<Recovered> recovered = store_.load(std::chrono::seconds(2));
  if (recovered) {
    feed_evidence(*recovered);
  } else {
    log::warning("state", "reloaded without earlier evidence", {{"why", recovered.error().message()}});
  }
  for (auto& [agent, session] : sessions_.all()) {
    session.plan_sent = false;
    if (session.link != nullptr) localiser_->on_contact(agent, clock_.monotonic_ns());
  }
  log::info("state", "topology and thresholds reloaded");
}

std::vector<model::Finding> Core::verdicts(Nanos now) {
  std::vector<model::Finding> out;
  std::set<std::string> seen;
  for (localise::Verdict& verdict : localiser_->judge(now)) {
    if (seen.insert(finding_key(verdict.finding)).second) out.push_back(std::move(verdict.finding));
  }
  for (const std::string& line : localiser_->suspicions()) log::debug("state", "suspected", {{"what", line}});
  for (auto it = agent_findings_.begin(); it != agent_findings_.end();) {
    const Session* session = sessions_.find(it->first);
    // Not heard of for long, it can no longer take back what it said.
    if (session != nullptr && session->link == nullptr &&
        now - session->last_contact_ns > config_.return_allowance_ns &&
        now - started_monotonic_ns_ > config_.return_allowance_ns) {
      it = agent_findings_.erase(it);
      continue;
    }
    for (const auto& [key, finding] : it->second) {
      if (seen.insert(key).second) out.push_back(finding);
    }
    ++it;
  }
  return out;
}

void Core::apply(std::vector<detect::FindingChange> changes) {
  if (changes.empty()) return;
  std::vector<model::Finding> rows;
  for (const detect::FindingChange& change : changes) rows.push_back(change.finding);
  // Published only after this. A full disk must not hide a finding, so false is not an error here.
  store_.save(rows, config_.save_wait);
  bool any_cleared = false;
  for (const detect::FindingChange& change : changes) {
    const model::Finding& finding = change.finding;
    const std::string_view kind = model::finding_info(finding.kind).name;
    if (change.what == detect::FindingChange::What::Raised) {
      ++counters_.findings_raised[std::string(kind)];
      const double seconds = static_cast<double>(std::max<Nanos>(finding.raised_ns - finding.since_ns, 0)) * 1e-9;
      counters_.detection.add(seconds);
      log::info("findings", "raised",
                {{"id", finding.id},
                 {"kind", kind},
                 {"subject", finding.subject},
                 {"seconds_from_first_evidence", seconds},
                 {"summary", finding.summary}});
    } else if (change.what == detect::FindingChange::What::Cleared) {
      any_cleared = true;
      cleared_.push_front(finding);
      if (cleared_.size() > config_.cleared_kept) cleared_.pop_back();
      log::info("findings", "cleared", {{"id", finding.id}, {"kind", kind}, {"subject", finding.subject}});
    }
  }
  if (any_cleared) cleared_shared_ = std::make_shared<std::vector<model::Finding>>(cleared_.begin(), cleared_.end());
}

void Core::push_plans(Nanos now) {
  const std::map<std::string, model::ProbePlan> plans = localiser_->plan(now);
  for (auto& [agent, session] : sessions_.all()) {
    if (session.link == nullptr) continue;
    const auto plan = plans.find(agent);
    if (plan == plans.end()) continue;
    if (session.plan_sent && session.plan_revision_sent == plan->second.revision) continue;
    session.link->plan(plan->second);
    session.plan_sent = true;
    session.plan_revision_sent = plan->second.revision;
  }
}

void Core::end_streams_that_must_send_again() {
  for (auto& [agent, session] : sessions_.all()) {
    if (!session.must_send_again || session.link == nullptr) continue;
    session.link->end(StreamLink::End::SendAgain, "the store works again: send what is not acknowledged again");
    sessions_.closed(session);
  }
}

void Core::tick() {
  const Nanos now = clock_.monotonic_ns();
  excuse_awaited(now);
  excuse_held_up(now);
  const std::vector<model::Finding> found = verdicts(now);
  apply(tracker_.step(found, now, clock_.wall_ns(), localiser_->blind()));
  const StoreStatus store = store_.status();
  if (store.generation != store_generation_) {
    store_generation_ = store.generation;
    store_.save(tracker_.active(), config_.save_wait);
  }
  if (store.acknowledging) end_streams_that_must_send_again();
  push_plans(now);
  publish(now, static_cast<double>(clock_.monotonic_ns() - now) * 1e-9);
}

void Core::publish(Nanos now, double judge_seconds) {
  // A large fabric's views cost more than judging it: they take a twentieth of the time at most.
  if (views_made_ns_ == 0 || now - views_made_ns_ >= std::max(kSecond / 2, 20 * views_cost_ns_)) {
    auto views = std::make_shared<Snapshot::Views>();
    views->mesh = localiser_->mesh(now);
    views->paths = localiser_->paths(now);
    views->links = localiser_->links(now);
    views_ = std::move(views);
    views_made_ns_ = now;
    views_cost_ns_ = clock_.monotonic_ns() - now;
  }
  auto next = std::make_shared<Snapshot>();
  next->fabric = config_.fabric;
  next->started_wall_ns = started_wall_ns_;
  next->wall_ns = clock_.wall_ns();
  next->monotonic_ns = now;
  next->judge_seconds = judge_seconds;
  next->config_rejected = config_rejected_;
  next->coverage = localiser_->coverage(now);
  next->hosts = localiser_->hosts(now);
  next->views = views_;
  next->active = tracker_.active();
  next->cleared = cleared_shared_;
  for (const auto& [agent, session] : sessions_.all()) next->agents_connected += session.link != nullptr ? 1 : 0;
  next->messages_dropped = queue_.dropped();
  next->localise_dropped = localiser_->dropped();
  next->store = store_.status();
  next->counters = counters_;
  std::lock_guard lock(snapshot_mutex_);
  snapshot_ = std::move(next);
}

void Core::stop() {
  for (auto& [agent, session] : sessions_.all()) {
    if (session.link == nullptr) continue;
    session.link->end(StreamLink::End::Stopping, "the aggregator stops");
    sessions_.closed(session);
  }
}

std::shared_ptr<const Snapshot> Core::snapshot() const {
  std::lock_guard lock(snapshot_mutex_);
  return snapshot_;
}

}  // namespace weft::aggregator
