// One HTTP request to a program of weft, bounded in time and size. Uses a thread of its own for each request, so that
// nothing the other side does, nor a resolver that hangs, outlasts the deadline or keeps Ctrl-C waiting. httplib stays
// inside the .cpp. Functions are safe from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace weft::client {

// Asked often, from the calling thread, while a call waits: true ends the call. Empty: never.
using StopAsked = std::function<bool()>;

struct Endpoint {
  std::string host;  // name or IP address, without brackets
  std::uint16_t port = 80;
};

// "http://HOST[:PORT][/]" or "HOST:PORT"; an IPv6 address in brackets. Invalid with what is wrong, without the text.
Result<Endpoint> parse_endpoint(const std::string& text);

struct HttpRequest {
  Endpoint to;
  std::string method = "GET";
  std::string path = "/";
  std::chrono::milliseconds deadline{3000};  // all in all: name, connection, answer
  std::size_t max_body_bytes = 64 * 1024 * 1024;
  StopAsked stopped;
  // When set, takes the body bit by bit, from a thread of its own, and the answer has none.
  std::function<void(std::string_view)> part;
  std::chrono::milliseconds silence{0};  // the most between two bits, or before the first; 0: as the deadline
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

enum class HttpFailure { NoConnection, Broken, Deadline, Stopped, TooLarge };

struct HttpOutcome {
  bool answered = false;
  HttpAnswer answer;                                // when answered
  HttpFailure failure = HttpFailure::NoConnection;  // when not
};

// The status is whatever came back. Returns within a fraction of a second of the deadline or the stop.
HttpOutcome http_ask(const HttpRequest& request);

}  // namespace weft::client
