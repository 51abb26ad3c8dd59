//! Sending: packets become runs, runs become messages, messages go out in batches.

use super::counters::UdpCounters;
use super::limits::{
    LINEAR_BYTES_MAX, PACKET_BYTES_MAX, RUN_BYTES_MAX, SEND_MESSAGES_MAX, SOURCE_PORTS_MAX,
};
use super::mmsg::{Fill, SendBatch};
use super::steering::dest_qp;
use super::sys;
use core::net::SocketAddr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use towpath_verbs::{LinkCounters, TxPacket};

/// Both sets of counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) link: LinkCounters,
    pub(super) udp: UdpCounters,
}

/// A message of one or more packets to one place.
#[derive(Clone, Copy, Default)]
struct Run {
    packets: usize,
    bytes: usize,
    /// Whether it asks for segmentation offload.
    offloaded: bool,
}

/// How a round of sending ended; the number is of packets that are done with.
enum Round {
    /// Go on.
    Took(usize),
    /// The wire is full.
    Full(usize),
    /// The run of that many packets which follows was refused, perhaps for being a run.
    RunRefused(usize, usize),
}

/// What a failed send means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Again,
    Full,
    /// For good, but it may have been the offload that was refused.
    RunRefused,
    /// For good.
    Refused,
}

fn verdict(error: &io::Error) -> Verdict {
    match error.raw_os_error() {
        Some(libc::EINTR) => Verdict::Again,
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Verdict::Full,
        Some(libc::EINVAL | libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EMSGSIZE) => {
            Verdict::RunRefused
        }
        _ => Verdict::Refused,
    }
}

/// The sending side of a link.
pub(super) struct Sender {
    batch: SendBatch,
    /// Packets of one run; 0 while nothing is offloaded.
    segments_max: usize,
    /// The traffic class that each socket gives packets by itself, once it has sent any: that of
    /// the first. To name it with a packet costs 0.09 us of the 3 that it takes through sockets.
    usual_tclass: [Option<u8>; SOURCE_PORTS_MAX as usize],
}

impl Sender {
    pub(super) fn new(batch: SendBatch, segments_max: usize) -> Self {
        Self { batch, segments_max, usual_tclass: [None; SOURCE_PORTS_MAX as usize] }
    }

    /// Whether runs are offloaded.
    pub(super) fn segmentation(&self) -> bool {
        self.segments_max > 0
    }

