//! Our RC against captures of rxe: one side of a capture is taken by our device, the other side's
//! packets come from the capture, and ours must be the captured ones, byte for byte.

mod requester;
mod responder;

use super::golden_rc::{TRANSCRIPTS, words};
use super::{OnWire, TestLink, connect_to};
use crate::wire::pcap::{self, Frame};
use crate::wire::{Packet, PacketRepr};
use crate::{RoceConfig, RoceDevice};
use std::fmt::Debug;
use std::str::FromStr;
use towpath_base::serial::Psn;
use towpath_memory::SharedMemory;
use towpath_verbs::*;

/// Memory of each side, and where the responder's lay.
const BUF_BYTES: usize = 128 << 10;
const B_BASE: u64 = 0x10_0000_0000;
/// Where the requester's READs and atomics land.
const READ_AT: usize = 0x8000;
const ATOMIC_LANDS_AT: usize = 0xa000;
/// Where the responder's atomics are.
const ATOMIC_AT: usize = 0x1_8000;
/// Where the responder's memory is written and read.
const WRITE_AT: usize = 0x1_0000;
const READ_FROM: usize = 0x1_4000;
/// From one receive buffer to the next.
const RECV_STRIDE: usize = 0x1000;
const A_PSN: u32 = 0xff_fffd;
const B_PSN: u32 = 0x100;

/// A completion: `wr_id` and status.
type Done = (u64, WcStatus);

/// What happened, in order.
enum Event {
    /// The requester posted.
    Post(SendOp, SendWr, usize),
    /// The responder posted a receive work request of that many bytes.
    Receive(u64, usize),
    Request(Frame),
    Answer(Frame),
    RequesterDone(Done),
    ResponderDone(Done),
}

/// A capture with what its transcript tells.
struct Capture {
    mtu: Mtu,
    rc: RcAttr,
    /// What the responder's queue pair allowed.
    access: Access,
    /// The key of the responder's memory.
    rkey: u32,
    /// Another one, of a region that allows only READ.
    read_rkey: u32,
    events: Vec<Event>,
}

/// The number behind `word`.
fn field(line: &str, word: &str) -> Option<u64> {
    let token = line.split_once(word)?.1.split_whitespace().next()?;
    let number = match token.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => u64::from_str(token),
    };
    Some(number.unwrap_or_else(|_| panic!("{word}in {line}")))
}

fn post(line: &str) -> Event {
    let number = |word| field(line, word).unwrap_or(0);
    let remote = RemoteAddr { addr: number(" va "), rkey: number(" rkey ") as u32 };
    let imm_data = number(" imm ") as u32;
    let (add, compare) = (number(" swap_add "), number(" compare "));
    let what = line.split_whitespace().nth(4).expect("a post names its operation");
    let op = match what {
        "SEND" => SendOp::Send,
        "SEND_WITH_IMM" => SendOp::SendWithImm { imm_data },
        "WRITE" => SendOp::Write { remote },
        "WRITE_WITH_IMM" => SendOp::WriteWithImm { remote, imm_data },
        "READ" => SendOp::Read { remote },
        "FETCH_ADD" => SendOp::FetchAdd { remote, add },
        "CMP_SWAP" => SendOp::CmpSwap { remote, compare, swap: add },
        _ => panic!("{line}"),
    };
    let mut wr = SendWr::new(number(" posts "), op, <SgList>::default());
    wr.flags.signaled = !line.contains("unsignaled");
    wr.flags.solicited = line.contains(" solicited");
    wr.flags.fence = line.contains(" fenced");
    Event::Post(op, wr, number(" len ") as usize)
}

