//! Links of several classes on one worker in virtual time, over a wire that is less than they want.

use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::{ChannelId, Class, ClassOrder, Side};
use towpath_sim::{HostConfig, HostId, Star, SwitchConfig, VirtualLink, World};
use towpath_transport::{Endpoint, EndpointConfig, Event, LinkId, SendOptions};

type Device = RoceDevice<VirtualLink>;

const RATE_BITS_PER_S: u64 = 10_000_000_000;
const MESSAGE_BYTES: usize = 64 << 10;
/// Messages that a busy link always has under way: more than the wire holds.
const UNDER_WAY: usize = 24;

/// A sender with links of several classes to one receiver. Its network card has one short queue, so
/// that the order is the sender's own.
struct Lab {
    world: World,
    woken: Vec<HostId>,
    near: Endpoint<Device>,
    far: Endpoint<Device>,
    links: Vec<(LinkId, ChannelId, Class)>,
    /// Which links send one message after the other.
    busy: Vec<bool>,
    /// Bytes delivered, by link.
    got: Vec<u64>,
}

impl Lab {
    fn new(order: ClassOrder, classes: &[Class]) -> Self {
        let world = World::new(5);
        let host = HostConfig {
            rate_bits_per_s: RATE_BITS_PER_S,
            nic_queue_bytes: 16 << 10,
            ..HostConfig::default()
        };
        let hosts = Star { hosts: 2, host, switch: SwitchConfig::default() }.build(&world).hosts;
        let config = EndpointConfig::new()
            .class_order(order)
            .ahead_bytes(256 << 10)
            .links_max(classes.len())
            .credit_total(128)
            .receives_ready(128)
            .send_pools(&[(MESSAGE_BYTES, classes.len() * UNDER_WAY)])
            .controller("fixed:1MiB".parse().expect("a controller"));
        let end = |host, salt| {
            let device = RoceDevice::new(world.end(host), RoceConfig::default().seed(salt));
            Endpoint::new(device, config.clone().seed(salt)).expect("a small endpoint")
        };
        let (near, far) = (end(hosts[0], 1), end(hosts[1], 2));
        let (busy, got) = (vec![false; classes.len()], vec![0; classes.len()]);
        let mut lab = Self { world, woken: Vec::new(), near, far, links: Vec::new(), busy, got };
        classes.iter().for_each(|&class| lab.join(class));
        lab
    }

    fn join(&mut self, class: Class) {
        let (ours, half) = self.near.offer_as(class).expect("room");
        let (theirs, other) = self.far.offer_as(class).expect("room");
        let link = self.near.establish(half, &theirs, Side::Client).expect("they fit");
        self.far.establish(other, &ours, Side::Server).expect("they fit");
        let channel = self.near.open_channel(link, false).expect("room");
        self.links.push((link, channel, class));
        self.run(Nanos::from_micros(50));
    }

    fn set_busy(&mut self, place: usize, busy: bool) {
        self.busy[place] = busy;
        if busy {
            (0..UNDER_WAY).for_each(|_| self.send(place, MESSAGE_BYTES));
        }
    }

    fn send(&mut self, place: usize, len: usize) {
        let (link, channel, _) = self.links[place];
        let buf = self.near.copy(&vec![7; len]).expect("a free buffer");
        let options = SendOptions::new().token(place as u64);
        self.near.send(link, channel, buf, options).expect("an open channel");
    }

    /// Lets time go on for `span`; returns what each link delivered meanwhile.
    fn run(&mut self, span: Nanos) -> Vec<u64> {
        let end = self.world.now() + span;
        self.got.fill(0);
        while self.world.now() < end {
            let mut done = Vec::new();
            let mut busy = self.near.turn(|_, event| match event {
                Event::Sent { token, payload, .. } => {
                    done.push((token as usize, payload.byte_len()));
                }
                Event::LinkDown { reason, .. } => panic!("{reason:?}"),
                Event::ChannelClosed { reason, .. } => panic!("{reason:?}"),
                _ => {}
            });
            busy |= self.far.turn(|far, event| {
                if let Event::Message(message) = event {
                    far.release(message);
                }
            });
            for (place, bytes) in done {
                self.got[place] += bytes as u64;
                if self.busy[place] {
                    self.send(place, MESSAGE_BYTES);
                }
            }
            if !busy {
                let timers = self.near.next_timeout().min(self.far.next_timeout());
                let limit = timers.min(end).max(self.world.now() + Nanos(1));
                if !self.world.advance_to_next(limit, &mut self.woken) {
                    self.world.advance_to(limit);
                }
                self.woken.clear();
            }
        }
        self.got.clone()
    }

    /// Parts of what the wire could have carried.
    fn parts(got: &[u64], span: Nanos) -> Vec<f64> {
        let whole = RATE_BITS_PER_S as f64 / 8e9 * span.0 as f64;
        got.iter().map(|&bytes| bytes as f64 / whole).collect()
    }
}

