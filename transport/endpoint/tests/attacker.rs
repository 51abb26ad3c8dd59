//! A peer that goes beyond what it was granted: it posts what it likes to its own lane, and to
//! queue pairs of other domains of the server's device, and knows every key that was ever told.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::{Region, SharedMemory};
use towpath_proto::{Grant, GrantId, OpError, OpOutcome, Rights, Side};
use towpath_sim::{Star, VirtualLink, World};
use towpath_transport::{Endpoint, EndpointConfig, Event, LaneError, LinkId, OpOptions, Place};
use towpath_verbs::{
    Access, Connect, CqNum, Device, LinkCaps, LinkCounters, Mtu, PacketLink, PdNum, QpInit, QpNum,
    QpState, QpType, RcAttr, RemoteAddr, RxPacket, SendOp, SendWr, SgList, Sge, TxPacket, Wc,
    WcStatus,
};

/// What the server has: what nobody was granted, and grants in between.
const MEMORY_BYTES: usize = 64 << 10;

/// The grants: of the victim, and of the attacker, all rights and reading alone.
const VICTIMS: std::ops::Range<usize> = 4096..8192;
const ATTACKERS: std::ops::Range<usize> = 8192..12_288;
const READABLE: std::ops::Range<usize> = 16_384..20_480;

/// Virtual time after which a run that is not done has failed.
const END: Time = Time(600_000_000_000);

/// The bits of a key that say which registration it is of; the others are random.
const INDEX_BITS: u32 = 16;

/// A wire that tells the key and the address of the last READ that was sent on it.
struct Tap {
    link: VirtualLink,
    read: Rc<Cell<RemoteAddr>>,
}

/// RC READ REQUEST, and where its RETH lies: behind a BTH of 12 bytes.
const READ_REQUEST: u8 = 0x0c;
const RETH: usize = 12;

impl PacketLink for Tap {
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
        for packet in packets {
            let bytes: Vec<u8> =
                packet.parts().iter().flat_map(|part| *part).take(RETH + 12).copied().collect();
            if let (Some(&READ_REQUEST), Some((_, reth))) =
                (bytes.first(), bytes.split_at_checked(RETH))
                && let Some((addr, rkey)) = reth.split_first_chunk()
                && let Some(rkey) = rkey.first_chunk()
            {
                let addr = u64::from_be_bytes(*addr);
                self.read.set(RemoteAddr { addr, rkey: u32::from_be_bytes(*rkey) });
            }
        }
        self.link.transmit(packets)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        self.link.receive(budget, sink)
    }

    fn counters(&self) -> LinkCounters {
        self.link.counters()
    }
}

type Nic = RoceDevice<Tap>;

struct End {
    endpoint: Endpoint<Nic>,
    read: Rc<Cell<RemoteAddr>>,
    link: Option<LinkId>,
    granted: Vec<Grant>,
    done: Vec<OpOutcome>,
}

struct Lab {
    world: World,
    /// The server, the victim, the attacker.
    ends: [End; 3],
    /// The server's links to the two.
    links: [LinkId; 2],
    memory: SharedMemory,
    as_it_was: Vec<u8>,
}

