"""The process behind cli_support.Wire: two TUN devices, and what happens to UDP between them."""

import fcntl
import json
import os
import random
import select
import struct
import subprocess
import sys

from tests.integration.cli_support import enter_netns

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000


def open_tun(netns, address):
    enter_netns(netns)
    name = "w" + address.split("/")[0].replace(":", ".")[-14:]  # a namespace may have several
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    subprocess.run(["ip", "addr", "add", address, "dev", name], check=True)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return tun


def checksum(header):
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def with_ecn(packet, ecn):
    header = bytearray(packet[:20])
    header[1] = (header[1] & 0xFC) | ecn
    header[10:12] = b"\0\0"
    header[10:12] = struct.pack("!H", checksum(bytes(header)))
    return bytes(header) + packet[20:]


class Direction:
    def __init__(self, target, faults):
        self.target, self.faults, self.count = target, faults, 0
        self.random = random.Random(1)

    def carry(self, packet):
        if packet[0] == 0x45 and packet[9] == 17:
            self.count += 1
            if self.hits("drop_every") or self.random.random() < self.faults.get("drop_share", 0):
                return
            if self.hits("mark_every") and packet[1] & 3:
                packet = with_ecn(packet, 3)
            if self.hits("bleach_every"):
                packet = with_ecn(packet, 0)
        os.write(self.target, packet)

    def hits(self, fault):
        every = self.faults.get(fault, 0)
        return every and self.count % every == 0


def main():
    netns_a, address_a, netns_b, address_b, faults = sys.argv[1:]
    faults = json.loads(faults)
    a, b = open_tun(netns_a, address_a), open_tun(netns_b, address_b)
    ways = {a: Direction(b, faults.get("a>b", {})), b: Direction(a, faults.get("b>a", {}))}
    print("ready", flush=True)
    while True:
        for source in select.select([a, b], [], [])[0]:
            ways[source].carry(os.read(source, 65536))


if __name__ == "__main__":
    main()
