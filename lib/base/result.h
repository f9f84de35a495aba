// What a fallible call returns: a value or an Error that says which kind of failure, the errno and the context.
// Callers decide by kind; who first decides the error logs it, callers pass it on.
// std::expected is absent from gcc 12's C++20, hence tl::expected; the wrapper adds [[nodiscard]].
#pragma once

#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace weft {

struct Error {
  enum class Kind {
    NoData,       // nothing there: not a failure
    Unsupported,  // this kernel, device or build cannot: not a failure
    Permission,   // a capability or right is missing; context names it
    NotFound,     // a named thing does not exist
    Transient,    // may work later: back off and try again
    Timeout,      // a deadline passed; context names the step
    Malformed,    // outside bytes that break the rules; counted, text kept short
    Exhausted,    // a bound was reached
    Invalid,      // the caller's or user's input is wrong; context says how
    Internal,     // anything else
  };
  Kind kind = Kind::Internal;
  int error_number = 0;  // errno, 0 when none
  std::string context;   // what was tried, on what, and what to do about it

  // "context: strerror" or the context alone.
  std::string message() const { return error_number == 0 ? context : context + ": " + std::strerror(error_number); }
  bool is_failure() const { return kind != Kind::NoData && kind != Kind::Unsupported; }
};

const char* to_string(Error::Kind kind);

// Kind by errno: EACCES/EPERM Permission, ENOENT/ENODEV/ENXIO NotFound, EAGAIN/EINTR/ENOBUFS/EBUSY Transient,
// ETIMEDOUT Timeout, EOPNOTSUPP/ENOSYS Unsupported, ENOMEM/EMFILE/ENFILE/ENOSPC Exhausted, EINVAL Invalid.
Error errno_error(int error_number, std::string context);

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result(Error error) : tl::expected<T, Error>(tl::unexpected<Error>(std::move(error))) {}
};

template <>
class [[nodiscard]] Result<void> : public tl::expected<void, Error> {
 public:
  using tl::expected<void, Error>::expected;
  Result() = default;
  Result(Error error) : tl::expected<void, Error>(tl::unexpected<Error>(std::move(error))) {}
};

inline Error make_error(Error::Kind kind, std::string context) { return Error{kind, 0, std::move(context)}; }

}  // namespace weft
