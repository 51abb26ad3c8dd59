//! Sending: packets become runs, runs become messages, messages go out in batches.

use super::counters::UdpCounters;
use super::limits::{
    LINEAR_BYTES_MAX, PACKET_BYTES_MAX, RECONNECT_AFTER, RUN_BYTES_MAX, SEND_MESSAGES_MAX,
};
use super::mmsg::{Fill, SendBatch, Usual};
use super::steering::dest_qp;
use super::sys;
use crate::addr::is_same;
use core::hint::cold_path;
use core::net::SocketAddr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use towpath_base::passes::{Pass, note};
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
    /// Too long for the interface. Or a router has found an earlier packet too long, which is told
    /// once and says nothing of this one.
    TooLong,
    /// For good, but it may have been the offload that was refused.
    RunRefused,
    /// For good.
    Refused,
}

fn verdict(error: &io::Error) -> Verdict {
    match error.raw_os_error() {
        // The second is of a packet before, for which nobody was there; with it nothing was sent.
        Some(libc::EINTR | libc::ECONNREFUSED) => Verdict::Again,
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Verdict::Full,
        Some(libc::EMSGSIZE) => Verdict::TooLong,
        Some(libc::EINVAL | libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP) => {
            Verdict::RunRefused
        }
        _ => Verdict::Refused,
    }
}

/// A socket that sends, and what it gives packets by itself.
pub(super) struct Outlet {
    pub(super) socket: UdpSocket,
    /// Whether it may be connected: to one place at a time, where packets to others name theirs.
    connects: bool,
    /// The traffic class is that of the first packet: to name it with each costs 0.09 us of the 3
    /// that one takes through sockets. A route that is not looked up costs 0.3 less.
    usual: Usual,
    has_sent: bool,
    /// Batches in a row that went elsewhere than to where it is connected.
    elsewhere: u32,
}

impl Outlet {
    /// A socket, which nothing is received on if it `connects`.
    pub(super) fn new(socket: UdpSocket, connects: bool) -> Self {
        let usual = Usual::default();
        Self { socket, connects, usual, has_sent: false, elsewhere: RECONNECT_AFTER }
    }

    /// What it gives packets by itself, of which this is the next.
    #[inline]
    fn usual_for(&mut self, packet: &TxPacket<'_>) -> Usual {
        if !self.has_sent {
            self.has_sent = true;
            self.set_tclass(packet);
        }
        if self.connects {
            if self.usual.dest == Some(packet.dest) {
                self.elsewhere = 0;
            } else if self.elsewhere < RECONNECT_AFTER {
                self.elsewhere += 1;
            } else {
                self.connect(packet.dest);
            }
        }
        self.usual
    }

    #[cold]
    fn set_tclass(&mut self, packet: &TxPacket<'_>) {
        let (level, name) = sys::tclass_option(packet.dest);
        let set = sys::set_option(self.socket.as_fd(), level, name, i32::from(packet.tclass));
        self.usual.tclass = if set.is_ok() { packet.tclass } else { 0 };
    }

    #[cold]
    fn connect(&mut self, dest: SocketAddr) {
        let connected = sys::connect(self.socket.as_fd(), dest).is_ok();
        self.usual.dest = connected.then_some(dest);
        self.elsewhere = 0;
    }
}

/// The sending side of a link.
pub(super) struct Sender {
    batch: SendBatch,
    /// What the batch under way consists of.
    runs: [Run; SEND_MESSAGES_MAX],
    /// By source port.
    outlets: Vec<Outlet>,
    /// Packets of one run; 0 while nothing is offloaded.
    segments_max: usize,
    question: Question,
    /// The network card is asked.
    asks_card: bool,
}

/// Whether the last message of a batch asks when it leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    No,
    Open,
    /// It did, on this source port.
    Put(usize),
}

