// One attempt to talk to the aggregator, as the session sees it: calls return at once, everything that happens comes
// back as an event on the session's thread. grpc_link.h is the real one; tests use a fake.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "lib/model/plan.h"
#include "lib/wire/messages.h"

namespace weft::agent {

struct LinkOpened {};   // the hello is on its way
struct LinkWritten {};  // the last send or goodbye was taken by the transport: the next may go
struct LinkClosed {
  std::string reason;
};
using LinkEvent = std::variant<LinkOpened, wire::Welcome, wire::Ack, model::ProbePlan, LinkWritten, LinkClosed>;

// The session keeps at most one send in flight. Destruction cancels whatever is left; events after it are ignored by
// their attempt number.
class StreamLink {
 public:
  virtual ~StreamLink() = default;
  virtual void open(const std::string& address, const wire::Hello& hello) = 0;
  virtual void send(const wire::Batch& batch) = 0;
  // Says goodbye and closes our side.
  virtual void send_goodbye(const wire::Goodbye& goodbye) = 0;
};

// attempt comes back with each event.
using LinkFactory = std::function<std::unique_ptr<StreamLink>(std::uint64_t attempt)>;

}  // namespace weft::agent
