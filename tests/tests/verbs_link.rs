//! Reliable links over two joined RDMA devices, in the virtual machine: what the cable does is
//! told by the name of a test, and done by whoever runs it.

mod exchange;

use exchange::exchange;
use std::process::Command;
use std::time::{Duration, Instant};
use towpath_device_verbs::{Target, VerbsDevice};
use towpath_proto::{Outcome, PathState, Side};
use towpath_transport::{
    Endpoint, EndpointConfig, Event, Fallback, LinkId, Nanos, PathReport, SendOptions,
};

/// Longer than anything here takes, in an emulated machine on a busy host.
const PATIENCE: Duration = Duration::from_secs(300);

/// The path whose packets are swallowed, by the source port that it begins on.
const SWALLOWED: usize = 2;

/// The names of the devices that `TOWPATH_VERBS_PAIR` names, as `rxe0,rxe1`.
fn names() -> [String; 2] {
    let pair = std::env::var("TOWPATH_VERBS_PAIR").expect("TOWPATH_VERBS_PAIR names two devices");
    let (near, far) = pair.split_once(',').expect("two names with a comma between them");
    [near.to_owned(), far.to_owned()]
}

fn open(name: &str) -> VerbsDevice {
    VerbsDevice::open(&Target::new().device(name)).expect("it opens")
}

/// How many queue pairs the kernel has on a device, of all processes.
fn queue_pairs(device: &str) -> u64 {
    let show = Command::new("rdma").args(["resource", "show", device]).output();
    let text = String::from_utf8_lossy(&show.expect("rdma is there").stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|&word| word != "qp").skip(1);
    words.next().and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no qp: {text}"))
}

/// Runs an exchange on both devices; returns how many chunks were sent again.
fn over_verbs(seed: u64) -> u64 {
    let [near, far] = names();
    let hosts = exchange(seed, [open(&near), open(&far)]);
    for host in &hosts {
        println!("{}: {:?}", host.device().name(), host.stats());
    }
    hosts.iter().map(|host| host.stats().chunks_retransmitted).sum()
}

#[test]
#[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
fn messages_over_a_clean_cable_come_once_and_intact() {
    over_verbs(1);
}

#[test]
#[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
fn messages_over_a_bad_cable_come_once_and_intact() {
    assert!(over_verbs(2) > 0, "the cable is good");
}

/// Both ends of a link on this thread.
struct Rig {
    ends: [Endpoint<VerbsDevice>; 2],
    links: [LinkId; 2],
    channel: Option<towpath_proto::ChannelId>,
    under_way: usize,
}

impl Rig {
    fn new([near, far]: [&str; 2]) -> Self {
        let end = |name| {
            let config = EndpointConfig::new().paths(4).links_max(1).fallback(Fallback::None);
            Endpoint::new(open(name), config).expect("an endpoint")
        };
        let (mut near, mut far) = (end(near), end(far));
        let (near_hello, near_half) = near.offer().expect("room");
        let (far_hello, far_half) = far.offer().expect("room");
        let near_link = near.establish(near_half, &far_hello, Side::Client).expect("they fit");
        let far_link = far.establish(far_half, &near_hello, Side::Server).expect("they fit");
        near.open_channel(near_link, true).expect("room");
        Self { ends: [near, far], links: [near_link, far_link], channel: None, under_way: 0 }
    }

    /// Sends messages to the far end until `done`.
    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "it does not happen: {what}: {:?}", self.path(0));
            let Self { ends: [near, far], links, channel, under_way } = self;
            let mut busy = near.turn(|_, event| match event {
                Event::ChannelOpened { channel: opened, .. } => *channel = Some(opened),
                Event::Sent { outcome, .. } => {
                    assert_eq!(outcome, Outcome::Delivered);
                    *under_way -= 1;
                }
                Event::LinkDown { reason, .. } => panic!("the link goes on: {reason:?}"),
                _ => {}
            });
            busy |= far.turn(|endpoint, event| match event {
                Event::Message(message) => endpoint.release(message),
                Event::LinkDown { reason, .. } => panic!("the link goes on: {reason:?}"),
                _ => {}
            });
            if let Some(channel) = *channel
                && *under_way < 8
            {
                let buf = near.copy(&[7; 3_000]).expect("a free buffer");
                near.send(links[0], channel, buf, SendOptions::new()).expect("an open channel");
                *under_way += 1;
            }
            if !busy {
                far.wait(Nanos::from_micros(50));
            }
        }
    }

    fn path(&self, at: usize) -> PathReport {
        self.ends[at].paths(self.links[at]).nth(SWALLOWED).expect("it is there")
    }
}

#[test]
#[ignore = "needs two joined RDMA devices, and a cable that swallows a port: cargo xtask vm-test"]
fn a_path_of_a_swallowed_port_gets_another_queue_pair_from_another_port() {
    let names = names();
    let mut rig = Rig::new([&names[0], &names[1]]);
    let before = names.each_ref().map(|name| queue_pairs(name));
    let first = [0, 1].map(|at| rig.ends[at].paths(rig.links[at]).count());
    assert_eq!(first, [4, 4]);
    let qps = [0, 1].map(|at| rig.path(at).qp_num);
    assert_eq!(usize::from(rig.path(0).source_port), SWALLOWED);
    rig.run_until("another queue pair that answers", |rig| {
        let facts = rig.path(0).facts;
        let works = matches!(facts.state, PathState::Good | PathState::Spare);
        works && facts.renewals > 0
    });
    let (near, far) = (rig.path(0), rig.path(1));
    println!("{near:?}\n{far:?}");
    assert_ne!(usize::from(near.source_port), SWALLOWED, "another flow label");
    assert_eq!(usize::from(far.source_port), SWALLOWED, "the peer's way was sound");
    assert!(near.qp_num != qps[0] && far.qp_num != qps[1], "another one at both ends");
    assert_eq!(names.each_ref().map(|name| queue_pairs(name)), before, "the old ones are gone");
}
