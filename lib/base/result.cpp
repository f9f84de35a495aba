#include "lib/base/result.h"

#include <cerrno>

namespace weft {

const char* to_string(Error::Kind kind) {
  switch (kind) {
    case Error::Kind::NoData:
      return "no data";
    case Error::Kind::Unsupported:
      return "unsupported";
    case Error::Kind::Permission:
      return "permission";
    case Error::Kind::NotFound:
      return "not found";
    case Error::Kind::Transient:
      return "transient";
    case Error::Kind::Timeout:
      return "timeout";
    case Error::Kind::Malformed:
      return "malformed";
    case Error::Kind::Exhausted:
      return "exhausted";
    case Error::Kind::Invalid:
      return "invalid";
    case Error::Kind::Internal:
      return "internal";
  }
  return "internal";
}

Error errno_error(int error_number, std::string context) {
  Error::Kind kind = Error::Kind::Internal;
  switch (error_number) {
    case EACCES:
    case EPERM:
      kind = Error::Kind::Permission;
      break;
    case ENOENT:
    case ENODEV:
    case ENXIO:
      kind = Error::Kind::NotFound;
      break;
    case EAGAIN:
    case EINTR:
    case ENOBUFS:
    case EBUSY:
      kind = Error::Kind::Transient;
      break;
    case ETIMEDOUT:
      kind = Error::Kind::Timeout;
      break;
    case EOPNOTSUPP:
    case ENOSYS:
      kind = Error::Kind::Unsupported;
      break;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
      kind = Error::Kind::Exhausted;
      break;
    case EINVAL:
      kind = Error::Kind::Invalid;
      break;
    default:
      break;
  }
  return Error{kind, error_number, std::move(context)};
}

}  // namespace weft
