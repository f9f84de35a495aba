// How every command of weft ends. The order of the words is the order of weight when several apply.
#pragma once

namespace weft::cli {

enum class ExitCode : int {
  Healthy = 0,
  Findings = 1,       // findings, loss or congestion seen
  Usage = 2,          // wrong options
  CannotMeasure = 3,  // nobody answered, no permission, aggregator down: says nothing about the network
  Deadline = 124,     // the given time was over first
};

}  // namespace weft::cli
