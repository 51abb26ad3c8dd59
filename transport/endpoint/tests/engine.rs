//! An endpoint on a device that a thread drives: granted memory is served while its application
//! does nothing, and messages, waits and files work as on any device.

mod common;

use common::{LOOPBACK, any_port};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use towpath_base::Nanos;
use towpath_device_roce::EngineOptions;
use towpath_handle::{EndpointHandle, Incoming};
use towpath_transport::{
    Endpoint, EndpointConfig, EngineUdp, Event, Grant, GrantId, LinkId, OpOptions, OpOutcome,
    Place, Rights, RoceUdp, SendOptions, SharedMemory, UdpConfig,
};
use towpath_verbs::{Device as _, QpState};

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(60);
const BYTES: usize = 64 << 10;

/// An application that polls zero times says nothing to its peer for as long as a test takes.
fn config() -> EndpointConfig {
    let config = EndpointConfig::new().connect_timeout(LONG).links_max(4);
    config.tune_links(|link| link.peer_timeout(LONG.into()))
}

fn udp() -> UdpConfig {
    UdpConfig::new(LOOPBACK.into())
}

/// A server that has granted memory to a client, which has done one operation on it.
struct Rig {
    server: Endpoint<EngineUdp>,
    memory: SharedMemory,
    client: Client,
}

struct Client {
    endpoint: Endpoint<RoceUdp>,
    link: LinkId,
    grant: GrantId,
}

impl Rig {
    fn new() -> Self {
        let engine = EngineOptions::new();
        let mut server = Endpoint::udp_with_engine(udp(), config(), engine).expect("an endpoint");
        let mut client = Endpoint::udp(udp(), config()).expect("an endpoint");
        let addr = server.listen(any_port()).expect("a free port");
        client.connect(addr).expect("an address");
        let memory = SharedMemory::new(BYTES).expect("memory for a test");
        let (mut told, mut is_done) = (None, false);
        while !is_done {
            server.turn(|server, event| {
                if let Event::Accepted { link, .. } = event {
                    server.grant(link, &memory, memory.whole(), Rights::ALL).expect("room");
                }
            });
            client.turn(|client, event| match event {
                Event::Granted { link, grant: Grant { id: grant, .. } } => {
                    told = Some((link, grant));
                    let place = Place { link, grant, offset: 0 };
                    client.fetch_add(place, 1, OpOptions::new()).expect("allowed");
                }
                Event::OpDone { outcome, .. } => {
                    assert_eq!(outcome, OpOutcome::Executed);
                    is_done = true;
                }
                _ => {}
            });
        }
        let (link, grant) = told.expect("one was made");
        Self { server, memory, client: Client { endpoint: client, link, grant } }
    }
}

impl Client {
    fn place(&self, offset: u32) -> Place {
        Place { link: self.link, grant: self.grant, offset }
    }

    /// What the operation that is under way came to: its word, or its bytes.
    fn done(&mut self) -> (Option<u64>, Option<Vec<u8>>) {
        let mut found = None;
        while found.is_none() {
            let busy = self.endpoint.turn(|_, event| {
                if let Event::OpDone { outcome, word, buf, .. } = event {
                    assert_eq!(outcome, OpOutcome::Executed);
                    found = Some((word, buf.map(|buf| buf.to_vec())));
                }
            });
            if !busy {
                self.endpoint.wait(Nanos::from_millis(1));
            }
        }
        found.expect("the loop has ended")
    }

    /// Writes, reads and adds, each `rounds` times, one after the other.
    fn work(&mut self, rounds: u32) {
        let options = OpOptions::new();
        for round in 0..rounds {
            let bytes: Vec<u8> = (0..5000).map(|at| (at * 7 + round) as u8).collect();
            let buf = self.endpoint.copy(&bytes).expect("a free buffer");
            self.endpoint.write(self.place(4096), buf, options).expect("allowed");
            self.done();
            let buf = self.endpoint.alloc(bytes.len()).expect("a free buffer");
            self.endpoint.read(self.place(4096), 5000, buf, options).expect("allowed");
            assert_eq!(self.done().1, Some(bytes));
            self.endpoint.fetch_add(self.place(8), 1, options).expect("allowed");
            assert_eq!(self.done().0, Some(round.into()));
        }
    }
}

#[test]
fn granted_memory_is_served_while_its_application_polls_zero_times() {
    let Rig { server, memory, mut client } = Rig::new();
    let (done, until_done) = mpsc::channel();
    let working = thread::spawn(move || {
        client.work(100);
        done.send(()).expect("the application waits for this");
        client
    });
    // The thread of the application is here, and nowhere else.
    until_done.recv().expect("the work was done");
    drop(working.join().expect("no panic"));
    assert_eq!(memory.word(8).expect("aligned").load(Ordering::Relaxed), 100);
    // What it has not seen it can ask for.
    let link = server.links().next().expect("it is up");
    let served = server.served(link).expect("the device counts");
    assert_eq!(served.read_bytes - served.read_again_bytes, 100 * 5000);
    assert_eq!((served.writes, served.write_bytes), (100, 100 * 5000));
    assert_eq!(served.atomics, 101, "the one that the rig did included");
    drop(server);
}

