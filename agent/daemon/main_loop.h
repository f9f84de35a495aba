// How work reaches the main loop and leaves it.
#pragma once

#include <functional>

namespace weft::agent {

// Runs work on the main loop; safe from any thread, also after the loop ended (then nothing happens).
using Post = std::function<void(std::function<void()>)>;
// Runs work that may block on another thread; never waits for it.
using Spawn = std::function<void(std::function<void()>)>;

}  // namespace weft::agent
