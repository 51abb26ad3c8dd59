//! Our requester in the place of rxe's.

use super::*;
use std::collections::VecDeque;
use towpath_base::Time;

/// Where our requests are others than those of rxe.
const DIFFERENCES: &[Difference] = &[
    Difference {
        capture: "rnr_exhausted",
        reason: "while the peer is not ready nothing behind is sent in vain",
        packets: &[
            "SEND_ONLY psn fffffd ack_req payload 10",
            "SEND_ONLY psn fffffd ack_req payload 10",
            WRITE_BEHIND,
            "SEND_ONLY psn fffffd ack_req payload 10",
            WRITE_BEHIND,
        ],
        done: &[(1, WcStatus::RnrRetryExcErr), (2, WcStatus::WrFlushErr)],
    },
    Difference {
        capture: "rnr_middle",
        reason: "while the peer is not ready nothing behind is sent in vain",
        packets: &[
            "SEND_ONLY psn fffffd ack_req payload 10",
            "SEND_FIRST psn fffffe payload 256",
            "SEND_LAST psn ffffff ack_req payload 44",
            "SEND_FIRST psn fffffe payload 256",
            "SEND_LAST psn ffffff ack_req payload 44",
            WRITE_LAST_OF_THREE,
            "SEND_FIRST psn fffffe payload 256",
            "SEND_LAST psn ffffff ack_req payload 44",
            WRITE_LAST_OF_THREE,
        ],
        done: &[(1, WcStatus::Success), (2, WcStatus::Success), (3, WcStatus::Success)],
    },
    Difference {
        capture: "rnr_write_imm",
        reason: "an RNR NAK says that what lies before it arrived, as a sequence NAK does",
        packets: &[
            "WRITE_FIRST psn fffffd va 0x1000010000 rkey 0x2a3 dma_len 300 payload 256",
            LAST_WITH_IMM,
            LAST_WITH_IMM,
            LAST_WITH_IMM,
            LAST_WITH_IMM,
        ],
        done: &[(1, WcStatus::Success)],
    },
    Difference {
        capture: "ack_for_unsent_requester",
        reason: "what was never sent cannot have arrived; the timeout follows",
        packets: &["SEND_ONLY psn fffffd ack_req payload 100"; 2],
        done: &[],
    },
];

const WRITE_BEHIND: &str =
    "WRITE_ONLY psn fffffe ack_req va 0x1000010000 rkey 0x2a3 dma_len 10 payload 10";
const WRITE_LAST_OF_THREE: &str =
    "WRITE_ONLY psn 000000 ack_req va 0x1000010000 rkey 0x2a3 dma_len 10 payload 10";
const LAST_WITH_IMM: &str = "WRITE_LAST_WITH_IMM psn fffffe ack_req imm 0x11223301 payload 44";

/// Captures that a requester cannot be shown.
const NOT_REPLAYED: &[(&str, &str)] = &[
    ("long_write_tail", "begins in the middle of a message"),
    ("invalidate", "no SEND with invalidate here"),
];

impl Side {
    /// Posts; where the queue pair is in the error state already, rxe flushes what we refuse.
    fn post(&mut self, op: &SendOp, mut wr: SendWr, len: usize, done: &mut Vec<Done>) {
        let at = match op {
            SendOp::Read { .. } => READ_AT,
            SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } => ATOMIC_LANDS_AT,
            _ => 0,
        };
        wr.sg_list = self.list(at, len);
        match self.device.post_send(self.qp, &[wr]) {
            Ok(()) => self.progress(),
            Err(refused) => {
                assert_eq!(refused.error, VerbError::WrongState(Verb::PostSend));
                done.append(&mut self.done());
                done.push((wr.wr_id, WcStatus::WrFlushErr));
            }
        }
    }

    /// Lets time pass until the device's next timer, if it has one.
    fn await_timer(&mut self) -> bool {
        let due = self.device.next_timeout();
        if due != Time::NEVER {
            self.device.link_mut().now = due;
            self.progress();
        }
        due != Time::NEVER
    }
}

/// rxe's timers come by in whole ticks, so that what it sends for one is apart from what was
/// before; what it sends at once follows within half of this.
const TIMER_GAP_US: u64 = 1_000;

/// What the requester sends for the posted work requests; what the capture has instead.
fn replay(capture: &Capture, side: &mut Side) -> (Outcome, Outcome) {
    let (mut ours, mut captured) = (Outcome::default(), Outcome::default());
    let (mut last_us, mut sent) = (0, VecDeque::new());
    for event in &capture.events {
        match event {
            Event::Post(op, wr, len) => side.post(op, *wr, *len, &mut ours.done),
            Event::Answer(frame) => {
                side.feed(frame, |_| {});
                last_us = frame.time_us;
            }
            Event::Request(frame) => {
                captured.packets.push(words(&PacketRepr::parse(&frame.packet).unwrap()));
                sent.extend(side.sent.drain(..));
                if sent.is_empty() && frame.time_us - last_us > TIMER_GAP_US {
                    side.await_timer();
                    sent.extend(side.sent.drain(..));
                }
                ours.packets.extend(sent.pop_front().map(|packet| told(&packet, Some(frame))));
                last_us = frame.time_us;
            }
            Event::RequesterDone(done) => captured.done.push(*done),
            Event::Receive(..) | Event::ResponderDone(_) => {}
        }
    }
    ours.done.append(&mut side.done());
    while ours.done.len() < captured.done.len() && side.sent.is_empty() && side.await_timer() {
        ours.done.append(&mut side.done());
    }
    sent.extend(side.sent.drain(..));
    ours.packets.extend(sent.iter().map(|packet| told(packet, None)));
    (ours, captured)
}

#[test]
fn our_requester_sends_what_rxe_sent() {
    let (mut replayed, mut wrong) = (0, Vec::new());
    for (name, _) in pcap::RC {
        if name.ends_with("_responder") || NOT_REPLAYED.iter().any(|(it, _)| it == name) {
            continue;
        }
        let capture = Capture::of(name);
        let mut side = Side::new(&capture, true).expect("a request");
        wrong.extend(compare(name, &replay(&capture, &mut side), DIFFERENCES));
        replayed += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(replayed > 30, "{replayed}");
}

#[test]
fn what_rxe_answers_lands_in_our_memory() {
    let capture = Capture::of("ops_mtu256");
    let mut side = Side::new(&capture, true).unwrap();
    replay(&capture, &mut side);
    let bytes = |at: usize, len: usize| {
        let mut bytes = vec![0; len];
        side.memory.read(at, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(bytes(READ_AT, 600), memory_bytes(false)[READ_FROM..READ_FROM + 600]);
    assert_eq!(bytes(ATOMIC_LANDS_AT, 8), 77_u64.to_ne_bytes(), "what the last CMP_SWAP found");
}
