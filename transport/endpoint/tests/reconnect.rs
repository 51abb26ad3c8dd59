//! A channel that is made anew when it breaks, and what became of each message.

mod common;

use common::{LOOPBACK, any_port, nobody};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;
use towpath_transport::{
    EndpointConfig, EndpointHandle, Fate, Incoming, Reconnect, ReconnectError, SendOptions,
    SubmitError, UdpConfig,
};

const LONG: Duration = Duration::from_secs(60);
const MESSAGES: u64 = 300;

fn spawn() -> EndpointHandle {
    let config = EndpointConfig::new().links_max(8).connect_timeout(LONG);
    EndpointHandle::spawn_udp(UdpConfig::new(LOOPBACK.into()), config).expect("loopback UDP")
}

/// Takes messages over three links, of which it leaves the first two early. Says how often each
/// message came.
fn serve(server: &EndpointHandle) -> BTreeMap<u64, u32> {
    let mut seen = BTreeMap::new();
    for most in [20, 100, usize::MAX] {
        let link = server.accept(LONG).expect("a client");
        let channel = link.accept_channel(LONG).expect("a channel");
        let mut count = 0;
        while count < most
            && let Ok(Incoming::Message(message)) = channel.recv(LONG)
        {
            let number = u64::from_le_bytes(message.to_vec()[..].try_into().expect("8 bytes"));
            *seen.entry(number).or_default() += 1;
            count += 1;
        }
        link.close();
        // What has come is read all the same, for Delivered says no more than that.
        while let Ok(Incoming::Message(message)) = channel.recv(LONG) {
            let number = u64::from_le_bytes(message.to_vec()[..].try_into().expect("8 bytes"));
            *seen.entry(number).or_default() += 1;
        }
    }
    seen
}

#[test]
fn each_message_has_a_fate_and_those_that_were_not_sent_can_be_sent_again() {
    let server = spawn();
    let addr = server.listen(any_port()).expect("a free port");
    let serving = thread::spawn(move || serve(&server));
    let mut peer = Reconnect::new(spawn(), addr, true, 16);
    let (mut delivered, mut unknown, mut next) = (0, Vec::new(), 0);
    while delivered < MESSAGES {
        while next < MESSAGES && peer.under_way() < 16 {
            let channel = peer.channel(LONG).expect("the server listens");
            let buf = channel.copy_timeout(&next.to_le_bytes(), LONG).expect("a free buffer");
            peer.send(buf, SendOptions::new().token(next), LONG).expect("room");
            next += 1;
        }
        let message = peer.settled(LONG).expect("a fate");
        match message.fate {
            Fate::Delivered => delivered += 1,
            fate => {
                unknown.extend((fate == Fate::Unknown).then_some(message.token));
                let options = SendOptions::new().token(message.token);
                peer.send(message.payload, options, LONG).expect("room");
            }
        }
    }
    assert_eq!((peer.channels_made(), peer.under_way()), (3, 0));
    drop(peer);
    let seen = serving.join().expect("no panic");
    assert_eq!(seen.len() as u64, MESSAGES, "none is missing");
    let twice = seen.iter().filter(|(_, times)| **times > 1);
    for (number, times) in twice {
        assert!(unknown.contains(number), "{number} came {times} times, and was known not to");
    }
}

#[test]
fn a_peer_that_is_not_there_and_fates_that_nobody_takes_are_told() {
    let mut peer = Reconnect::new(spawn(), nobody(), false, 1);
    let none = peer.channel(Duration::from_millis(30)).expect_err("nobody listens");
    assert!(matches!(none, ReconnectError::Connect(_)), "{none}");
    let server = spawn();
    let addr = server.listen(any_port()).expect("a free port");
    let mut peer = Reconnect::new(spawn(), addr, false, 1);
    let channel = peer.channel(LONG).expect("it listens");
    let send = |peer: &mut Reconnect| {
        peer.send(channel.copy(b"abc").expect("a free buffer"), SendOptions::new(), LONG)
    };
    send(&mut peer).expect("room");
    let full = send(&mut peer).expect_err("one fate waits");
    assert_eq!(full.error, SubmitError::CompletionsFull { depth: 1 });
    assert_eq!(peer.settled(LONG).expect("a fate").fate, Fate::Delivered);
    assert!(peer.settled(Duration::ZERO).is_none(), "there is none left");
    send(&mut peer).expect("room again");
}
