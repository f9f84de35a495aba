#include "probes/ping/hello.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "probes/ping/address.h"

namespace weft::probes {
namespace {

constexpr unsigned kTriesUntilUnreachable = 5;
constexpr Nanos kFirstRetry = 200 * kMillisecond;
constexpr Nanos kLongestRetry = kSecond;  // a peer may be back any moment, and a hello costs 640 bytes
constexpr Nanos kRefusedRetry = 5 * kSecond;
constexpr Nanos kSuspectInterval = kSecond;
constexpr Nanos kNever = INT64_MAX;

// fe80::/10, and what IPv4 hosts give themselves.
bool stays_on_link(const model::Gid& gid) {
  return gid.is_link_local() || (gid.is_ipv4_mapped() && gid.raw[12] == 169 && gid.raw[13] == 254);
}

// The hello goes by the kernel's routes, probes by the two GIDs: a hello that is answered does not say that probes can
// arrive. Why they cannot; empty when nothing is known against it.
std::string why_no_way(const model::Gid& own, const model::Gid& theirs) {
  if (own.is_zero() || theirs.is_zero()) return "";
  if (own.is_ipv4_mapped() != theirs.is_ipv4_mapped()) return "there is no way between an IPv4 and an IPv6 GID";
  if (stays_on_link(own) != stays_on_link(theirs)) {
    return "there is no way between a link-local and a routed GID";
  }
  return "";
}

}  // namespace

HelloClient::HelloClient(HelloOptions options, const FabricKey& key, RejectCounters& rejects, Send send, Found found,
                         Random random)
    : options_(std::move(options)),
      key_(key),
      rejects_(rejects),
      send_(std::move(send)),
      found_(std::move(found)),
      random_(std::move(random)),
      budget_(options_.max_hellos_per_s, std::max(1.0, options_.max_hellos_per_s / 4)) {}

std::uint64_t HelloClient::add(const model::PlanTarget& target, Nanos now) {
  const std::uint16_t port = target.hello_port != 0 ? target.hello_port : kDefaultHelloPort;
  for (const auto& [session, peer] : peers_) {
    if (peer.to == target.to && peer.address_text == target.to_address && peer.port == port) return session;
  }
  std::uint64_t session = random_();
  while (session == 0 || peers_.contains(session)) session = random_();
  Peer& peer = peers_[session];
  peer.to = target.to;
  peer.address_text = target.to_address;
  peer.port = port;
  const auto address = model::Gid::parse_unicast(target.to_address);
  if (address) {
    peer.address = *address;
    due_at(peer, now);
  } else {
    peer.state = PeerState::Unreachable;
    peer.reason = "no hello to " + target.to + ": " + address.error().context;
    peer.next_ns = kNever;
  }
  return session;
}

void HelloClient::due_at(Peer& peer, Nanos when) {
  peer.next_ns = when;
  earliest_ns_ = std::min(earliest_ns_, when);
}

void HelloClient::ask(std::uint64_t session, Peer& peer, Nanos now) {
  HelloPacket hello;
  hello.session = session;
  hello.nonce = random_();
  hello.epoch = options_.epoch;
  hello.gid = options_.gid;
  hello.transport = options_.transport;
  hello.name = options_.name;
  hello.lanes = lanes_;
  std::array<std::uint8_t, kHelloBytes> buffer;
  const std::size_t size = encode(hello, key_, buffer);
  peer.nonce = hello.nonce;
  peer.asked_ns = now;
  if (peer.tries++ == 0) peer.first_ns = now;
  const auto sent = send_(peer.address, peer.port, std::span(buffer).first(size));
  peer.send_error = sent ? "" : sent.error().message();
  // The next try, unless an answer sets a later time.
  due_at(peer, now + std::min(kLongestRetry, kFirstRetry << std::min(peer.tries - 1, 8U)));
  if (peer.tries > kTriesUntilUnreachable) {
    // Refused stays: its answers say more than silence would.
    if (peer.state != PeerState::Refused) peer.state = PeerState::Unreachable;
    // Told once: who repeats it, with ever more tries in it, would say something new each second.
    const bool plain = peer.send_error.empty() && peer.refused == 0;
    if (!plain || !peer.silence_told) peer.reason = silence(peer);
    peer.silence_told = plain;
  }
}

std::string HelloClient::silence(const Peer& peer) const {
  const std::string where = to_text(peer.address, peer.port);
  if (!peer.send_error.empty()) {
    return "hello from " + options_.local + " to " + where + " could not be sent: " + peer.send_error;
  }
  if (peer.refused == ECONNREFUSED) {
    return "nothing listens on " + where + " (port unreachable): start weftd or weft responder there";
  }
  if (peer.refused != 0) {
    return "hello from " + options_.local + " to " + where +
           " did not arrive, says a router or this host: " + std::strerror(peer.refused);
  }
  return "no answer to hello on " + where + " from " + options_.local + " after " + std::to_string(peer.tries - 1) +
         " tries in " + std::to_string((peer.asked_ns - peer.first_ns) / kMillisecond) +
         " ms: is weftd or weft responder running there, with the same fabric key, and UDP port " +
         std::to_string(peer.port) + " open?";
}

void HelloClient::on_answer(const HelloPacket& answer, Nanos now) {
  const auto at = peers_.find(answer.session);
  if (at == peers_.end()) return rejects_.count(Reject::UnknownSession);
  Peer& peer = at->second;
  if (peer.nonce == 0 || answer.nonce != peer.nonce) return rejects_.count(Reject::WrongNonce);
  peer.nonce = 0;
  peer.tries = 0;
  peer.silence_told = false;
  peer.refused = 0;
  const std::string no_way = why_no_way(options_.gid, answer.gid);
  if (answer.refusal != Refusal::None || answer.lanes.empty() || !no_way.empty()) {
    peer.state = PeerState::Refused;
    const std::string who = answer.name + " at " + to_text(peer.address, peer.port);
    if (answer.refusal == Refusal::TableFull) {
      peer.reason = who + " answers no more peers: its table is full";
    } else if (answer.refusal == Refusal::OtherTransport) {
      peer.reason = who + " answers over " + (answer.transport == WireTransport::Udp ? "UDP" : "RDMA") + ", " +
                    options_.local + " probes over " + (options_.transport == WireTransport::Udp ? "UDP" : "RDMA");
    } else if (answer.refusal != Refusal::None || no_way.empty()) {
      peer.reason = who + " has no responder lane";
    } else {
      peer.reason = who + " answers from GID " + answer.gid.to_string() + ", " + options_.local + " probes from GID " +
                    options_.gid.to_string() + ": " + no_way + "; let both ends use GIDs of one kind";
    }
    due_at(peer, now + kRefusedRetry);
    if (peer.info) {
      peer.info.reset();
      found_(answer.session, {}, true);
    }
    return;
  }
  ResponderInfo info{answer.gid, answer.name, answer.epoch, answer.two_acks, answer.any_port, answer.lanes};
  const bool fresh = !answer.known || !peer.info || peer.info->epoch != info.epoch;
  peer.info = info;
  peer.state = PeerState::Ready;
  peer.reason.clear();
  due_at(peer, now + std::max<Nanos>(static_cast<Nanos>(answer.lease_ms) * kMillisecond / 3, kSecond));
  found_(answer.session, info, fresh);
}

void HelloClient::on_refused(const model::Gid& address, std::uint16_t port, int error) {
  for (auto& [session, peer] : peers_) {
    if (peer.address == address && peer.port == port) {
      // Not silence but a definite answer, so there is nothing to wait for before saying so.
      peer.refused = error;
      if (peer.state == PeerState::Refused) continue;
      // A way that is missing may be back with the next hello; who answered before is not given up for it.
      if (error != ECONNREFUSED && peer.info) continue;
      peer.state = PeerState::Unreachable;
      peer.reason = silence(peer);
    }
  }
}

void HelloClient::suspect(std::uint64_t session, Nanos now) {
  const auto at = peers_.find(session);
  if (at == peers_.end() || at->second.next_ns == kNever) return;
  due_at(at->second, std::min(at->second.next_ns, std::max(now, at->second.asked_ns + kSuspectInterval)));
}

void HelloClient::run(Nanos now) {
  if (now < earliest_ns_) return;
  std::vector<std::pair<Nanos, std::uint64_t>> due;
  for (const auto& [session, peer] : peers_) {
    if (peer.next_ns <= now) due.emplace_back(peer.next_ns, session);
  }
  // Longest due first: with more to ask than the budget allows, all have their turn.
  std::sort(due.begin(), due.end());
  std::optional<Nanos> held_back;
  for (const auto& [when, session] : due) {
    if (!budget_.take(now)) {
      held_back = now + budget_.wait_ns(now);
      break;
    }
    ask(session, peers_[session], now);
  }
  earliest_ns_ = kNever;
  for (const auto& [session, peer] : peers_) earliest_ns_ = std::min(earliest_ns_, peer.next_ns);
  if (held_back) earliest_ns_ = *held_back;
}

std::optional<Nanos> HelloClient::next_due() const {
  if (earliest_ns_ == kNever) return std::nullopt;
  return earliest_ns_;
}

std::vector<PeerStatus> HelloClient::statuses() const {
  std::vector<PeerStatus> list;
  for (const auto& [session, peer] : peers_) {
    PeerStatus status;
    status.to = peer.to;
    status.state = peer.state;
    status.reason = peer.reason;
    status.transport = options_.transport == WireTransport::Udp ? "udp" : "rdma";
    status.address = peer.address_text;
    if (peer.info) {
      status.responder_epoch = peer.info->epoch;
      status.answered_as = peer.info->name;
      status.address = peer.info->gid.to_string();
      for (const HelloLane& lane : peer.info->lanes) status.return_ports.push_back(lane.port);
    }
    list.push_back(std::move(status));
  }
  std::sort(list.begin(), list.end(), [](const PeerStatus& a, const PeerStatus& b) { return a.to < b.to; });
  return list;
}

}  // namespace weft::probes