const WARM_UP: Nanos = Nanos::from_millis(4);
const SPAN: Nanos = Nanos::from_millis(20);

#[test]
fn under_strict_priority_what_is_urgent_has_the_wire_and_the_rest_what_it_leaves() {
    let mut lab = Lab::new(ClassOrder::Strict, &[Class::Copper, Class::Gold, Class::Copper]);
    (0..3).for_each(|place| lab.set_busy(place, true));
    lab.run(WARM_UP);
    let parts = Lab::parts(&lab.run(SPAN), SPAN);
    println!("all busy: {parts:?}");
    assert!(parts[1] > 0.93 && parts[0] + parts[2] < 0.02, "{parts:?}");
    lab.set_busy(1, false);
    lab.run(WARM_UP);
    let parts = Lab::parts(&lab.run(SPAN), SPAN);
    println!("Gold is done: {parts:?}");
    assert!(parts[0] + parts[2] > 0.93 && (parts[0] - parts[2]).abs() < 0.05, "{parts:?}");
}

#[test]
fn a_little_that_is_urgent_leaves_the_wire_to_the_rest() {
    let mut lab = Lab::new(ClassOrder::Strict, &[Class::Gold, Class::Silver, Class::Copper]);
    lab.set_busy(2, true);
    lab.run(WARM_UP);
    let mut copper = 0;
    for _ in 0..200 {
        lab.send(0, 4096);
        lab.send(1, 16 << 10);
        let got = lab.run(Nanos::from_micros(100));
        assert!(got[0] == 4096 && got[1] == 16 << 10, "answered within 100 us: {got:?}");
        copper += got[2];
    }
    let part = Lab::parts(&[copper], SPAN)[0];
    println!("Copper: {part}");
    // 20 KiB in 100 us are 16 % of 10 Gb/s.
    assert!(part > 0.76, "{part}");
}

#[test]
fn shares_are_those_of_the_weights_whatever_the_number_of_links() {
    let order = ClassOrder::Shares([4, 2, 1]);
    let classes = [Class::Gold, Class::Silver, Class::Copper, Class::Copper, Class::Copper];
    let mut lab = Lab::new(order, &classes);
    (0..5).for_each(|place| lab.set_busy(place, true));
    lab.run(WARM_UP);
    let got = lab.run(SPAN);
    let parts = Lab::parts(&got, SPAN);
    println!("all busy: {parts:?}");
    let copper: f64 = parts[2..].iter().sum();
    let whole = parts[0] + parts[1] + copper;
    assert!(whole > 0.93, "{parts:?}");
    for (part, due) in [(parts[0], 4.0), (parts[1], 2.0), (copper, 1.0)] {
        assert!((part / whole / (due / 7.0) - 1.0).abs() < 0.05, "{parts:?}");
    }
    lab.set_busy(0, false);
    lab.run(WARM_UP);
    let parts = Lab::parts(&lab.run(SPAN), SPAN);
    println!("Gold is done: {parts:?}");
    let copper: f64 = parts[2..].iter().sum();
    assert!(parts[1] + copper > 0.93 && (parts[1] / copper - 2.0).abs() < 0.1, "{parts:?}");
}

#[test]
fn a_class_that_goes_away_leaves_the_others_to_themselves() {
    let mut lab = Lab::new(ClassOrder::Strict, &[Class::Gold, Class::Copper]);
    (0..2).for_each(|place| lab.set_busy(place, true));
    lab.run(WARM_UP);
    assert!(lab.run(SPAN)[1] < 1 << 20);
    lab.busy[0] = false;
    let gold = lab.links[0].0;
    lab.near.close(gold);
    let end = lab.world.now() + Nanos::from_secs(1);
    while lab.near.links().any(|link| link == gold) {
        assert!(lab.world.now() < end, "it takes too long to leave");
        lab.run_until_down();
    }
    let parts = Lab::parts(&lab.run(SPAN), SPAN);
    assert!(parts[1] > 0.9, "{parts:?}");
}

impl Lab {
    /// A little further, links that go down being none of our business.
    fn run_until_down(&mut self) {
        let mut done = Vec::new();
        let mut busy = self.near.turn(|_, event| {
            if let Event::Sent { token, payload, .. } = event {
                done.push((token as usize, payload.byte_len()));
            }
        });
        busy |= self.far.turn(|far, event| {
            if let Event::Message(message) = event {
                far.release(message);
            }
        });
        for (place, _) in done {
            if self.busy[place] {
                self.send(place, MESSAGE_BYTES);
            }
        }
        if !busy {
            let timers = self.near.next_timeout().min(self.far.next_timeout());
            let next = self.world.next_event_time().map_or(timers, |at| at.min(timers));
            self.world.advance_to(next.min(Time::NEVER).max(self.world.now() + Nanos(1)));
        }
    }
}