fn done(line: &str) -> Done {
    let status = match line.split_once(": ").expect("a completion has a status").1 {
        "success" => WcStatus::Success,
        "Work Request Flushed Error" => WcStatus::WrFlushErr,
        "remote access error" => WcStatus::RemAccessErr,
        "remote invalid request error" => WcStatus::RemInvReqErr,
        "remote operation error" => WcStatus::RemOpErr,
        "transport retry counter exceeded" => WcStatus::RetryExcErr,
        "RNR retry counter exceeded" => WcStatus::RnrRetryExcErr,
        "local QP operation error" => WcStatus::LocQpOpErr,
        status => panic!("{status}"),
    };
    let wr_id = line.split_once(" completes ").and_then(|(_, rest)| rest.split(':').next());
    (wr_id.and_then(|id| id.parse().ok()).expect("a completion has a number"), status)
}

impl Capture {
    fn of(name: &str) -> Self {
        let head = format!("== {name}\n");
        let section = TRANSCRIPTS.split_once(&head).expect("a transcript").1;
        let section = section.split("\n== ").next().expect("not empty");
        let settings = section.lines().next().expect("settings");
        let setting = |word| field(settings, word).expect("every setting is there");
        let attr = |word| setting(word) as u8;
        let mut frames = pcap::rc_frames(name).into_iter();
        let mut next = || frames.next().expect("a frame for each line");
        let events = section.lines().filter_map(|line| match line.get(8..10) {
            Some("> ") => Some(Event::Request(next())),
            Some("< ") => Some(Event::Answer(next())),
            _ if line.contains("A posts ") => Some(post(&line[8..])),
            _ if line.contains("B posts ") => {
                Some(Event::Receive(field(line, "receive ")?, field(line, " len ")? as usize))
            }
            _ if line.contains("A completes ") => Some(Event::RequesterDone(done(line))),
            _ if line.contains("B completes ") => Some(Event::ResponderDone(done(line))),
            _ => None,
        });
        Self {
            events: events.collect(),
            mtu: match setting("mtu ") {
                256 => Mtu::Mtu256,
                1024 => Mtu::Mtu1024,
                _ => Mtu::Mtu4096,
            },
            rc: RcAttr {
                timeout: attr("timeout "),
                retry_cnt: attr("retry_cnt "),
                rnr_retry: attr("rnr_retry "),
                min_rnr_timer: attr("min_rnr_timer "),
                max_rd_atomic: attr("rd_atomic "),
                max_dest_rd_atomic: attr("rd_atomic "),
            },
            access: if settings.contains("access all") {
                Access::REMOTE_ALL
            } else {
                Access::LOCAL
            },
            rkey: setting("rkey ") as u32,
            read_rkey: field(section, "B opens rkey ").unwrap_or(0) as u32,
        }
    }

    fn frames(&self, requests: bool) -> impl Iterator<Item = &Frame> {
        self.events.iter().filter_map(move |event| match event {
            Event::Request(frame) if requests => Some(frame),
            Event::Answer(frame) if !requests => Some(frame),
            _ => None,
        })
    }
}

/// Bytes as the captures' memory held them.
fn memory_bytes(requester: bool) -> Vec<u8> {
    let flip = if requester { 0xa0 } else { 0 };
    (0..BUF_BYTES).map(|i| (i % 251) as u8 ^ (i / 251) as u8 | 1).map(|byte| byte ^ flip).collect()
}

/// Our device in the place of one side.
struct Side {
    device: RoceDevice<TestLink>,
    cq: CqNum,
    qp: QpNum,
    memory: SharedMemory,
    keys: MrKeys,
    /// What it sent and nobody looked at yet.
    sent: Vec<OnWire>,
}

