// Speaks the stream as agents do, for tests of the real aggregator process: one command a line in, one JSON object a
// line out. Streams have names chosen by the test.
//   open STREAM FABRIC AGENT EPOCH     hello; the answer comes as welcome
//   batch STREAM SEQ WINDOWS [LOST]    that many path windows, of 10 probes each, and a health record
//   big STREAM SEQ MIB                 one message of more than so many MiB
//   garbage STREAM SEQ                 one good record among malformed ones
//   finding STREAM SEQ SUBJECT on|off  the agent's own finding host_overloaded
//   goodbye STREAM SECONDS
// A host with its paths is put together record by record, and goes out as one batch:
//   inventory STREAM ADDRESS PORTS     an rxe0 of so many UDP ports from 49152 on
//   trace STREAM PEER PEER_ADDRESS ADDRESS PORT HOP,HOP...    both ends by host, routers by address
//   window STREAM PEER PORT RETURN_PORT SENT LOST_FORWARD LOST_BACK CE RTT_US
//   health STREAM
//   send STREAM SEQ
//   silent STREAM                      connects and says nothing
//   close STREAM
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lib/wire/codec.h"
#include "weft/v1/stream.grpc.pb.h"

namespace {

namespace wire = weft::wire;
namespace model = weft::model;

std::mutex g_out;

void say(const std::string& text) {
  std::lock_guard lock(g_out);
  std::cout << text << std::endl;
}

class Stream {
 public:
  Stream(const std::string& target, std::string name) : name_(std::move(name)) {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, wire::kKeepalivePingMs);
    args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    stub_ = weft::v1::Fabric::NewStub(grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), args));
    context_.set_wait_for_ready(true);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
    stream_ = stub_->Stream(&context_);
    reader_ = std::thread([this] { read(); });
  }
  ~Stream() {
    context_.TryCancel();
    reader_.join();
  }

  void send(const wire::AgentWord& word) {
    weft::v1::AgentMessage message;
    wire::encode(word, message);
    stream_->Write(message);
  }
  void close() { stream_->WritesDone(); }
  std::string agent;
  std::vector<std::string> put;  // records of the batch to come

 private:
  void read() {
    weft::v1::AggregatorMessage message;
    while (stream_->Read(&message)) {
      const auto word = wire::decode(message);
      std::ostringstream out;
      out << "{\"stream\":\"" << name_ << "\",";
      if (!word) {
        out << "\"event\":\"malformed\"}";
      } else if (const auto* welcome = std::get_if<wire::Welcome>(&*word)) {
        std::string refused = welcome->refused;
        for (char& c : refused) c = c == '"' ? '\'' : c;
        out << "\"event\":\"welcome\",\"last_stored\":" << welcome->last_stored << ",\"refused\":\"" << refused
            << "\"}";
      } else if (const auto* ack = std::get_if<wire::Ack>(&*word)) {
        out << "\"event\":\"ack\",\"sequence\":" << ack->sequence << ",\"rejected\":" << ack->rejected_records << "}";
      } else if (const auto* plan = std::get_if<model::ProbePlan>(&*word)) {
        out << "\"event\":\"plan\",\"targets\":" << plan->targets.size() << "}";
      }
      say(out.str());
    }
    const grpc::Status status = stream_->Finish();
    say("{\"stream\":\"" + name_ + "\",\"event\":\"end\",\"code\":" + std::to_string(status.error_code()) + "}");
  }

  const std::string name_;
  std::unique_ptr<weft::v1::Fabric::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<weft::v1::AgentMessage, weft::v1::AggregatorMessage>> stream_;
  std::thread reader_;
};

std::string inventory(const std::string& agent, std::istream& in) {
  model::Inventory out;
  model::RdmaPort port;
  model::ProbeEndpoint endpoint;
  unsigned ports = 0;
  in >> endpoint.address >> ports;
  port.state = model::PortState::Active;
  port.link_layer = model::LinkLayer::Ethernet;
  port.rate_bits_per_s = 100'000'000'000;
  port.netdev = "eth1";
  endpoint.device = "rxe0";
  endpoint.transport = "rdma";
  endpoint.hello_port = 47910;
  endpoint.responder_epoch = 1;
  for (unsigned i = 0; i < ports; ++i) endpoint.prober_ports.push_back(static_cast<std::uint16_t>(49152 + i));
  endpoint.responder_ports = endpoint.prober_ports;
  out.host = agent;
  out.kernel = "6.1.0-18-amd64";
  out.version = "0.1.0";
  out.devices = {{"rxe0", "rxe", "", "", {port}}};
  out.endpoints = {endpoint};
  out.limitations = {{"host:" + agent, "hardware timestamps are off", "<script>window.hacked=1</script> is text"}};
  return wire::encode_record(out);
}