impl Sender {
    pub(super) fn new(outlets: Vec<Outlet>, segments_max: usize, asks_card: bool) -> Self {
        let runs = [Run::default(); SEND_MESSAGES_MAX];
        let (batch, question) = (SendBatch::new(), Question::No);
        Self { batch, runs, outlets, segments_max, question, asks_card }
    }

    /// The socket of a source port.
    pub(super) fn socket(&self, source_port: usize) -> Option<&UdpSocket> {
        self.outlets.get(source_port).map(|outlet| &outlet.socket)
    }

    /// How many source ports there are.
    pub(super) fn source_ports(&self) -> usize {
        self.outlets.len()
    }

    /// Whether runs are offloaded.
    pub(super) fn segmentation(&self) -> bool {
        self.segments_max > 0
    }

    /// Sends in order; returns how many packets are done with.
    pub(super) fn transmit(
        &mut self,
        local: SocketAddr,
        packets: &[TxPacket<'_>],
        counts: &mut Counts,
    ) -> usize {
        if let [packet] = packets
            && self.send_alone(packet, counts)
        {
            return 1;
        }
        self.transmit_batch(local, packets, counts)
    }

    /// As [`transmit`](Self::transmit), and the last message asks when it leaves: the source port
    /// of which it did, where it was taken.
    #[cold]
    pub(super) fn transmit_asking(
        &mut self,
        local: SocketAddr,
        packets: &[TxPacket<'_>],
        counts: &mut Counts,
    ) -> (usize, Option<usize>) {
        self.question = Question::Open;
        let sent_before = counts.udp.messages_sent;
        let taken = self.transmit_batch(local, packets, counts);
        let question = core::mem::replace(&mut self.question, Question::No);
        let all = taken == packets.len() && counts.udp.messages_sent > sent_before;
        let asked = if let Question::Put(port) = question { Some(port) } else { None };
        (taken, asked.filter(|_| all))
    }

    /// Sends a packet that needs no more than its bytes: it is in one piece, as the socket sends
    /// it by itself, and goes where that is connected to. Such are most messages that somebody
    /// waits for, so they pass as little code as can be. False when it is not such a packet, or
    /// the kernel did not take it: then the long way finds out why.
    #[inline]
    fn send_alone(&mut self, packet: &TxPacket<'_>, counts: &mut Counts) -> bool {
        let [bytes] = packet.parts() else { return false };
        let Some(outlet) = self.outlets.get_mut(usize::from(packet.source_port)) else {
            return false;
        };
        let Usual { tclass, dest } = outlet.usual;
        let is_usual =
            tclass == packet.tclass && dest.is_some_and(|dest| is_same(&dest, &packet.dest));
        if bytes.len() > LINEAR_BYTES_MAX || !is_usual {
            return false;
        }
        counts.udp.send_calls += 1;
        if let Err(error) = sys::send(outlet.socket.as_fd(), bytes) {
            cold_path();
            counts.udp.too_long += u64::from(verdict(&error) == Verdict::TooLong);
            return false;
        }
        outlet.elsewhere = 0;
        note_sent(&Run { packets: 1, bytes: bytes.len(), offloaded: false }, counts);
        true
    }

    #[inline(never)]
    fn transmit_batch(
        &mut self,
        local: SocketAddr,
        packets: &[TxPacket<'_>],
        counts: &mut Counts,
    ) -> usize {
        let mut taken = 0;
        while taken < packets.len() {
            let round = self.round(local, &packets[taken..], self.segments_max, counts);
            match round {
                Round::Took(count) => taken += count,
                Round::Full(count) => return taken + count,
                Round::RunRefused(count, run) => {
                    taken += count;
                    self.question = Question::No;
                    let run = &packets[taken..taken + run];
                    let done = self.apart(local, run, counts);
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
    fn apart(&mut self, local: SocketAddr, run: &[TxPacket<'_>], counts: &mut Counts) -> usize {
        let longest = run.iter().map(TxPacket::byte_len).max().unwrap_or(0);
        let (mut taken, mut full_sent) = (0, false);
        let mut full = false;
        while taken < run.len() && !full {
            // One at a time, so that it is known which passed.
            let sent_before = counts.link.packets_sent;
            match self.round(local, &run[taken..=taken], 0, counts) {
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
        local: SocketAddr,
        packets: &[TxPacket<'_>],
        segments_max: usize,
        counts: &mut Counts,
    ) -> Round {
        let source_ports = self.outlets.len();
        let sendable = |packet: &TxPacket<'_>| {
            packet.dest.is_ipv4() == local.is_ipv4()
                && usize::from(packet.source_port) < source_ports
                && packet.byte_len() <= PACKET_BYTES_MAX
        };
        if !sendable(&packets[0]) {
            counts.link.send_errors += 1;
            return Round::Took(1);
        }
        let port = packets[0].source_port;
        let outlet = &mut self.outlets[usize::from(port)];
        let mut fill = self.batch.fill(outlet.usual_for(&packets[0]));
        let mut run_count = 0;
        let mut next = 0;
        while next < packets.len()
            && fill.has_message_room()
            && packets[next].source_port == port
            && fill.has_room(packets[next].parts().len())
            && sendable(&packets[next])
        {
            let run = add_run(&mut fill, &packets[next..], segments_max);
            next += run.packets;
            self.runs[run_count] = run;
            run_count += 1;
        }
        if self.question != Question::No && next == packets.len() {
            fill.stamp_last(self.asks_card);
            self.question = Question::Put(usize::from(port));
        }
        flush(&mut fill, &outlet.socket, &self.runs[..run_count], counts)
    }
}

#[cfg(test)]
impl Sender {
    /// Where the socket of a source port is connected to.
    pub(super) fn connected_to(&self, source_port: usize) -> Option<SocketAddr> {
        self.outlets[source_port].usual.dest
    }

    /// Has the kernel refuse offload from now on.
    pub(super) fn break_segmentation(&self) {
        for outlet in &self.outlets {
            sys::set_option(outlet.socket.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
                .expect("the option is there");
        }
    }
}

/// Adds the longest run at the front of `packets`, of which the first has room. It is for one queue
/// pair: the kernel at the other end brings a run whole to one of the sockets that share the port
/// there, by the queue pair of its first packet.
fn add_run<'a>(fill: &mut Fill<'_, 'a>, packets: &[TxPacket<'a>], segments_max: usize) -> Run {
    let head = &packets[0];
    let (segment, qp) = (head.byte_len(), dest_qp(head.parts()));
    let mut run = Run::default();
    for packet in packets {
        let bytes = packet.byte_len();
        let fits = run.packets == 0
            || (run.packets < segments_max
                && !head.alone
                && !packet.alone
                && bytes <= segment
                && bytes > 0
                && run.bytes + bytes <= RUN_BYTES_MAX
                && same_flow(head, packet)
                && qp == dest_qp(packet.parts())
                && fill.has_room(packet.parts().len()));
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

/// Whether two packets for one queue pair may leave as one run.
fn same_flow(a: &TxPacket<'_>, b: &TxPacket<'_>) -> bool {
    a.source_port == b.source_port && a.tclass == b.tclass && a.dest == b.dest
}

/// Sends what was filled.
fn flush(fill: &mut Fill<'_, '_>, socket: &UdpSocket, runs: &[Run], counts: &mut Counts) -> Round {
    let mut done = 0;
    let mut packets = 0;
    let mut tried_again = None;
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
                Verdict::TooLong if tried_again != Some(done) => {
                    counts.udp.too_long += 1;
                    tried_again = Some(done);
                }
                Verdict::TooLong | Verdict::RunRefused if runs[done].offloaded => {
                    return Round::RunRefused(packets, runs[done].packets);
                }
                Verdict::TooLong | Verdict::RunRefused | Verdict::Refused => {
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
    note(Pass::Socket, run.bytes);
    counts.udp.messages_sent += 1;
    if run.packets > 1 {
        counts.udp.segments_sent += run.packets as u64;
    }
}
