//! Our responder in the place of rxe's.

use super::*;
use crate::wire::{CREDITS_UNLIMITED, Operation, Syndrome};

const ACK: Syndrome = Syndrome::Ack { credits: CREDITS_UNLIMITED };

/// Where our answers are others than those of rxe.
const DIFFERENCES: &[Difference] = &[
    Difference {
        capture: "rnr_exhausted",
        reason: "who was told to wait is not told again that packets are ahead",
        packets: &["ACKNOWLEDGE psn fffffd syndrome 0x2c msn 0"; 3],
        done: &[],
    },
    Difference {
        capture: "rnr_middle",
        reason: "who was told to wait is not told again that packets are ahead",
        packets: &[
            "ACKNOWLEDGE psn fffffd syndrome 0x1f msn 1",
            "ACKNOWLEDGE psn fffffe syndrome 0x2c msn 1",
            "ACKNOWLEDGE psn fffffe syndrome 0x2c msn 1",
            "ACKNOWLEDGE psn ffffff syndrome 0x1f msn 2",
            "ACKNOWLEDGE psn 000000 syndrome 0x1f msn 3",
        ],
        done: &[(0, WcStatus::Success), (1, WcStatus::Success)],
    },
    too_long("send_too_long"),
    too_long("send_too_long_multi"),
    Difference {
        capture: "lost_read_middle_responder",
        reason: "a READ asked for again from its middle is answered as a READ of its own, which \
                 rxe takes (read_retry_first)",
        packets: &[
            "READ_RESPONSE_FIRST psn fffffd syndrome 0x1f msn 1 payload 256",
            "READ_RESPONSE_MIDDLE psn fffffe payload 256",
            "READ_RESPONSE_LAST psn ffffff syndrome 0x1f msn 1 payload 188",
            "READ_RESPONSE_FIRST psn fffffe syndrome 0x1f msn 1 payload 256",
            "READ_RESPONSE_LAST psn ffffff syndrome 0x1f msn 1 payload 188",
        ],
        done: &[],
    },
    Difference {
        capture: "dup_before_read_responder",
        reason: "an ACK at an atomic's PSN stands for its answer, which may have been lost",
        packets: &[
            "ACKNOWLEDGE psn fffffd syndrome 0x1f msn 1",
            "ATOMIC_ACKNOWLEDGE psn fffffe syndrome 0x1f msn 2 original 1000",
            "ACKNOWLEDGE psn fffffd syndrome 0x1f msn 2",
            "READ_RESPONSE_FIRST psn ffffff syndrome 0x1f msn 3 payload 256",
            "READ_RESPONSE_LAST psn 000000 syndrome 0x1f msn 3 payload 44",
            "ACKNOWLEDGE psn fffffd syndrome 0x1f msn 3",
        ],
        done: &[(0, WcStatus::Success)],
    },
    Difference {
        capture: "forged_short_first_responder",
        reason: "a FIRST must fill the path MTU, as on UC",
        packets: &["ACKNOWLEDGE psn fffffd syndrome 0x61 msn 0"],
        done: &[(0, WcStatus::WrFlushErr)],
    },
];

const fn too_long(capture: &'static str) -> Difference {
    Difference {
        capture,
        reason: "the sender broke the rules, not the responder; verbs have LocLenErr for it",
        packets: &["ACKNOWLEDGE psn fffffd syndrome 0x61 msn 0"],
        done: &[(0, WcStatus::LocLenErr)],
    }
}

/// Captures that a responder cannot be shown.
const NOT_REPLAYED: &[(&str, &str)] = &[
    ("long_write_tail", "begins in the middle of a message"),
    ("invalidate", "no memory windows here"),
    ("recv_bad_lkey", "such a receive work request is refused when it is posted"),
];