fn lab(seed: u64) -> Lab {
    let world = World::new(seed);
    let hosts = Star { hosts: 3, ..Star::default() }.build(&world).hosts;
    let mut ends = [0, 1, 2].map(|place| {
        let read = Rc::<Cell<RemoteAddr>>::default();
        let tap = Tap { link: world.end(hosts[place]), read: Rc::clone(&read) };
        let device = RoceDevice::new(tap, RoceConfig::default().seed(seed ^ place as u64));
        let config = EndpointConfig::new().links_max(2).quota_chunks(8).credit_total(16);
        let config = config.send_pools(&[(4096, 64)]).seed(world.next_seed());
        let endpoint = Endpoint::new(device, config).expect("a small endpoint");
        End { endpoint, read, link: None, granted: Vec::new(), done: Vec::new() }
    });
    let [server, peers @ ..] = &mut ends;
    let links = peers.each_mut().map(|peer| {
        let (near_hello, near_half) = peer.endpoint.offer().expect("room");
        let (far_hello, far_half) = server.endpoint.offer().expect("room");
        let link = peer.endpoint.establish(near_half, &far_hello, Side::Client);
        peer.link = Some(link.expect("they fit"));
        server.endpoint.establish(far_half, &near_hello, Side::Server).expect("they fit")
    });
    let memory = SharedMemory::new(MEMORY_BYTES).expect("memory for a test");
    let mut as_it_was = vec![0; MEMORY_BYTES];
    Prng::new(seed).fill(&mut as_it_was);
    memory.write(0, &as_it_was).expect("it fits");
    let mut lab = Lab { world, ends, links, memory, as_it_was };
    lab.grant(0, VICTIMS, Rights::ALL);
    lab.grant(1, ATTACKERS, Rights::ALL);
    lab.grant(1, READABLE, Rights::READ);
    lab.until(|lab| lab.ends[1].granted.len() == 1 && lab.ends[2].granted.len() == 2);
    lab
}

impl Lab {
    fn grant(&mut self, to: usize, range: std::ops::Range<usize>, rights: Rights) -> GrantId {
        let Self { ends: [server, ..], links, memory, .. } = self;
        server.endpoint.grant(links[to], memory, range, rights).expect("room")
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let mut busy = false;
            for End { endpoint, granted, done, .. } in &mut self.ends {
                busy |= endpoint.turn(|_, event| match event {
                    Event::Granted { grant, .. } => granted.push(grant),
                    Event::OpDone { outcome, .. } => done.push(outcome),
                    Event::LinkDown { .. } => panic!("links stay up"),
                    _ => {}
                });
            }
            if !busy {
                let timers = self.ends.iter().map(|end| end.endpoint.next_timeout());
                let next = timers.chain(self.world.next_event_time()).min().expect("three ends");
                assert!(next < END, "nothing more happens");
                self.world.advance_to(next.max(self.world.now() + Nanos(1)));
            }
        }
    }

    /// Reads through a grant, as anybody may; what the packet said of it.
    fn read(&mut self, end: usize, grant: GrantId) -> RemoteAddr {
        let End { endpoint, link, done, .. } = &mut self.ends[end];
        done.clear();
        let place = Place { link: link.expect("it is up"), grant, offset: 0 };
        let buf = endpoint.alloc(8).expect("a free buffer");
        endpoint.read(place, 8, buf, OpOptions::new()).expect("allowed");
        self.until(|lab| !lab.ends[end].done.is_empty());
        assert_eq!(self.ends[end].done, [OpOutcome::Executed]);
        self.ends[end].read.get()
    }

    fn server(&self) -> &Nic {
        self.ends[0].endpoint.device()
    }

    fn refused(&self) -> u64 {
        let counters = self.server().counters();
        counters.bad_rkey + counters.bad_sequences
    }

    fn check_memory(&self) {
        let mut now = vec![0; MEMORY_BYTES];
        self.memory.read(0, &mut now).expect("it fits");
        let changed = now.iter().zip(&self.as_it_was).position(|(now, was)| now != was);
        assert_eq!(changed, None, "where it has changed");
    }
}

/// Every kind of operation of `len` bytes there; words have eight.
fn ops(remote: RemoteAddr) -> [SendOp; 4] {
    [
        SendOp::Read { remote },
        SendOp::Write { remote },
        SendOp::FetchAdd { remote, add: 1 },
        SendOp::CmpSwap { remote, compare: 0, swap: 1 },
    ]
}

/// Memory of the attacker's own in the only domain that it has for a lane.
fn local(lab: &mut Lab) -> (Region, u32) {
    let region = Region::new(8192).expect("memory for a test");
    let device = lab.ends[2].endpoint.device_mut();
    let keys = device.reg_mr(PdNum(1), &region, Access::LOCAL).expect("the domain of its lane");
    (region, keys.lkey)
}