/// The thread serves on while the application ends a queue pair, and then the link.
#[test]
fn what_the_thread_serves_until_the_last_moment_is_counted() {
    const LIVES: u32 = 3;
    const UNDER_WAY: u64 = 64;
    let Rig { mut server, memory, mut client } = Rig::new();
    let link = server.links().next().expect("it is up");
    let (adds, mut lives) = (AtomicU32::new(0), 0);
    let served = thread::scope(|scope| {
        let (adds, place) = (&adds, client.place(0));
        scope.spawn(move || {
            let (mut live, mut is_down) = (1, false);
            client.endpoint.fetch_add(place, 1, OpOptions::new()).expect("allowed");
            while !is_down {
                while live < UNDER_WAY
                    && client.endpoint.fetch_add(place, 1, OpOptions::new()).is_ok()
                {
                    live += 1;
                }
                client.endpoint.turn(|_, event| match event {
                    Event::OpDone { .. } => {
                        live -= 1;
                        adds.fetch_add(1, Ordering::Relaxed);
                    }
                    Event::LinkDown { .. } => is_down = true,
                    _ => {}
                });
            }
        });
        let mut served = None;
        while served.is_none() {
            if adds.load(Ordering::Relaxed) > 200 {
                adds.store(0, Ordering::Relaxed);
                lives += 1;
                let qp_num = server.lane(link).and_then(|lane| lane.qp_num);
                match qp_num.filter(|_| lives < LIVES) {
                    Some(qp_num) => drop(server.device_mut().modify_qp(qp_num, QpState::Err)),
                    None => server.close(link),
                }
            }
            server.turn(|server, event| {
                if let Event::LinkDown { link, .. } = event {
                    served = Some(server.served(link));
                }
            });
        }
        served.flatten().expect("it is told when the link is down")
    });
    let word = memory.word(0).expect("aligned").load(Ordering::SeqCst);
    assert_eq!(served.atomics, word);
}

#[test]
fn who_waits_for_an_endpoint_or_its_file_is_not_woken_by_operations_of_peers() {
    for by_file in [false, true] {
        let Rig { mut server, memory, mut client } = Rig::new();
        let (done, waits) = (AtomicBool::new(false), AtomicU32::new(0));
        let waker = server.waker().expect("it can be woken");
        let before = waits.load(Ordering::SeqCst);
        thread::scope(|scope| {
            let (done, waits) = (&done, &waits);
            let owner = scope.spawn(move || {
                let file = server.poll_fd().expect("it has files");
                while !done.load(Ordering::SeqCst) {
                    if server.turn(|_, _| {}) {
                        continue;
                    }
                    waits.fetch_add(1, Ordering::SeqCst);
                    if by_file {
                        let timeout = server.prepare_wait(LONG).try_into().expect("in range");
                        poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&timeout))
                            .expect("a file to wait for");
                    } else {
                        server.wait(LONG.into());
                    }
                }
            });
            client.work(300);
            done.store(true, Ordering::SeqCst);
            waker.wake();
            owner.join().expect("no panic");
        });
        // What remains is what the link itself has to say, now and then.
        let waits = waits.load(Ordering::SeqCst) - before;
        assert!(waits < 300, "{waits} waits for 900 operations");
        assert_eq!(memory.word(8).expect("aligned").load(Ordering::Relaxed), 300);
    }
}

#[test]
fn messages_go_both_ways_between_handles_that_sleep() {
    let config = || config().spin(Nanos::ZERO);
    let engine = EngineOptions::new();
    let spawn = || EndpointHandle::spawn_udp_with_engine(udp(), config(), engine);
    let (server, client) = (spawn().expect("an endpoint"), spawn().expect("an endpoint"));
    let addr = server.listen(any_port()).expect("a free port");
    let near = client.connect(addr).expect("it listens");
    let far = server.accept(LONG).expect("a link");
    let mine = near.open_channel(true).expect("room for a channel");
    let theirs = far.accept_channel(LONG).expect("a channel");
    for round in 0..100_u32 {
        for (from, to) in [(&mine, &theirs), (&theirs, &mine)] {
            let buf = from.copy(&round.to_ne_bytes()).expect("a free buffer");
            drop(from.send(buf, SendOptions::new()));
            match to.recv(LONG) {
                Ok(Incoming::Message(message)) => {
                    assert_eq!(message.to_vec(), round.to_ne_bytes());
                }
                other => panic!("{other:?}"),
            }
        }
    }
    client.shutdown();
    server.shutdown();
}
