// Who is connected and how far each agent's batches got: judged, queued for the store, stored. Decides what is new,
// what is a resend, and which of two streams of one agent stands. Pure, not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "aggregator/messages.h"
#include "aggregator/store/rows.h"

namespace weft::aggregator {

struct Session {
  std::string agent;
  std::uint64_t epoch = 0;
  std::uint64_t judged = 0;  // everything up to here was given to judging
  std::uint64_t queued = 0;  // and to the store
  std::uint64_t stored = 0;  // and is on disk
  // A batch could not be kept, so nothing later may be stored until the agent has sent it again on a new stream.
  bool must_send_again = false;
  std::uint32_t rejected_since_ack = 0;
  std::uint64_t plan_revision_sent = 0;
  bool plan_sent = false;
  Nanos last_contact_ns = 0;
  Link link;  // null while not connected
};

class Sessions {
 public:
  explicit Sessions(std::size_t max_agents) : max_agents_(max_agents) {}

  enum class Admission { Accepted, NoRoom, OlderEpoch };
  struct Opening {
    Admission admission;
    Session* session = nullptr;  // when accepted
    Link replaced;               // the stream this one takes over from, to be ended
  };
  // A newer epoch, or the same one connecting again, takes over. An older epoch is let in only when nothing of a newer
  // one is connected: a host whose clock was set back must be able to return.
  Opening open(const std::string& agent, std::uint64_t epoch, const Link& link, Nanos now);

  // The session whose current stream this is; null for one that was replaced or refused.
  Session* of(const Link& link);
  Session* find(const std::string& agent);
  void closed(Session& session);

  struct Novelty {
    bool judge = false;  // not seen before
    bool store = false;  // not in the store nor on its way
  };
  static Novelty arrived(Session& session, std::uint64_t sequence);
  // The store had no room for it.
  static void not_kept(Session& session);
  // Sessions whose stored sequence rose, to be acknowledged.
  std::vector<Session*> stored(const std::vector<AgentRow>& rows);

  void restore(const AgentRow& row);
  std::map<std::string, Session>& all() { return sessions_; }
  const std::map<std::string, Session>& all() const { return sessions_; }

 private:
  bool make_room(Nanos now);

  const std::size_t max_agents_;
  std::map<std::string, Session> sessions_;
  std::map<const StreamLink*, std::string> by_link_;
};

}  // namespace weft::aggregator