    /// Sends in order; returns how many packets are done with.
    pub(super) fn transmit(
        &mut self,
        sockets: &[UdpSocket],
        local: SocketAddr,
        packets: &[TxPacket<'_>],
        counts: &mut Counts,
    ) -> usize {
        let mut taken = 0;
        while taken < packets.len() {
            let round = self.round(sockets, local, &packets[taken..], self.segments_max, counts);
            match round {
                Round::Took(count) => taken += count,
                Round::Full(count) => return taken + count,
                Round::RunRefused(count, run) => {
                    taken += count;
                    let run = &packets[taken..taken + run];
                    let done = self.apart(sockets, local, run, counts);
                    taken += done;
                    if done < run.len() {
                        return taken;
                    }
                }
            }
        }
        taken
    }

    /// Sends a refused run packet by packet. Where that works for packets of full length the
    /// offload was at fault, and it is not asked for again. (A short packet passes where the others
    /// are too long for the way.)
    fn apart(
        &mut self,
        sockets: &[UdpSocket],
        local: SocketAddr,
        run: &[TxPacket<'_>],
        counts: &mut Counts,
    ) -> usize {
        let longest = run.iter().map(TxPacket::byte_len).max().unwrap_or(0);
        let (mut taken, mut full_sent) = (0, false);
        let mut full = false;
        while taken < run.len() && !full {
            // One at a time, so that it is known which passed.
            let sent_before = counts.link.packets_sent;
            match self.round(sockets, local, &run[taken..=taken], 0, counts) {
                Round::Took(count) | Round::RunRefused(count, _) => {
                    let passed = counts.link.packets_sent > sent_before;
                    full_sent |= passed && run[taken].byte_len() == longest;
                    taken += count;
                }
                Round::Full(count) => {
                    taken += count;
                    full = true;
                }
            }
        }
        if full_sent {
            self.segments_max = 0;
            counts.udp.segmentation_refused += 1;
        }
        taken
    }

    /// Sends one batch from the front of `packets`, which is not empty.
    fn round(
        &mut self,
        sockets: &[UdpSocket],
        local: SocketAddr,
        packets: &[TxPacket<'_>],
        segments_max: usize,
        counts: &mut Counts,
    ) -> Round {
        let sendable = |packet: &TxPacket<'_>| {
            packet.dest.is_ipv4() == local.is_ipv4()
                && usize::from(packet.source_port) < sockets.len()
                && packet.byte_len() <= PACKET_BYTES_MAX
        };
        if !sendable(&packets[0]) {
            counts.link.send_errors += 1;
            return Round::Took(1);
        }
        let port = packets[0].source_port;
        let usual = &mut self.usual_tclass[usize::from(port)];
        let usual =
            usual.get_or_insert_with(|| set_tclass(&sockets[usize::from(port)], &packets[0]));
        let mut fill = self.batch.fill(*usual);
        let mut runs = [Run::default(); SEND_MESSAGES_MAX];
        let mut run_count = 0;
        let mut next = 0;
        while next < packets.len()
            && fill.has_message_room()
            && packets[next].source_port == port
            && fill.has_room(packets[next].parts())
            && sendable(&packets[next])
        {
            let run = add_run(&mut fill, &packets[next..], segments_max);
            next += run.packets;
            runs[run_count] = run;
            run_count += 1;
        }
        flush(&mut fill, &sockets[usize::from(port)], &runs[..run_count], counts)
    }
}

/// Has a socket give packets the traffic class of this one. Says which it gives them.
#[cold]
fn set_tclass(socket: &UdpSocket, packet: &TxPacket<'_>) -> u8 {
    let (level, name) = sys::tclass_option(packet.dest);
    let set = sys::set_option(socket.as_fd(), level, name, i32::from(packet.tclass));
    if set.is_ok() { packet.tclass } else { 0 }
}

/// Adds the longest run at the front of `packets`, of which the first has room.
fn add_run<'a>(fill: &mut Fill<'_, 'a>, packets: &[TxPacket<'a>], segments_max: usize) -> Run {
    let head = &packets[0];
    let segment = head.byte_len();
    let mut run = Run::default();
    for packet in packets {
        let bytes = packet.byte_len();
        let fits = run.packets == 0
            || (run.packets < segments_max
                && bytes <= segment
                && bytes > 0
                && run.bytes + bytes <= RUN_BYTES_MAX
                && same_flow(head, packet)
                && fill.has_room(packet.parts()));
        if !fits {
            break;
        }
        for part in packet.parts() {
            fill.push(part);
        }
        run.packets += 1;
        run.bytes += bytes;
        if bytes < segment {
            break;
        }
    }
    run.offloaded = segments_max > 0 && (run.packets > 1 || run.bytes > LINEAR_BYTES_MAX);
    let segment = u16::try_from(segment).ok().filter(|_| run.offloaded);
    fill.end(head.dest, head.tclass, segment);
    run
}

/// Whether two packets may leave as one run: the kernel at the other end brings a run whole to one
/// of the sockets that share the port there, by the queue pair of its first packet.
fn same_flow(a: &TxPacket<'_>, b: &TxPacket<'_>) -> bool {
    a.source_port == b.source_port
        && a.tclass == b.tclass
        && a.dest == b.dest
        && dest_qp(a.parts()) == dest_qp(b.parts())
}

/// Sends what was filled.
fn flush(fill: &mut Fill<'_, '_>, socket: &UdpSocket, runs: &[Run], counts: &mut Counts) -> Round {
    let mut done = 0;
    let mut packets = 0;
    while done < runs.len() {
        counts.udp.send_calls += 1;
        match fill.send(socket.as_fd(), done) {
            // It never takes none without saying why, but if it did, this must not spin.
            Ok(0) => return Round::Full(packets),
            Ok(sent) => {
                for run in &runs[done..done + sent] {
                    packets += run.packets;
                    note_sent(run, counts);
                }
                done += sent;
            }
            Err(error) => match verdict(&error) {
                Verdict::Again => {}
                Verdict::Full => {
                    counts.udp.would_block += 1;
                    return Round::Full(packets);
                }
                Verdict::RunRefused if runs[done].offloaded => {
                    return Round::RunRefused(packets, runs[done].packets);
                }
                Verdict::RunRefused | Verdict::Refused => {
                    counts.link.send_errors += runs[done].packets as u64;
                    packets += runs[done].packets;
                    done += 1;
                }
            },
        }
    }
    Round::Took(packets)
}

fn note_sent(run: &Run, counts: &mut Counts) {
    counts.link.packets_sent += run.packets as u64;
    counts.link.bytes_sent += run.bytes as u64;
    counts.udp.messages_sent += 1;
    if run.packets > 1 {
        counts.udp.segments_sent += run.packets as u64;
    }
}