#[test]
fn whatever_a_peer_posts_to_its_own_lane_reaches_what_it_was_granted_and_nothing_else() {
    let seed = 1;
    let mut lab = lab(seed);
    let victims_grant = lab.ends[1].granted[0].id;
    let victims = lab.read(1, victims_grant);
    let [all, readable] = [0, 1].map(|nth| lab.ends[2].granted[nth].id);
    let (own, own_readable) = (lab.read(2, all), lab.read(2, readable));
    // A grant that was revoked, and the same memory granted again.
    let old = lab.grant(1, READABLE, Rights::ALL);
    lab.until(|lab| lab.ends[2].granted.len() == 3);
    let revoked = lab.read(2, old);
    let (link, server) = (lab.links[1], &mut lab.ends[0].endpoint);
    assert!(server.revoke(link, old));
    lab.grant(1, READABLE, Rights::READ);
    lab.until(|lab| lab.ends[2].granted.len() == 4);

    let at = |remote: RemoteAddr, skip: i64| RemoteAddr {
        addr: remote.addr.wrapping_add_signed(skip),
        ..remote
    };
    let with = |remote: RemoteAddr, rkey| RemoteAddr { rkey, ..remote };
    let len = ATTACKERS.len() as i64;
    let mut places = vec![
        victims,
        with(own, victims.rkey),
        with(victims, own.rkey),
        with(victims, own_readable.rkey),
        revoked,
        with(own, revoked.rkey),
        with(revoked, own.rkey),
    ];
    places.extend([-4096, -8, len, len + 4088].map(|skip| at(own, skip)));
    for near in [-2, -1, 1, 2, 1 << INDEX_BITS, -1 << INDEX_BITS] {
        places.push(with(victims, victims.rkey.wrapping_add_signed(near)));
        places.push(with(own, own.rkey.wrapping_add_signed(near)));
    }
    places.extend((0..64).map(|key| with(victims, key)));
    let mut tries: Vec<(SendOp, u32)> =
        places.into_iter().flat_map(ops).map(|op| (op, 8)).collect();
    // Some bytes inside, and some not: of a range, and of a word.
    for (skip, bytes) in [(-1, 2), (-1, 8), (len - 1, 2), (len - 7, 8), (0, len as u32 + 1)] {
        tries.extend(ops(at(own, skip))[..2].iter().map(|&op| (op, bytes)));
    }
    tries.extend(ops(at(own, 4))[2..].iter().map(|&op| (op, 8)));
    // Reading alone.
    tries.extend(ops(own_readable)[1..].iter().map(|&op| (op, 8)));
    tries.extend(ops(victims).into_iter().map(|op| (op, 8)));

    let (region, lkey) = local(&mut lab);
    let link = lab.ends[2].link.expect("it is up");
    let victims_qp = lab.ends[1].endpoint.lane(lab.ends[1].link.expect("up")).map(|l| l.qp_num);
    let refused_before = lab.refused();
    let count = tries.len() as u64;
    for (op, length) in tries {
        let qp = lab.ends[2].endpoint.lane(link).and_then(|lane| lane.qp_num).expect("joined");
        let sge = Sge { addr: region.addr(), length, lkey };
        let before = lab.refused();
        let device = lab.ends[2].endpoint.device_mut();
        device.post_send(qp, &[SendWr::new(u64::MAX, op, SgList::one(sge))]).expect("room");
        lab.until(|lab| lab.refused() > before);
        // It costs the attacker its own queue pair, and nobody else theirs.
        lab.read(2, all);
        assert_eq!(lab.refused(), before + 1, "{op:?} {length}");
    }
    println!("seed {seed}: {count} tries, all refused");
    assert_eq!(lab.refused() - refused_before, count);
    lab.check_memory();
    let lane = lab.ends[1].endpoint.lane(lab.ends[1].link.expect("up"));
    assert_eq!(lane.map(|lane| lane.qp_num), victims_qp, "the victim has felt nothing");
    lab.read(1, victims_grant);
    // By number there is nothing to be had either.
    for id in (0..5000).map(GrantId).filter(|&id| id != all && id != readable) {
        let place = Place { link, grant: id, offset: 0 };
        let refused = lab.ends[2].endpoint.write_word(place, 1, OpOptions::new());
        let is_known = lab.ends[2].granted.iter().any(|grant| grant.id == id);
        assert!(is_known || refused == Err(LaneError::Op(OpError::NoSuchGrant)), "{id:?}");
    }
}

