// The number in an enum of libibverbs as a driver or kernel left it. It may be one that the enum of the headers this
// was built with does not know, and loading such a value as the enum is undefined behaviour (C++20 [conv.lval],
// [dcl.enum]): the compiler may take it for one of those it knows. No state; thread safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace weft::rdma {

template <class Enum>
std::uint32_t enum_number(const Enum& field) {
  static_assert(std::is_enum_v<Enum> && sizeof(Enum) == sizeof(std::uint32_t));
  std::uint32_t number = 0;
  std::memcpy(&number, &field, sizeof number);
  return number;
}

}  // namespace weft::rdma
