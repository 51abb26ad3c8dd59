//! A peer whose packets are right and whose chunks are not: with bytes changed, cut off, and frames
//! repeated and put in another order, under an ICRC that fits, where
//! there is one.

use std::net::SocketAddr;
use towpath_base::{Prng, Time};
use towpath_device_roce::wire::{NO_ICRC, Opcode, PacketRepr, Position, Service};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::limits::{FRAME_UNIT_BYTES, HEADER_BYTES};
use towpath_proto::{Outcome, Side};
use towpath_sim::{LinkConfig, VirtualLink, World};
use towpath_transport::{Endpoint, EndpointConfig, Event, SendOptions};
use towpath_verbs::{LinkCaps, LinkCounters, Mtu, PacketLink, RxPacket, TxPacket};

/// Virtual time after which a run that is not done has failed.
const END: Time = Time(60_000_000_000);

/// A link that changes what is in some of the packets that it sends.
struct Liar {
    inner: VirtualLink,
    prng: Prng,
    /// Of packets that are longer than one header.
    probability: f64,
    mtu: usize,
    lies: u64,
}

impl Liar {
    /// The packet with another payload, if that is how it is to be.
    fn lie(&mut self, packet: &TxPacket<'_>) -> Option<Vec<u8>> {
        let sent = packet.parts().concat();
        let mut repr = PacketRepr::parse(&sent).ok()?;
        let is_chunk =
            repr.bth.opcode == Opcode::request(Service::Uc, false, Position::Only, false);
        if !is_chunk || repr.payload.len() <= HEADER_BYTES || !self.prng.chance(self.probability) {
            return None;
        }
        let before = repr.payload.clone();
        self.spoil(&mut repr.payload);
        if repr.payload == before {
            return None;
        }
        self.lies += 1;
        let source = self.inner.source_addr(packet.source_port);
        let mut lie = repr.emit(source, packet.dest);
        let no_icrc = NO_ICRC.to_le_bytes();
        if sent.ends_with(&no_icrc) {
            lie.truncate(lie.len() - no_icrc.len());
            lie.extend(no_icrc);
        }
        Some(lie)
    }

    /// Bytes change, the end is cut off, entries of the table of frames come twice or in another
    /// order.
    fn spoil(&mut self, payload: &mut Vec<u8>) {
        let prng = &mut self.prng;
        let len = payload.len();
        let units = (len - HEADER_BYTES) / FRAME_UNIT_BYTES;
        // Where a unit begins, counted from the end.
        let unit = |prng: &mut Prng, most: usize| {
            let back = prng.between(1, most.clamp(1, units) as u64) as usize;
            len - back * FRAME_UNIT_BYTES
        };
        let how = prng.below(4);
        match how {
            _ if units < 4 => payload.truncate(prng.between(1, len as u64 - 1) as usize),
            0 => {
                for _ in 0..prng.between(1, 8) {
                    payload[prng.below(len as u64) as usize] ^= prng.between(1, 255) as u8;
                }
            }
            1 => payload.truncate(prng.between(1, len as u64 - 1) as usize),
            2 => {
                let from = unit(prng, 4);
                payload.extend_from_within(from..);
                payload.truncate(self.mtu);
            }
            _ => {
                let (one, other) = (unit(prng, 4), unit(prng, 8));
                for at in 0..FRAME_UNIT_BYTES {
                    payload.swap(one + at, other + at);
                }
            }
        }
    }
}

