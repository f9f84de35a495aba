// A TCP client that says exactly what it is told, where an HTTP client would be too well behaved.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/fd.h"
#include "tests/unit/catch.h"

namespace weft::test {

// Connects to a port of this host, says so much, and then nothing more.
inline Fd say(int port, const std::string& words) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  REQUIRE(::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(words.size()));
  return socket;
}

// All that is answered, until the server closes.
inline std::string ask(int port, const std::string& words) {
  const Fd socket = say(port, words);
  std::string answer;
  std::array<char, 4096> part;
  ssize_t got = 0;
  while ((got = ::recv(socket.get(), part.data(), part.size(), 0)) > 0) {
    answer.append(part.data(), static_cast<std::size_t>(got));
  }
  return answer;
}

// Reads what a server says bit by bit. Of a number the socket stays the caller's.
class EventReader {
 public:
  explicit EventReader(Fd socket) : own_(std::move(socket)), socket_(own_.get()) {}
  explicit EventReader(int socket) : socket_(socket) {}

  // All up to the words and with them; the test fails when the server ends before.
  std::string until(const std::string& words) {
    while (true) {
      if (const auto at = text_.find(words); at != std::string::npos) {
        std::string out = text_.substr(0, at + words.size());
        text_.erase(0, out.size());
        return out;
      }
      REQUIRE(more());
    }
  }
  // Reads to the end.
  bool ends() {
    while (more()) text_.clear();
    return true;
  }

 private:
  bool more() {
    std::array<char, 4096> part;
    const ssize_t got = ::recv(socket_, part.data(), part.size(), 0);
    if (got > 0) text_.append(part.data(), static_cast<std::size_t>(got));
    return got > 0;
  }
  Fd own_;
  int socket_;
  std::string text_;
};

// Sends a byte on each of the sockets again and again, as a client does that is slow on purpose, until it is destroyed.
// The sockets stay the caller's and must outlive it.
class Drip {
 public:
  explicit Drip(std::vector<int> sockets, std::chrono::milliseconds pace = std::chrono::milliseconds(20))
      : thread_([sockets = std::move(sockets), pace, end = enough_.get_future()] {
          do {
            for (const int socket : sockets) ::send(socket, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
          } while (end.wait_for(pace) == std::future_status::timeout);
        }) {}
  ~Drip() {
    enough_.set_value();
    thread_.join();
  }
  Drip(const Drip&) = delete;
  Drip& operator=(const Drip&) = delete;

 private:
  std::promise<void> enough_;
  std::thread thread_;
};

}  // namespace weft::test
