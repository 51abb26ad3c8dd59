//! A hundred hosts read 4 KiB at a time from one, 64 under way each: the port of the server is
//! full, hardly anything is sent again, and all get the same.

use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_lab::cluster::jain;
use towpath_sim::World;
use towpath_sim::topology::Star;
use towpath_sim::world::{HostId, VirtualLink};
use towpath_transport::{
    Endpoint, EndpointConfig, Event, Grant, LinkId, OpOptions, OpOutcome, Place, Rights,
    SharedMemory, Side,
};

type End = Endpoint<RoceDevice<VirtualLink>>;

const READERS: usize = 100;
const DEPTH: usize = 64;
const READ_BYTES: u32 = 4096;
const MEMORY_BYTES: usize = 1 << 20;
const LINE_BITS_PER_S: f64 = 100e9;

struct Reader {
    end: End,
    link: LinkId,
    grant: Option<Grant>,
    prng: Prng,
    idle: usize,
    bytes: u64,
    failed: u64,
}

impl Reader {
    fn turn(&mut self) {
        let Self { end, grant, idle, bytes, failed, .. } = self;
        end.turn(|_, event| match event {
            Event::Granted { grant: told, .. } => *grant = Some(told),
            Event::OpDone { outcome, .. } => {
                *idle += 1;
                match outcome {
                    OpOutcome::Executed => *bytes += u64::from(READ_BYTES),
                    _ => *failed += 1,
                }
            }
            _ => {}
        });
        let Some(grant) = self.grant.map(|grant| grant.id) else { return };
        let was_idle = self.idle;
        while self.idle > 0 {
            self.idle -= 1;
            let offset = self.prng.below((MEMORY_BYTES as u64 - u64::from(READ_BYTES)) / 64) * 64;
            let place = Place { link: self.link, grant, offset: offset as u32 };
            let buf = self.end.alloc(READ_BYTES as usize).expect("a buffer for each");
            self.end.read(place, READ_BYTES, buf, OpOptions::new()).expect("allowed");
        }
        if was_idle > 0 {
            self.end.flush();
        }
    }
}

struct Room {
    world: World,
    server: End,
    readers: Vec<Reader>,
    hosts: Vec<HostId>,
    _memory: SharedMemory,
}

fn room(seed: u64) -> Room {
    let world = World::new(seed);
    let hosts = Star { hosts: READERS + 1, ..Star::default() }.build(&world).hosts;
    let end = |place: usize, links: usize| {
        let device = RoceDevice::new(world.end(hosts[place]), RoceConfig::default());
        let config = EndpointConfig::new()
            .links_max(links)
            .quota_chunks(8)
            .credit_total(8)
            .send_pools(&[(READ_BYTES as usize, DEPTH)]);
        Endpoint::new(device, config.seed(world.next_seed())).expect("a small endpoint")
    };
    let mut server = end(0, READERS);
    let memory = SharedMemory::new(MEMORY_BYTES).expect("memory for a test");
    let readers = (1..=READERS).map(|place| {
        let mut end = end(place, 1);
        let (theirs, half) = server.offer().expect("room");
        let (ours, own_half) = end.offer().expect("room");
        let link = end.establish(own_half, &theirs, Side::Client).expect("they fit");
        let far = server.establish(half, &ours, Side::Server).expect("they fit");
        server.grant(far, &memory, memory.whole(), Rights::READ).expect("room");
        let prng = Prng::new(seed ^ place as u64);
        Reader { end, link, grant: None, prng, idle: DEPTH, bytes: 0, failed: 0 }
    });
    let readers = readers.collect();
    Room { world, server, readers, hosts, _memory: memory }
}

impl Room {
    fn turn(&mut self, host: usize) {
        let next = if host == 0 {
            while self.server.turn(|_, _| {}) {}
            self.server.next_timeout()
        } else {
            let reader = &mut self.readers[host - 1];
            reader.turn();
            reader.end.next_timeout()
        };
        let soon = self.world.now() + Nanos(200);
        self.world.set_timer(self.hosts[host], next.max(soon));
    }

    fn run_until(&mut self, until: Time) {
        let mut woken: Vec<HostId> = self.hosts.clone();
        loop {
            woken.sort_unstable();
            woken.dedup();
            for host in std::mem::take(&mut woken) {
                self.turn(host.0 as usize);
            }
            if !self.world.advance_to_next(until, &mut woken) {
                return;
            }
        }
    }

    fn bytes(&self) -> Vec<f64> {
        self.readers.iter().map(|reader| reader.bytes as f64).collect()
    }
}

#[test]
fn a_hundred_readers_fill_the_port_of_one_server_and_share_it() {
    let seed = 1;
    let mut room = room(seed);
    let (warm, span) = (Nanos::from_millis(6), Nanos::from_millis(6));
    room.run_until(Time::ZERO + warm);
    let (before, sent) = (room.bytes(), room.server.device().counters());
    room.run_until(Time::ZERO + warm + span);
    let counters = room.server.device().counters();
    let got: Vec<f64> = room.bytes().iter().zip(&before).map(|(now, was)| now - was).collect();
    let bits = got.iter().sum::<f64>() * 8.0;
    // Of 4,096 bytes with Ethernet, IP, UDP, BTH, AETH and ICRC around them.
    let of_port = bits / span.0 as f64 * 1e9 / LINE_BITS_PER_S * (4096.0 + 82.0) / 4096.0;
    let again = (counters.retransmitted - sent.retransmitted) as f64
        / (counters.packets_sent - sent.packets_sent) as f64;
    let fair = jain(got.iter().copied());
    let failed: u64 = room.readers.iter().map(|reader| reader.failed).sum();
    println!("seed {seed}: {of_port:.3} of the port, {again:.5} again, Jain {fair:.3}");
    assert_eq!(failed, 0);
    assert!(of_port > 0.95, "{of_port}");
    assert!(again < 0.01, "{again}");
    assert!(fair > 0.98, "{fair}");
}
