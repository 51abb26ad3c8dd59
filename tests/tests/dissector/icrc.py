"""Prints the numbers of the frames of a capture whose ICRC is not what Scapy computes."""

import sys

from scapy.all import Ether, rdpcap
from scapy.contrib.roce import BTH

for number, frame in enumerate(rdpcap(sys.argv[1]), start=1):
    # Scapy takes the last four bytes apart; what lies before them is asked for again.
    frame = Ether(bytes(frame))
    held = bytes(frame)[-4:]
    if BTH not in frame or frame[BTH].compute_icrc(b"") != held:
        print(number)
