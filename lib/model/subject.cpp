#include "lib/model/subject.h"

#include <cctype>

namespace weft::model {
namespace {

std::string join(std::string_view prefix, std::string_view a, std::string_view mid, std::string_view b) {
  std::string out(prefix);
  out += a;
  out += mid;
  out += b;
  return out;
}

}  // namespace

std::string host_subject(std::string_view host) { return join("host:", host, "", ""); }
std::string rnic_subject(std::string_view host, std::string_view device) { return join("rnic:", host, "/", device); }
std::string port_subject(std::string_view host, std::string_view device, unsigned port) {
  return join("port:", host, "/", device) + "/" + std::to_string(port);
}
std::string link_subject(std::string_view from, std::string_view to) { return join("link:", from, ">", to); }
std::string undirected_link_subject(std::string_view a, std::string_view b) { return join("link:", a, "-", b); }
std::string switch_subject(std::string_view name) { return join("switch:", name, "", ""); }
std::string path_subject(std::string_view from_rnic, std::uint16_t udp_source_port, std::string_view to_rnic) {
  return join("path:", from_rnic, ":", std::to_string(udp_source_port)) + ">" + std::string(to_rnic);
}
std::string pair_subject(std::string_view from_host, std::string_view to_host) {
  return join("pair:", from_host, ">", to_host);
}

bool valid_name(std::string_view name) {
  if (name.empty() || name.size() > 253) return false;
  for (const char c : name) {
    const bool ok =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-' || c == ':' || c == '%';
    if (!ok) return false;
  }
  return true;
}

std::string_view subject_type(std::string_view subject) {
  const std::size_t colon = subject.find(':');
  return colon == std::string_view::npos ? std::string_view{} : subject.substr(0, colon);
}

}  // namespace weft::model