impl PacketLink for Liar {
    fn caps(&self) -> LinkCaps {
        self.inner.caps()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.inner.source_addr(source_port)
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn counters(&self) -> LinkCounters {
        self.inner.counters()
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        for (packet, taken) in packets.iter().zip(0..) {
            let lie = self.lie(packet);
            let mut sent = *packet;
            if let Some(bytes) = &lie {
                sent = TxPacket::new(packet.dest, packet.source_port, packet.tclass);
                sent.push(bytes);
            }
            if self.inner.transmit(&[sent]) == 0 {
                return taken;
            }
        }
        packets.len()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        self.inner.receive(budget, sink)
    }
}

type Device = RoceDevice<Liar>;

/// One end of a wire, which lies that often.
fn end(
    inner: VirtualLink,
    seed: u64,
    (probability, mtu): (f64, Mtu),
    config: EndpointConfig,
) -> Endpoint<Device> {
    let mtu = mtu.bytes() as usize;
    let link = Liar { inner, prng: Prng::new(seed), probability, mtu, lies: 0 };
    let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
    Endpoint::new(device, config.seed(seed ^ 0x100)).expect("a small endpoint")
}

/// Sends short messages over a link that lies; returns how often it did, and how many chunks `far`
/// refused.
fn exchange(seed: u64, mtu: Mtu, config: &EndpointConfig, messages: u64) -> [u64; 2] {
    let config = config.clone().mtu_max(mtu);
    let world = World::new(seed);
    let (a, b) = world.link(&LinkConfig::default());
    let mut near = end(a, world.next_seed(), (0.2, mtu), config.clone());
    let mut far = end(b, world.next_seed(), (0.0, mtu), config);
    let (near_hello, near_half) = near.offer().expect("room");
    let (far_hello, far_half) = far.offer().expect("room");
    let link = near.establish(near_half, &far_hello, Side::Client).expect("they fit");
    let far_link = far.establish(far_half, &near_hello, Side::Server).expect("they fit");

    let bytes_of = |token: u64| {
        let mut prng = Prng::new(seed ^ token << 32);
        let mut bytes = vec![0; prng.between(8, 600) as usize];
        prng.fill(&mut bytes);
        bytes[..8].copy_from_slice(&token.to_le_bytes());
        bytes
    };
    let channel = near.open_channel(link, false).expect("room");
    let send = |at: &mut Endpoint<Device>, token| {
        let buf = at.copy(&bytes_of(token)).expect("a free buffer");
        at.send(link, channel, buf, SendOptions::new().token(token)).expect("an open channel");
    };
    let (mut next, mut delivered) = (0, 0);
    let mut seen = vec![0u32; messages as usize];
    let mut kept = Vec::new();
    while delivered < messages || seen.contains(&0) {
        let mut busy = near.turn(|at, event| match event {
            Event::ChannelOpened { .. } => {
                (0..32).for_each(|token| send(at, token));
                next = 32;
            }
            Event::Sent { token, outcome, .. } => {
                assert_eq!(outcome, Outcome::Delivered, "seed {seed} message {token}");
                delivered += 1;
                if next < messages {
                    send(at, next);
                    next += 1;
                }
            }
            Event::LinkDown { reason, .. } => panic!("seed {seed}: {reason:?}"),
            _ => {}
        });
        busy |= far.turn(|at, event| match event {
            Event::Message(message) => {
                let bytes = message.to_vec();
                let token = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                assert!(bytes == bytes_of(token), "seed {seed} message {token} changed");
                seen[token as usize] += 1;
                kept.push(message);
                // Given back, or dropped.
                match kept.len() {
                    5 if token % 2 == 0 => kept.clear(),
                    5.. => kept.drain(..).for_each(|message| at.release(message)),
                    _ => {}
                }
            }
            Event::LinkDown { reason, .. } => panic!("seed {seed}: {reason:?}"),
            _ => {}
        });
        if !busy {
            let timers = near.next_timeout().min(far.next_timeout());
            let next = world.next_event_time().into_iter().fold(timers, Time::min);
            assert!(next < END, "seed {seed}: {:#?}", (near.stats(link), far.stats(far_link)));
            world.advance_to(next.max(world.now()));
        }
    }
    assert!(seen.iter().all(|&times| times == 1), "seed {seed}: exactly once");
    kept.drain(..).for_each(|message| far.release(message));
    far.turn(|_, _| {});
    check_buffers(&near, &far, seed);
    let stats = far.stats(far_link).expect("it is up");
    [near.device().link().lies, stats.headers_bad + stats.payloads_bad]
}

/// All are at home.
fn check_buffers(near: &Endpoint<Device>, far: &Endpoint<Device>, seed: u64) {
    let census = far.buffers();
    assert_eq!(census.recv_posted + census.recv_free, census.recv_all, "seed {seed}");
    let census = near.buffers();
    assert_eq!(census.send_free, census.send_all, "seed {seed}");
}

#[test]
fn chunks_that_lie_change_no_message_and_cost_no_buffer() {
    let config = EndpointConfig::new()
        .payload_crc(true)
        .quota_chunks(32)
        .credit_total(64)
        .links_max(1)
        .send_pools(&[(4 << 10, 40)]);
    let mtus = [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu4096];
    let mut sums = [0; 2];
    for seed in 0..240 {
        let config = config.clone().shared_receiving(seed % 8 < 4);
        let counts = exchange(seed, mtus[seed as usize % 4], &config, 300);
        sums = [0, 1].map(|at| sums[at] + counts[at]);
    }
    let [lies, refused] = sums;
    assert!(lies > 1_000 && refused > 500, "{lies} lies, {refused} chunks refused");
}
