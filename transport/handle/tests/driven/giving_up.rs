//! Messages that are given up, wherever they are: each has its outcome.

use crate::rig::{Lab, NOW, lab, take};
use std::time::Duration;
use towpath_base::Nanos;
use towpath_handle::{ChannelHandle, RecvError, SentMessage, Ticket};
use towpath_proto::Outcome;
use towpath_transport::{SendOptions, SubmitError};

/// Credit of a channel, and messages of one that the link has.
const QUOTA: u32 = 128;
const UNDER_WAY: u32 = 64;

fn outcome(ticket: &Ticket) -> Option<SentMessage> {
    ticket.wait(NOW).expect("it was taken")
}

fn send(channel: &ChannelHandle, number: u32, options: SendOptions) -> Ticket {
    let buf = channel.copy(&number.to_le_bytes()).expect("a buffer");
    channel.try_send(buf, options).expect("room")
}

/// Sends until the peer's credit is used up and the link takes no more of the channel.
fn block(lab: &mut Lab, channel: &ChannelHandle) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    for number in 0..QUOTA + UNDER_WAY {
        tickets.push(send(channel, number, SendOptions::new()));
    }
    lab.run();
    let (sent, waiting) = tickets.split_at(QUOTA as usize);
    assert!(sent.iter().all(|ticket| outcome(ticket).is_some()));
    assert!(waiting.iter().all(|ticket| outcome(ticket).is_none()), "nobody reads");
    tickets.split_off(QUOTA as usize)
}

#[test]
fn a_message_with_a_timeout_is_delivered_in_time_or_abandoned_beside_a_peer_that_never_reads() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let timeout = SendOptions::new().timeout(Duration::from_millis(10));
    let in_time = send(&mine, 7, timeout.token(70));
    lab.run();
    let sent = outcome(&in_time).expect("an outcome");
    assert_eq!((sent.token, sent.outcome), (70, Outcome::Delivered));
    assert_eq!(take(&theirs), 7u32.to_le_bytes());

    let held = block(&mut lab, &mine);
    // Behind more than the link takes of one channel.
    let queued = send(&mine, 1000, timeout.token(1));
    let behind = send(&mine, 1001, SendOptions::new());
    let deadline = SendOptions::new().deadline(lab.near.handle.now() + Nanos::from_millis(20));
    let dated = send(&mine, 1002, deadline.token(2));
    lab.run();
    for (ticket, token, number) in [(&queued, 1, 1000u32), (&dated, 2, 1002)] {
        let sent = outcome(ticket).expect("its time is over");
        assert_eq!((sent.token, sent.outcome), (token, Outcome::Abandoned));
        let bytes: Vec<_> = sent.payload.segments().iter().flat_map(|s| s.to_vec()).collect();
        assert_eq!(bytes, number.to_le_bytes(), "its buffer is back");
    }
    assert!(outcome(&behind).is_none() && outcome(&held[0]).is_none(), "these may take for ever");
    for number in (0..QUOTA + UNDER_WAY).chain([1001]) {
        if number == QUOTA {
            lab.run();
        }
        assert_eq!(take(&theirs), number.to_le_bytes(), "in order, and nothing that was given up");
    }
    assert_eq!(theirs.recv(NOW).err(), Some(RecvError::Timeout));
    lab.run();
    assert_eq!(outcome(&behind).expect("it was read").outcome, Outcome::Delivered);
}

#[test]
fn a_timeout_that_passes_while_the_link_has_the_message_ends_it_too() {
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    let timeout = SendOptions::new().timeout(Duration::from_millis(10));
    let tickets: Vec<_> = (0..QUOTA + 1).map(|number| send(&mine, number, timeout)).collect();
    lab.run();
    let outcomes: Vec<_> = tickets.iter().filter_map(outcome).map(|sent| sent.outcome).collect();
    let (last, others) = outcomes.split_last().expect("all have ended");
    assert!(others.iter().all(|outcome| *outcome == Outcome::Delivered));
    assert_eq!((others.len() as u32, *last), (QUOTA, Outcome::Abandoned));
}

#[test]
fn what_is_cancelled_is_given_up_wherever_it_is_and_the_rest_arrives() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let held = block(&mut lab, &mine);
    let queued: Vec<_> =
        (0..4).map(|at| send(&mine, 1000 + at, SendOptions::new().token(at.into()))).collect();
    lab.run();
    held[3].cancel();
    queued[1].cancel();
    queued[1].cancel();
    let unseen = send(&mine, 2000, SendOptions::new());
    unseen.cancel();
    lab.run();
    for ticket in [&held[3], &queued[1], &unseen] {
        assert_eq!(outcome(ticket).expect("an outcome").outcome, Outcome::Abandoned);
    }
    let given_up = [QUOTA + 3, 1001];
    let kept = (0..QUOTA + UNDER_WAY).chain(1000..1004).filter(|at| !given_up.contains(at));
    for (count, number) in kept.enumerate() {
        if count as u32 == QUOTA {
            lab.run();
        }
        assert_eq!(take(&theirs), number.to_le_bytes());
    }
    lab.run();
    let sent = outcome(&queued[2]).expect("an outcome");
    assert_eq!((sent.token, sent.outcome), (2, Outcome::Delivered));
    held[0].cancel();
    assert_eq!(outcome(&held[0]).expect("it was there before").outcome, Outcome::Delivered);
}

#[test]
fn what_was_cancelled_after_it_left_is_unknown_when_the_peer_is_gone() {
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    let ticket = send(&mine, 1, SendOptions::new());
    lab.near.worker.turn();
    ticket.cancel();
    lab.near.worker.turn();
    assert!(outcome(&ticket).is_none(), "only the peer can tell");
    drop(lab.near.worker);
    assert_eq!(outcome(&ticket).expect("an outcome").outcome, Outcome::Unknown);
}

#[test]
fn waiting_for_room_ends_with_the_time_and_the_message_comes_back() {
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    let mut tickets = block(&mut lab, &mine);
    let timeout = SendOptions::new().timeout(Duration::from_secs(3600));
    let full = loop {
        let options = if tickets.len().is_multiple_of(3) { timeout } else { SendOptions::new() };
        match mine.try_send(mine.copy(b"fills").expect("a buffer"), options) {
            Ok(ticket) => tickets.push(ticket),
            Err(rejected) => break rejected,
        }
        // With deadlines among them they are lined up, and count all the same.
        lab.near.worker.turn();
    };
    // The link has those under way, or half as many when it has not taken others yet.
    let most = (UNDER_WAY + 256) as usize;
    assert_eq!(full.error, SubmitError::QueueFull);
    assert!((most - UNDER_WAY as usize / 2..=most).contains(&tickets.len()), "{}", tickets.len());
    let brief = Duration::from_millis(2);
    let late = mine.send_timeout(full.payload, SendOptions::new(), brief).expect_err("no room");
    assert_eq!((late.error, late.payload.byte_len()), (SubmitError::QueueFull, 5));
    let ticket =
        mine.send(late.payload, SendOptions::new().token(9).timeout(brief)).expect("taken");
    let sent = outcome(&ticket).expect("its time is over");
    assert_eq!((sent.token, sent.outcome, sent.payload.byte_len()), (9, Outcome::Abandoned, 5));
    drop(lab.near.worker);
    assert!(tickets.iter().all(|ticket| !matches!(ticket.wait(NOW), Ok(None))), "all are answered");
}