/// Queue pairs of the attacker's device, and others of the server's in a domain of it, as a lane
/// has them: all at once, so that many tries are under way.
struct Crafted {
    pairs: Vec<(QpNum, QpNum)>,
    near_cq: CqNum,
    far_cq: CqNum,
    sge: Sge,
    _region: Region,
    tries: u64,
    wcs: Vec<Wc>,
}

/// Tries that are under way at a time.
const AT_A_TIME: usize = 64;

impl Crafted {
    fn new(lab: &mut Lab, domain: PdNum) -> Self {
        let region = Region::new(4096).expect("memory for a test");
        let [server, _, attacker] = &mut lab.ends;
        let near = attacker.endpoint.device_mut();
        let keys = near.reg_mr(PdNum::DEFAULT, &region, Access::LOCAL).expect("room");
        let sge = Sge { addr: region.addr(), length: 8, lkey: keys.lkey };
        let near_cq = near.create_cq(4 * AT_A_TIME as u32).expect("room");
        let far = server.endpoint.device_mut();
        let far_cq = far.create_cq(4 * AT_A_TIME as u32).expect("room");
        let (near_init, far_init) = (
            QpInit::new(QpType::Rc, near_cq).depth(2, 1),
            QpInit::new(QpType::Rc, far_cq).pd(domain).access(Access::REMOTE_ALL).depth(2, 1),
        );
        let pairs = (0..AT_A_TIME).map(|_| {
            let pair = (near.create_qp(&near_init), far.create_qp(&far_init));
            (pair.0.expect("room"), pair.1.expect("room"))
        });
        let pairs: Vec<_> = pairs.collect();
        let wcs = vec![Wc::default(); 4 * AT_A_TIME];
        let crafted = Self { pairs, near_cq, far_cq, sge, _region: region, tries: 0, wcs };
        crafted.pairs.iter().for_each(|&pair| connect(lab, pair));
        crafted
    }

    /// Tries all of it; what was let through.
    fn try_all(&mut self, lab: &mut Lab, ops: impl Iterator<Item = SendOp>) -> Vec<SendOp> {
        let (mut ops, mut through) = (ops.peekable(), Vec::new());
        while ops.peek().is_some() {
            let batch: Vec<SendOp> = ops.by_ref().take(AT_A_TIME).collect();
            self.tries += batch.len() as u64;
            let near = lab.ends[2].endpoint.device_mut();
            for (number, (&op, &(qp, _))) in batch.iter().zip(&self.pairs).enumerate() {
                let wr = SendWr::new(number as u64, op, SgList::one(self.sge));
                near.post_send(qp, &[wr]).expect("room");
            }
            let mut ended = 0;
            while ended < batch.len() {
                pump(lab);
                let near = lab.ends[2].endpoint.device_mut();
                let count = near.poll_cq(self.near_cq, &mut self.wcs);
                ended += count;
                for wc in &self.wcs[..count] {
                    let number = wc.wr_id as usize;
                    match wc.status {
                        WcStatus::Success => through.push(batch[number]),
                        status => {
                            assert_eq!(status, WcStatus::RemAccessErr, "{:?}", batch[number]);
                            let pair = self.pairs[number];
                            reset(lab, pair);
                            connect(lab, pair);
                        }
                    }
                }
            }
            lab.ends[0].endpoint.device_mut().poll_cq(self.far_cq, &mut self.wcs);
        }
        through
    }
}

