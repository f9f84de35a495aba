// What a finding is about, as text; the one place that writes and reads the grammar.
//   host:h1  rnic:h1/rxe0  port:h1/rxe0/1  link:l1>s1 (directed)  link:l1-s1 (direction unknown or both)  switch:s1
//   path:h1/rxe0:49152>h3/rxe0  pair:h1>h3  job:ID  rank:JOB/N
// Names may hold letters, digits and . _ - : % (addresses name nodes when there is no topology file); '-' inside a
// name means link:a-b is ambiguous to split, so links are split only where both ends are known.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::model {

std::string host_subject(std::string_view host);
std::string rnic_subject(std::string_view host, std::string_view device);
std::string port_subject(std::string_view host, std::string_view device, unsigned port);
std::string link_subject(std::string_view from, std::string_view to);
std::string undirected_link_subject(std::string_view a, std::string_view b);
std::string switch_subject(std::string_view name);
std::string path_subject(std::string_view from_rnic, std::uint16_t udp_source_port, std::string_view to_rnic);
std::string pair_subject(std::string_view from_host, std::string_view to_host);

// True for a name that may stand in a subject: 1 to 253 bytes of letters, digits and . _ - : %
bool valid_name(std::string_view name);
// "link" of "link:a>b"; empty when there is none.
std::string_view subject_type(std::string_view subject);

}  // namespace weft::model
