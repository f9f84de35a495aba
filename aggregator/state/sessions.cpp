#include "aggregator/state/sessions.h"

#include <algorithm>
#include <utility>

namespace weft::aggregator {
namespace {

// Not connected for this long, an agent gives its place to a new one when there is no other.
constexpr Nanos kForgetAfter = 3600 * kSecond;

}  // namespace

bool Sessions::make_room(Nanos now) {
  if (sessions_.size() < max_agents_) return true;
  auto oldest = sessions_.end();
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
    if (it->second.link != nullptr || now - it->second.last_contact_ns < kForgetAfter) continue;
    if (oldest == sessions_.end() || it->second.last_contact_ns < oldest->second.last_contact_ns) oldest = it;
  }
  if (oldest == sessions_.end()) return false;
  sessions_.erase(oldest);
  return true;
}

Sessions::Opening Sessions::open(const std::string& agent, std::uint64_t epoch, const Link& link, Nanos now) {
  auto it = sessions_.find(agent);
  if (it == sessions_.end()) {
    if (!make_room(now)) return {Admission::NoRoom, nullptr, nullptr};
    it = sessions_.emplace(agent, Session{}).first;
    it->second.agent = agent;
    it->second.epoch = epoch;
  }
  Session& session = it->second;
  if (session.link != nullptr && epoch < session.epoch) return {Admission::OlderEpoch, nullptr, nullptr};
  Opening out{Admission::Accepted, &session, std::exchange(session.link, link)};
  if (out.replaced != nullptr) by_link_.erase(out.replaced.get());
  by_link_[link.get()] = agent;
  if (epoch != session.epoch) {
    session.epoch = epoch;
    session.judged = session.queued = session.stored = 0;
  } else if (session.must_send_again) {
    session.queued = session.stored;
  }
  session.must_send_again = false;
  session.rejected_since_ack = 0;
  session.plan_sent = false;
  session.last_contact_ns = now;
  return out;
}

Session* Sessions::of(const Link& link) {
  const auto it = by_link_.find(link.get());
  return it == by_link_.end() ? nullptr : find(it->second);
}

Session* Sessions::find(const std::string& agent) {
  const auto it = sessions_.find(agent);
  return it == sessions_.end() ? nullptr : &it->second;
}

void Sessions::closed(Session& session) {
  by_link_.erase(session.link.get());
  session.link = nullptr;
}

Sessions::Novelty Sessions::arrived(Session& session, std::uint64_t sequence) {
  Novelty out;
  out.judge = sequence > session.judged;
  out.store = sequence > session.queued && !session.must_send_again;
  session.judged = std::max(session.judged, sequence);
  if (out.store) session.queued = sequence;
  return out;
}

void Sessions::not_kept(Session& session) {
  session.queued = session.stored;
  session.must_send_again = true;
}

std::vector<Session*> Sessions::stored(const std::vector<AgentRow>& rows) {
  std::vector<Session*> out;
  for (const AgentRow& row : rows) {
    Session* session = find(row.agent);
    // Of an epoch that was replaced meanwhile: nobody waits for it.
    if (session == nullptr || session->epoch != row.epoch || row.last_sequence <= session->stored) continue;
    session->stored = row.last_sequence;
    session->queued = std::max(session->queued, session->stored);
    out.push_back(session);
  }
  return out;
}

void Sessions::restore(const AgentRow& row) {
  if (sessions_.size() >= max_agents_) return;
  Session session;
  session.agent = row.agent;
  session.epoch = row.epoch;
  session.judged = session.queued = session.stored = row.last_sequence;
  sessions_[row.agent] = std::move(session);
}

}  // namespace weft::aggregator
