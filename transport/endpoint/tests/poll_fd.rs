//! An endpoint in a loop that waits by poll(2).

mod common;

use common::{LONG, Pair, UdpEndpoint, any_port, endpoint};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;
use towpath_transport::{EndpointConfig, Event, SendOptions};

const ROUNDS: u32 = 300;

/// Far longer than a test may take: what ends a wait is a file, or a timer of the endpoint.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn small() -> EndpointConfig {
    EndpointConfig::new().links_max(1).connect_timeout(LONG)
}

/// Waits for a descriptor; whether it became readable.
fn wait(file: &OwnedFd, timeout: Duration) -> bool {
    let timeout: Timespec = timeout.try_into().expect("not too long");
    let mut files = [PollFd::new(file, PollFlags::IN)];
    poll(&mut files, Some(&timeout)).expect("a poll") > 0
}

/// Turns until `done`; waits in between.
fn run(at: &mut UdpEndpoint, mut on_event: impl FnMut(&mut UdpEndpoint, Event) -> bool) {
    let file = at.poll_fd().expect("a descriptor");
    let mut is_done = false;
    while !is_done {
        if !at.turn(|at, event| is_done |= on_event(at, event)) {
            let span = at.prepare_wait(FOR_EVER);
            wait(&file, span);
        }
    }
}

/// Echoes until its link is down.
fn serve(mut server: UdpEndpoint) {
    run(&mut server, |server, event| match event {
        Event::Message(message) => {
            let (link, channel) = (message.link(), message.channel());
            let reply = message.into_payload().expect("one piece");
            server.send(link, channel, reply, SendOptions::new()).expect("an open channel");
            false
        }
        Event::LinkDown { .. } => true,
        _ => false,
    });
}

fn ask(addr: SocketAddr) {
    let mut client = endpoint(small());
    client.connect(addr).expect("room for a connection");
    let mut answers = 0;
    run(&mut client, |client, event| {
        let (link, channel) = match event {
            Event::Connected { link, .. } => {
                client.open_channel(link, true).expect("room");
                return false;
            }
            Event::ChannelOpened { link, channel, .. } => (link, channel),
            Event::Message(message) => {
                assert_eq!(message.to_vec(), u32::to_le_bytes(answers));
                answers += 1;
                (message.link(), message.channel())
            }
            Event::LinkDown { .. } => return true,
            _ => return false,
        };
        if answers == ROUNDS {
            client.close(link);
        } else {
            let request = client.copy(&answers.to_le_bytes()).expect("a free buffer");
            client.send(link, channel, request, SendOptions::new()).expect("an open channel");
        }
        false
    });
    assert_eq!(answers, ROUNDS);
}

#[test]
fn connections_messages_and_goodbyes_end_the_waits_of_another_loop() {
    let mut server = endpoint(small());
    let addr = server.listen(any_port()).expect("a free port");
    let serving = thread::spawn(move || serve(server));
    ask(addr);
    serving.join().expect("no panic");
}

#[test]
fn a_descriptor_is_readable_only_while_there_is_something_to_do() {
    let mut pair = Pair::new(small());
    let channel = pair.open(true);
    pair.send(channel, b"abc", 1);
    drop(pair.until(|client, _| client.take_sent(1)));
    let message = pair.until(|_, server| server.take_message());
    let mut node = pair.server;
    let files = [(); 2].map(|()| node.endpoint.poll_fd().expect("a descriptor"));
    let quiet = |node: &mut common::Node| {
        while node.turn() || node.endpoint.prepare_wait(FOR_EVER) < Duration::from_micros(100) {}
    };
    quiet(&mut node);
    assert!(files.iter().all(|file| !wait(file, Duration::ZERO)), "nothing has come");
    // A wait is ended by what another thread gives back, and by packets.
    thread::spawn(move || drop(message)).join().expect("a drop");
    assert!(files.iter().all(|file| wait(file, FOR_EVER)));
    quiet(&mut node);
    assert!(!wait(&files[0], Duration::ZERO), "that was taken in");
    pair.client.endpoint.close(pair.client_link);
    pair.client.turn();
    assert!(wait(&files[0], FOR_EVER));
    drop(node);
}