/// Lets packets go on.
fn pump(lab: &mut Lab) {
    let mut busy = 0;
    for end in [0, 2] {
        busy += lab.ends[end].endpoint.device_mut().progress(256);
    }
    if busy == 0 {
        let next = lab.world.next_event_time().expect("a packet is under way");
        lab.world.advance_to(next);
    }
}

fn reset(lab: &mut Lab, (near, far): (QpNum, QpNum)) {
    for (end, qp) in [(2, near), (0, far)] {
        let device = lab.ends[end].endpoint.device_mut();
        device.modify_qp(qp, QpState::Reset).expect("any state may go there");
        device.modify_qp(qp, QpState::Init).expect("it was reset");
    }
}

fn connect(lab: &mut Lab, (near, far): (QpNum, QpNum)) {
    let addrs = [2, 0].map(|end: usize| lab.ends[end].endpoint.device().local_addr());
    let to = |dest: SocketAddr, dest_qp_num| Connect {
        dest,
        dest_qp_num,
        rq_psn: Psn::new(5),
        sq_psn: Psn::new(5),
        path_mtu: Mtu::Mtu1024,
        source_port: 0,
        tclass: 0,
        rc: RcAttr::default(),
    };
    let near_end = lab.ends[2].endpoint.device_mut();
    near_end.connect_qp(near, &to(addrs[1], far)).expect("it was in INIT");
    let far_end = lab.ends[0].endpoint.device_mut();
    far_end.connect_qp(far, &to(addrs[0], near)).expect("it was in INIT");
}

#[test]
fn a_million_guesses_in_other_domains_reach_nothing_and_are_counted() {
    let seed = 2;
    let mut lab = lab(seed);
    let victims_grant = lab.ends[1].granted[0].id;
    let victims = lab.read(1, victims_grant);
    let own = lab.ends[2].granted[0].id;
    let own = lab.read(2, own);
    let index = victims.rkey & ((1 << INDEX_BITS) - 1);
    let keys =
        |index: u32| (0..=u16::MAX).map(move |random| u32::from(random) << INDEX_BITS | index);
    let (mut tries, mut domains_open) = (0, 0);
    let refused_before = lab.refused();
    let mut let_through = 0;
    // The domain of all that has none of its own, those of the two lanes, and one of nobody's.
    let spare = lab.ends[0].endpoint.device_mut().alloc_pd().expect("room");
    for domain in 0..=spare.0 {
        let mut crafted = Crafted::new(&mut lab, PdNum(domain));
        // Whatever the random half is, of that registration and of those beside it.
        let near = (index - 1..=index + 1).flat_map(keys);
        let reads = near.map(|rkey| SendOp::Read { remote: RemoteAddr { rkey, ..victims } });
        let through = crafted.try_all(&mut lab, reads);
        let_through += through.len() as u64;
        if !through.is_empty() {
            // The victim's own domain, which shows that the tries are sound: one key opens it.
            assert_eq!(through, [SendOp::Read { remote: victims }]);
            domains_open += 1;
        } else {
            let others = keys(index).flat_map(|rkey| ops(RemoteAddr { rkey, ..victims }));
            let places = others.filter(|op| !matches!(op, SendOp::Read { .. }));
            // And the attacker's own key at every place near the victim's memory.
            let skips = (-4096..4096).filter(|skip| skip % 8 == 0);
            let beside = skips.flat_map(|skip| {
                let addr = victims.addr.wrapping_add_signed(skip);
                ops(RemoteAddr { addr, rkey: own.rkey })
            });
            assert_eq!(crafted.try_all(&mut lab, places.chain(beside)), [], "{domain}");
        }
        tries += crafted.tries;
    }
    println!("seed {seed}: {tries} tries in {} domains, {let_through} let through", spare.0 + 1);
    assert_eq!((spare.0, domains_open, let_through), (3, 1, 1));
    assert!(tries >= 1_000_000, "{tries}");
    assert_eq!(lab.refused() - refused_before, tries - let_through);
    lab.check_memory();
    assert_eq!(lab.read(1, victims_grant), victims, "the victim's lane goes on");
}
