//! Somebody between two hosts of a sealed link, who sees all packets and sends what he likes beside
//! them: each kind is counted, and none moves anything.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::{LinkConfig, VirtualLink, World};
use towpath_transport::keys::{
    HostKey, KnownSecret, PairSecret, PeerIdentity, PeerName, Peers, Refusal, Roles, RollOver,
    Sealing, system_random,
};
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkId, Outcome, Secure, SendOptions, Side, Trusted,
};
use towpath_verbs::{LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};

/// A SEND of UC that is one packet, behind whose BTH a chunk or an ack begins.
const SEND_ONLY: u8 = 0x24;
const BTH_BYTES: usize = 12;
const HEADER_BYTES: usize = 64;
/// How many bytes of padding a packet has, in byte 1 of its BTH.
const PAD_BITS: u8 = 0x30;
/// What stands in place of the ICRC.
const ICRC_BYTES: usize = 4;
/// Where the mark of a header lies, in a packet.
const MARK: usize = BTH_BYTES + 56;

/// Messages that go each way.
const MESSAGES: u64 = 3_000;
/// Sent beside each packet that comes.
const FORGERIES: usize = 8;

const SECRET_WORDS: &[u8] = b"attack at dawn, by the old towpath";

/// What was sent beside what came, and whether anything was seen that nobody should.
#[derive(Default)]
struct Deeds {
    sent: BTreeMap<&'static str, u64>,
    has_read: bool,
}

/// The receiving end of a wire on which somebody sits.
struct Mallory {
    link: VirtualLink,
    prng: Prng,
    deeds: Rc<RefCell<Deeds>>,
}

/// What is made of a sound packet, and how it must be refused.
fn forge(packet: &mut Vec<u8>, prng: &mut Prng) -> Refusal {
    let kinds = [
        Refusal::Truncated,
        Refusal::WrongLink,
        Refusal::Reflected,
        Refusal::WrongMode,
        Refusal::StaleKey,
        Refusal::BadTag,
        Refusal::Replay,
    ];
    let kind = kinds[prng.below(kinds.len() as u64) as usize];
    match kind {
        Refusal::Truncated => {
            let icrc = packet.split_off(packet.len() - ICRC_BYTES);
            packet.truncate(BTH_BYTES + HEADER_BYTES + prng.below(4) as usize * 4);
            packet[1] &= !PAD_BITS;
            packet.extend(icrc);
        }
        Refusal::WrongLink => packet[MARK + 4] ^= 1 << prng.below(8),
        Refusal::Reflected => packet[MARK] ^= 1 << 7,
        Refusal::WrongMode => packet[MARK + 1] ^= 3,
        Refusal::StaleKey => packet[MARK + 3] ^= 0x40,
        Refusal::BadTag => {
            // Of the fields that are looked at before the tag none is touched, but for the number:
            // a higher one is no replay.
            let from = BTH_BYTES + HEADER_BYTES;
            let at = prng.between(from as u64, (packet.len() - ICRC_BYTES - 1) as u64);
            packet[at as usize] ^= 1 << prng.below(8);
            // In the middle of the number of a chunk, or of an ack.
            let number = if packet[MARK] & 0x40 == 0 { 12 } else { 20 };
            packet[BTH_BYTES + number] = 1;
        }
        _ => {}
    }
    kind
}

impl PacketLink for Mallory {
    fn caps(&self) -> LinkCaps {
        self.link.caps()
    }

    fn local_addr(&self) -> SocketAddr {
        self.link.local_addr()
    }

    fn now(&self) -> Time {
        self.link.now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.link.source_addr(source_port)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        self.link.transmit(packets)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        let Self { link, prng, deeds } = self;
        link.receive(budget, &mut |packet| {
            sink(packet);
            let mut deeds = deeds.borrow_mut();
            deeds.has_read |= packet.bytes.windows(SECRET_WORDS.len()).any(|w| w == SECRET_WORDS);
            if packet.bytes[0] != SEND_ONLY {
                return;
            }
            for _ in 0..FORGERIES {
                let mut forged = packet.bytes.to_vec();
                let kind = forge(&mut forged, prng);
                *deeds.sent.entry(kind.name()).or_default() += 1;
                sink(RxPacket { bytes: &forged, ..packet });
            }
        })
    }

    fn counters(&self) -> LinkCounters {
        self.link.counters()
    }
}

type End = Endpoint<RoceDevice<Mallory>>;

fn keys(sealing: Sealing) -> Secure {
    let key = HostKey::generate(system_random()).expect("random bytes");
    let peers = Peers::parse(&format!("{} peer", key.public())).expect("a sound line");
    let keys = Secure::new(&key, Trusted::Peers(Arc::new(peers)), sealing).expect("a key");
    keys.set_roll_over(RollOver { seals: 1_000, ..RollOver::default() });
    keys.vouch(KnownSecret {
        secret: PairSecret::new([7; 32]),
        peer: PeerIdentity {
            key: key.public(),
            name: PeerName::parse("peer").expect("a name"),
            expires: None,
            roles: Roles::BOTH,
        },
        sealing,
        since: Time::ZERO,
    });
    keys
}

