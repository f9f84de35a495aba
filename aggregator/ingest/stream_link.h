// One agent's open stream, as judging sees it. Calls never block: what has not gone out yet is replaced by newer words
// (an acknowledgement or plan says all that the one before said). Thread safe. Calls after the stream's end do nothing.
#pragma once

#include <cstdint>
#include <string>

#include "lib/model/plan.h"
#include "lib/wire/messages.h"

namespace weft::aggregator {

class StreamLink {
 public:
  enum class End {
    Refused,    // told why by Welcome
    Replaced,   // a newer stream of the same agent took over
    SendAgain,  // not everything could be kept: reconnect and resend
    Protocol,   // broke the rules of the stream
    Stopping,   // the aggregator stops
  };
  virtual ~StreamLink() = default;
  virtual void welcome(const wire::Welcome& welcome) = 0;
  virtual void ack(const wire::Ack& ack) = 0;
  virtual void plan(const model::ProbePlan& plan) = 0;
  // The message before is dealt with: read the next one. Until then the agent is held back by gRPC's flow control.
  virtual void resume() = 0;
  virtual void end(End why, const std::string& text) = 0;
};

}  // namespace weft::aggregator