std::string trace(const std::string& agent, std::istream& in) {
  model::PathTrace out;
  std::string peer, hops;
  in >> peer >> out.to_address >> out.from_address >> out.source_port >> hops;
  out.from = agent + "/rxe0";
  out.to = peer + "/rxe0";
  out.complete = true;
  std::istringstream each(hops);
  model::TraceHop hop;
  while (std::getline(each, hop.address, ',')) {
    ++hop.ttl;
    out.hops.push_back(hop);
  }
  return wire::encode_record(out);
}

std::string told_window(const std::string& agent, std::istream& in) {
  model::PathWindow out;
  std::string peer;
  long rtt_us = 0;
  in >> peer >> out.key.forward_port >> out.key.return_port >> out.sent >> out.forward.lost >> out.back.lost >>
      out.forward.ce >> rtt_us;
  out.key.from = agent + "/rxe0";
  out.key.to = peer + "/rxe0";
  out.responder_epoch = 1;
  out.acked = out.sent - out.forward.lost - out.back.lost;
  out.forward.ecn_capable = out.back.ecn_capable = out.acked;
  out.rtt_median_ns = rtt_us * weft::kMicrosecond;
  out.rtt_p90_ns = 2 * *out.rtt_median_ns;
  return wire::encode_record(out);
}

std::string window(const std::string& agent, unsigned index, std::uint32_t lost = 0) {
  model::PathWindow out;
  out.key = {agent + "/rxe0", "peer" + std::to_string(index) + "/rxe0", 49152, 49153};
  out.sent = 10;
  out.acked = 10 - lost;
  out.lost_unknown = lost;
  out.rtt_median_ns = 1'000'000;
  return wire::encode_record(out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: aggregator_fake_agent HOST:PORT < commands\n";
    return 2;
  }
  std::map<std::string, std::unique_ptr<Stream>> streams;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string command, name;
    in >> command >> name;
    if (command == "open" || command == "silent") {
      auto stream = std::make_unique<Stream>(argv[1], name);
      if (command == "open") {
        wire::Hello hello;
        in >> hello.fabric >> stream->agent >> hello.epoch;
        hello.agent = stream->agent;
        stream->send(hello);
      }
      streams[name] = std::move(stream);
      continue;
    }
    const auto found = streams.find(name);
    if (found == streams.end()) {
      std::cerr << "no stream " << name << "\n";
      return 2;
    }
    Stream& stream = *found->second;
    wire::Batch batch;
    if (command == "batch") {
      unsigned windows = 0;
      std::uint32_t lost = 0;
      in >> batch.sequence >> windows >> lost;  // lost stays 0 where the line ends
      for (unsigned i = 0; i < windows; ++i) batch.records.push_back(window(stream.agent, i, std::min(lost, 10U)));
      batch.records.push_back(wire::encode_record(model::HostHealth{}));
      stream.send(batch);
    } else if (command == "big") {
      std::size_t mib = 0;
      in >> batch.sequence >> mib;
      for (std::size_t i = 0; i <= mib * 4; ++i) batch.records.emplace_back(256 * 1024, 'x');
      stream.send(batch);
    } else if (command == "garbage") {
      in >> batch.sequence;
      batch.records = {"\xff\xff\xff", window("somebody-else", 0), window(stream.agent, 0), std::string(100, 'z'), ""};
      stream.send(batch);
    } else if (command == "finding") {
      model::Finding finding;
      std::string state;
      in >> batch.sequence >> finding.subject >> state;
      finding.kind = model::FindingKind::HostOverloaded;
      finding.severity = model::Severity::Warning;
      finding.confidence = 0.9;
      finding.summary = "hostile <img src=x onerror=window.hacked=1> \" } \n \xff summary";
      if (state == "off") finding.until_ns = 1;
      batch.records.push_back(wire::encode_record(finding));
      stream.send(batch);
    } else if (command == "inventory") {
      stream.put.push_back(inventory(stream.agent, in));
    } else if (command == "trace") {
      stream.put.push_back(trace(stream.agent, in));
    } else if (command == "window") {
      stream.put.push_back(told_window(stream.agent, in));
    } else if (command == "health") {
      stream.put.push_back(wire::encode_record(model::HostHealth{}));
    } else if (command == "send") {
      in >> batch.sequence;
      batch.records.swap(stream.put);
      stream.send(batch);
    } else if (command == "goodbye") {
      long seconds = 0;
      in >> seconds;
      stream.send(wire::Goodbye{seconds * weft::kSecond, "test"});
    } else if (command == "close") {
      stream.close();
    } else {
      std::cerr << "unknown command " << command << "\n";
      return 2;
    }
  }
  return 0;
}