struct Lab {
    world: World,
    ends: [End; 2],
    links: [LinkId; 2],
    deeds: [Rc<RefCell<Deeds>>; 2],
    received: [u64; 2],
    delivered: [u64; 2],
    channel: Option<ChannelId>,
}

impl Lab {
    fn new(seed: u64, sealing: Sealing) -> Self {
        let world = World::new(seed);
        let (near, far) = world.link(&LinkConfig::default());
        let deeds = [Rc::<RefCell<Deeds>>::default(), Rc::default()];
        let keys = keys(sealing);
        let make = |(link, number): (VirtualLink, usize)| {
            let seed = seed ^ number as u64;
            let wire = Mallory { link, prng: Prng::new(seed), deeds: Rc::clone(&deeds[number]) };
            let device = RoceDevice::new(wire, RoceConfig::default().seed(seed));
            // So that all that comes in a poll, forgeries included, finds a receive.
            let config = EndpointConfig::new().progress_budget(4);
            let config = config.links_max(1).paths(1).seed(seed);
            Endpoint::new(device, config.secure(keys.clone())).expect("an endpoint")
        };
        let mut ends = [(near, 0), (far, 1)].map(make);
        let [near, far] = &mut ends;
        let (near_hello, near_half) = near.offer().expect("room");
        let (far_hello, far_half) = far.offer().expect("room");
        let links = [
            near.establish(near_half, &far_hello, Side::Client).expect("they fit"),
            far.establish(far_half, &near_hello, Side::Server).expect("they fit"),
        ];
        let (received, delivered) = ([0; 2], [0; 2]);
        Self { world, ends, links, deeds, received, delivered, channel: None }
    }

    /// A turn of each end: what comes is counted and compared.
    fn step(&mut self) {
        let mut busy = false;
        for place in 0..2 {
            let Self { ends, received, delivered, channel, .. } = self;
            busy |= ends[place].turn(|end, event| match event {
                Event::Message(message) => {
                    let bytes = message.to_vec();
                    assert!(bytes.ends_with(SECRET_WORDS), "it came as it was sent");
                    let number = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
                    assert_eq!(number, Some(received[place]), "each comes once and in order");
                    received[place] += 1;
                    end.release(message);
                }
                Event::Sent { outcome, .. } => {
                    assert_eq!(outcome, Outcome::Delivered);
                    delivered[place] += 1;
                }
                Event::ChannelOpened { channel: opened, .. } => *channel = Some(opened),
                Event::LinkDown { reason, .. } => panic!("nobody ends a link: {reason}"),
                _ => {}
            });
        }
        if !busy {
            let timers = self.ends.iter().map(End::next_timeout);
            let next = timers.chain(self.world.next_event_time()).min().expect("two ends");
            self.world.advance_to(next.max(self.world.now() + Nanos(1)));
        }
    }

    fn send(&mut self, place: usize, number: u64) -> bool {
        let Some(channel) = self.channel else { return false };
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend_from_slice(SECRET_WORDS);
        let Ok(buf) = self.ends[place].copy(&bytes) else { return false };
        self.ends[place].send(self.links[place], channel, buf, SendOptions::new()).is_ok()
    }
}

#[test]
fn what_somebody_between_the_hosts_sends_is_counted_by_kind_and_moves_nothing() {
    for (seed, sealing) in [(1, Sealing::Encrypt), (2, Sealing::Authenticate)] {
        println!("seed {seed}");
        let mut lab = Lab::new(seed, sealing);
        lab.ends[0].open_channel(lab.links[0], true).expect("room for a channel");
        let mut sent = [0; 2];
        while lab.delivered != [MESSAGES; 2] || lab.received != [MESSAGES; 2] {
            for (place, sent) in sent.iter_mut().enumerate() {
                // Few at a time, so that chunks are many.
                if *sent < MESSAGES && *sent < lab.delivered[place] + 4 && lab.send(place, *sent) {
                    *sent += 1;
                }
            }
            lab.step();
        }
        let mut total = 0;
        for place in 0..2 {
            let (end, deeds) = (&lab.ends[place], lab.deeds[place].borrow());
            let refusals = end.refusals();
            let counts = refusals.iter().filter(|(_, count)| *count > 0);
            let refused: BTreeMap<_, _> =
                counts.map(|(kind, count)| (kind.name(), count)).collect();
            assert_eq!(refused, deeds.sent, "seed {seed}: nothing else, and all of it");
            assert_eq!(deeds.has_read, sealing == Sealing::Authenticate);
            let security = end.security(lab.links[place]).expect("it is sealed");
            assert!(security.state.epoch > 0, "keys roll over meanwhile");
            let stats = end.stats(lab.links[place]).expect("it is up");
            assert_eq!((stats.headers_bad, stats.payloads_bad, stats.violations), (0, 0, 0));
            total += refused.values().sum::<u64>();
        }
        println!("{total} forgeries");
        assert!(total > 20_000, "{total}");
    }
}