impl Side {
    /// `None` where a frame of each direction is missing to learn the numbers from.
    fn new(capture: &Capture, requester: bool) -> Option<Self> {
        let ours = capture.frames(requester).next()?;
        let dest_qp = Packet::parse(&ours.packet).ok()?.bth.dest_qp();
        let mut link = TestLink::new(&ours.source.to_string());
        (link.source_ports, link.rx_buffer_bytes) = (1, None);
        let mut device = RoceDevice::new(link, RoceConfig::default().seed(5));
        let memory = SharedMemory::new(BUF_BYTES).unwrap();
        memory.write(0, &memory_bytes(requester)).unwrap();
        if !requester {
            memory.write(ATOMIC_AT, &1000_u64.to_ne_bytes()).unwrap();
        }
        let keys = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::REMOTE_ALL)
            .unwrap();
        let cq = device.create_cq(64).unwrap();
        let init = QpInit::new(QpType::Rc, cq).access(capture.access);
        let qp = device.create_qp(&init).unwrap();
        let (sq_psn, rq_psn) = if requester { (A_PSN, B_PSN) } else { (B_PSN, A_PSN) };
        let connect = Connect {
            rq_psn: Psn::new(rq_psn),
            sq_psn: Psn::new(sq_psn),
            path_mtu: capture.mtu,
            rc: capture.rc,
            ..connect_to(ours.dest, QpNum(dest_qp))
        };
        device.connect_qp(qp, &connect).unwrap();
        Some(Self { device, cq, qp, memory, keys, sent: Vec::new() })
    }

    fn list(&self, at: usize, length: usize) -> SgList {
        let (addr, lkey) = (self.memory.addr() + at as u64, self.keys.lkey);
        if length == 0 {
            return SgList::default();
        }
        SgList::one(Sge { addr, length: length as u32, lkey })
    }

    fn progress(&mut self) {
        while self.device.progress(16) > 0 {}
        self.sent.append(&mut self.device.link_mut().sent);
    }

    /// A packet of the capture's other side, for our queue pair.
    fn feed(&mut self, frame: &Frame, change: impl FnOnce(&mut PacketRepr)) {
        let mut packet = PacketRepr::parse(&frame.packet).unwrap();
        packet.bth.dest_qp = self.qp.0;
        change(&mut packet);
        let dest = self.device.link().addr;
        let bytes = packet.emit(frame.source, dest);
        let source = frame.source;
        self.device.link_mut().coming.push_back(OnWire { source, dest, tclass: 0, bytes });
        self.progress();
    }

    fn done(&mut self) -> Vec<Done> {
        let mut out = [Wc::default(); 64];
        let count = self.device.poll_cq(self.cq, &mut out);
        out[..count].iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }
}

/// What a replay found: packets in words, then completions.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    packets: Vec<String>,
    done: Vec<Done>,
}

/// A capture in which we differ on purpose: why, our packets, our completions.
struct Difference {
    capture: &'static str,
    reason: &'static str,
    packets: &'static [&'static str],
    done: &'static [Done],
}

/// What is wrong about a replay: it differs from its capture, or not as it should.
fn compare(
    name: &str,
    (ours, captured): &(Outcome, Outcome),
    differences: &[Difference],
) -> Option<String> {
    let allowed = differences.iter().find(|it| it.capture == name);
    let Some(Difference { reason, packets, done, .. }) = allowed else {
        return (ours != captured).then(|| format!("{name}: {ours:#?} but rxe {captured:#?}"));
    };
    if ours == captured {
        return Some(format!("{name} does not differ any more: {reason}"));
    }
    let as_allowed = ours.packets == *packets && ours.done == *done;
    (!as_allowed).then(|| format!("{name}: {ours:#?} is not what it should be: {reason}"))
}

/// Our packet in words, after a look at its bytes: where it says what the captured one says, it
/// must be that one, but for the IP ID that the captured ICRC covers.
fn told(ours: &OnWire, captured: Option<&Frame>) -> String {
    let said = words(&PacketRepr::parse(&ours.bytes).unwrap());
    if let Some(frame) = captured {
        let theirs = PacketRepr::parse(&frame.packet).unwrap();
        if words(&theirs) == said {
            assert_eq!(ours.bytes, theirs.emit(frame.source, frame.dest), "{said}");
        }
    }
    said
}