/// What the responder answers to the captured requests; what the capture has instead.
fn replay(capture: &Capture, side: &mut Side) -> (Outcome, Outcome) {
    let read_only = SharedMemory::new(BUF_BYTES).unwrap();
    let access = Access { remote_read: true, ..Access::LOCAL };
    let read_keys =
        side.device.reg_shared_mr(PdNum::DEFAULT, &read_only, read_only.whole(), access).unwrap();
    let (base, rkey) = (side.memory.addr(), side.keys.rkey);
    let remote = |va: &mut u64, key: &mut u32| {
        let offset = va.wrapping_sub(B_BASE);
        (*va, *key) = match *key {
            key if key == capture.rkey => (base.wrapping_add(offset), rkey),
            key if key == capture.read_rkey => {
                (read_only.addr().wrapping_add(offset), read_keys.rkey)
            }
            _ => (*va, *key),
        };
    };
    let (mut ours, mut captured) = (Outcome::default(), Outcome::default());
    for event in &capture.events {
        match event {
            Event::Receive(wr_id, len) => {
                let sg_list = side.list(*wr_id as usize * RECV_STRIDE, *len);
                side.device.post_recv(side.qp, &[RecvWr { wr_id: *wr_id, sg_list }]).unwrap();
            }
            Event::Request(frame) => side.feed(frame, |packet| {
                if let Some(reth) = &mut packet.ext.reth {
                    remote(&mut reth.va, &mut reth.rkey);
                }
                if let Some(atomic) = &mut packet.ext.atomic {
                    remote(&mut atomic.va, &mut atomic.rkey);
                }
            }),
            Event::ResponderDone(done) => captured.done.push(*done),
            Event::Answer(_) | Event::Post(..) | Event::RequesterDone(_) => {}
        }
    }
    let answers: Vec<_> = capture.frames(false).collect();
    for (i, packet) in side.sent.iter().enumerate() {
        ours.packets.push(told(packet, answers.get(i).copied()));
    }
    let in_words = |frame: &&Frame| words(&PacketRepr::parse(&frame.packet).unwrap());
    captured.packets.extend(answers.iter().map(in_words));
    ours.done = side.done();
    (ours, captured)
}

#[test]
fn our_responder_answers_what_rxe_answered() {
    let (mut replayed, mut wrong) = (0, Vec::new());
    for (name, _) in pcap::RC {
        if name.ends_with("_requester") || NOT_REPLAYED.iter().any(|(it, _)| it == name) {
            continue;
        }
        let capture = Capture::of(name);
        let mut side = Side::new(&capture, false).expect("an answer");
        wrong.extend(compare(name, &replay(&capture, &mut side), DIFFERENCES));
        replayed += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(replayed > 40, "{replayed}");
}

#[test]
fn no_acknowledgement_stands_for_the_answer_of_a_read_or_an_atomic() {
    let mut answers = 0;
    for (name, _) in pcap::RC {
        if name.ends_with("_requester") || NOT_REPLAYED.iter().any(|(it, _)| it == name) {
            continue;
        }
        let capture = Capture::of(name);
        let mut side = Side::new(&capture, false).expect("an answer");
        replay(&capture, &mut side);
        let sent: Vec<_> = side.sent.iter().map(|it| Packet::parse(&it.bytes).unwrap()).collect();
        let is_ack = |packet: &&Packet<'_>| packet.opcode.operation == Operation::Acknowledge;
        let acks = sent.iter().filter(is_ack).filter(|packet| {
            packet.aeth().is_some_and(|aeth| matches!(Syndrome::of(aeth.syndrome), Some(ACK)))
        });
        let acks: Vec<_> = acks.map(|packet| packet.bth.psn()).collect();
        for answer in sent.iter().filter(|packet| !is_ack(packet)) {
            assert!(!acks.contains(&answer.bth.psn()), "{name}: {:?}", answer.bth.psn());
            answers += 1;
        }
    }
    assert!(answers > 40, "{answers}");
}

#[test]
fn what_rxe_sends_lands_in_our_memory() {
    let capture = Capture::of("ops_mtu256");
    let mut side = Side::new(&capture, false).unwrap();
    replay(&capture, &mut side);
    let bytes = |at: usize, len: usize| {
        let mut bytes = vec![0; len];
        side.memory.read(at, &mut bytes).unwrap();
        bytes
    };
    let sent = memory_bytes(true);
    for (wr_id, len) in [(0, 100), (1, 33), (3, 600), (4, 599)] {
        assert_eq!(bytes(wr_id * RECV_STRIDE, len), sent[..len], "receive {wr_id}");
    }
    assert_eq!(bytes(WRITE_AT, 600), sent[..600]);
    assert_eq!(bytes(ATOMIC_AT, 8), 77_u64.to_ne_bytes());
}
