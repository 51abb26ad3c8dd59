//! Links get worse and better; the monitor says so once.

use super::*;
use std::net::{Ipv4Addr, SocketAddr};
use towpath_transport::{
    CarrierReason, Class, DownReason, Endpoint, EndpointConfig, PathId, PathSignal, PathState,
    Peer, UdpConfig,
};

/// A link id of an endpoint: there is no other way to have one.
fn link() -> LinkId {
    let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let mut ends = [(); 2].map(|()| Endpoint::udp(udp(), EndpointConfig::new()).expect("UDP"));
    let addr = ends[1].listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
    ends[0].connect(addr).expect("room");
    for _ in 0..100_000 {
        let mut found = None;
        ends[1].turn(|_, _| {});
        ends[0].turn(|_, event| {
            if let Event::Connected { link, .. } = event {
                found = Some(link);
            }
        });
        if let Some(found) = found {
            return found;
        }
        ends[0].wait(Nanos::from_micros(50));
    }
    panic!("no link");
}

/// A monitor and one link, which counts as it is told.
struct Rig {
    monitor: HealthMonitor,
    link: LinkId,
    stats: LinkStats,
    rtt: Nanos,
    carrier: Carrier,
    now: Time,
}

impl Rig {
    fn new() -> Self {
        let monitor = HealthMonitor::new(HealthConfig::new());
        let (link, stats) = (link(), LinkStats::default());
        let (rtt, carrier, now) = (Nanos::from_micros(50), Carrier::Rc, Time(1_000_000));
        let mut rig = Self { monitor, link, stats, rtt, carrier, now };
        rig.window(0, 0, 0);
        rig
    }

    /// One window with so many chunks sent, lost, and timeouts, and the look behind the next, in
    /// which one was sent: what was told. Before that look nothing is said of loss.
    fn window(&mut self, sent: u64, lost: u64, timeouts: u64) -> Vec<HealthEvent> {
        self.stats.losses_by_timeout += lost;
        self.stats.rtos += timeouts;
        let mut told = self.look(sent);
        told.append(&mut self.look(1));
        told
    }

    /// A look, before which so many chunks were sent.
    fn look(&mut self, sent: u64) -> Vec<HealthEvent> {
        self.stats.chunks_sent += sent;
        assert!(self.monitor.is_due(self.now));
        let (link, stats, rtt) = (self.link, self.stats, Some(self.rtt));
        let carrier = self.carrier;
        let (class, dscp_changed) = (Class::Gold, 5);
        let (paths, paths_good) = (4, 3);
        let seen = LinkView { link, stats, rtt, carrier, paths, paths_good, class, dscp_changed };
        self.monitor.look(self.now, [seen].into_iter());
        assert!(!self.monitor.is_due(self.now));
        self.now += Nanos::from_millis(100);
        std::iter::from_fn(|| self.monitor.poll_event()).collect()
    }

    fn health(&self) -> LinkHealth {
        *self.monitor.link(self.link).expect("it is watched")
    }
}

#[test]
fn a_link_that_loses_is_degraded_and_good_again_after_a_while_without_loss() {
    let mut rig = Rig::new();
    let link = rig.link;
    assert_eq!(rig.window(1000, 5, 0), [], "half a per cent");
    let cause = Cause::Loss;
    assert_eq!(rig.window(1000, 50, 0), [HealthEvent::Degraded { link, cause }]);
    assert!((rig.health().loss - 0.05).abs() < 1e-3);
    assert_eq!(rig.window(1000, 50, 0), [], "it was told");
    assert_eq!(rig.look(1000), [], "nothing is known of these yet");
    for _ in 1..CLEAN_WINDOWS {
        assert_eq!(rig.look(1000), [], "it may be flapping");
    }
    assert_eq!(rig.look(1000), [HealthEvent::Recovered { link }]);
    assert_eq!((rig.health().state, rig.health().degradations), (HealthState::Good, 1));
}

#[test]
fn a_quiet_link_says_nothing_of_loss_and_a_chunk_or_two_are_none() {
    let mut rig = Rig::new();
    assert_eq!(rig.window(10, 5, 0), [], "too few to say");
    let mut rig = Rig::new();
    assert_eq!(rig.window(60, 2, 0), [], "more than one in a hundred, by chance");
    assert_eq!(
        rig.window(60, 3, 0),
        [HealthEvent::Degraded { link: rig.link, cause: Cause::Loss }]
    );
}

#[test]
fn what_was_late_and_not_lost_is_no_cause() {
    let mut rig = Rig::new();
    rig.stats.losses_by_timeout += 300;
    rig.stats.rtos += 9;
    rig.stats.path_doubts += 2;
    rig.stats.ack_reroutes += 1;
    assert_eq!(rig.look(1000), [], "it may be late");
    rig.stats.losses_spurious += 300;
    rig.stats.rtos_spurious += 9;
    rig.stats.reroutes_in_vain += 3;
    for _ in 0..3 {
        assert_eq!(rig.look(1000), [], "it was");
    }
    assert_eq!((rig.health().loss, rig.health().degradations), (0.0, 0));
    // Of the next that is late a part does not come.
    rig.stats.losses_by_timeout += 300;
    assert_eq!(rig.look(1000), []);
    rig.stats.losses_spurious += 200;
    let told = rig.look(1000);
    assert_eq!(told, [HealthEvent::Degraded { link: rig.link, cause: Cause::Loss }]);
    assert!((rig.health().loss - 0.1).abs() < 1e-9, "{}", rig.health().loss);
}

#[test]
fn a_link_that_sends_little_and_loses_most_of_it_says_so_for_as_long() {
    let mut rig = Rig::new();
    let mut told = Vec::new();
    for _ in 0..50 {
        rig.stats.losses_by_timeout += 8;
        told.extend(rig.look(10));
    }
    assert_eq!(told, [HealthEvent::Degraded { link: rig.link, cause: Cause::Loss }]);
    assert!((rig.health().loss - 0.8).abs() < 1e-9);
    told.clear();
    for _ in 0..2 * CLEAN_WINDOWS {
        told.extend(rig.look(0));
    }
    assert_eq!(told, [HealthEvent::Recovered { link: rig.link }], "it sends nothing any more");
    told.clear();
    for _ in 0..4 {
        told.extend(rig.look(10));
    }
    assert_eq!(told, [], "what was is not held against it");
}

#[test]
fn graver_causes_are_told_and_lesser_ones_are_not() {
    let mut rig = Rig::new();
    let link = rig.link;
    let told = |cause| vec![HealthEvent::Degraded { link, cause }];
    rig.rtt = Nanos::from_millis(2);
    for _ in 1..DELAY_WINDOWS {
        assert_eq!(rig.look(1000), [], "a busy host is late now and then");
    }
    assert_eq!(rig.look(1000), told(Cause::Delay));
    assert_eq!(rig.window(1000, 100, 0), told(Cause::Loss));
    rig.stats.path_doubts += 1;
    assert_eq!(rig.window(1000, 100, 0), told(Cause::Rerouted));
    rig.stats.ack_reroutes += 1;
    assert_eq!(rig.window(1000, 100, 0), [], "it was told");
    assert_eq!(rig.window(1000, 100, 9), told(Cause::Timeouts));
    assert_eq!(rig.window(1000, 100, 0), []);
    rig.monitor.slow_io(link, Nanos::from_secs(1));
    let slow = HealthEvent::SlowIo { link, age: Nanos::from_secs(1) };
    assert_eq!(rig.window(0, 0, 0), [vec![slow], told(Cause::SlowIo)].concat());
    for _ in 0..2 * CLEAN_WINDOWS {
        rig.monitor.still_slow(link);
        assert_eq!(rig.window(1000, 0, 0), [], "nothing is good while it is not answered");
    }
    assert_eq!((rig.health().slow, rig.monitor.slow()), (1, 1));
    assert_eq!(rig.health().degradations, 1, "it was never good between");
}

#[test]
fn links_that_are_gone_are_forgotten_and_events_that_nobody_takes_are_bounded() {
    let mut rig = Rig::new();
    for _ in 0..EVENTS_MAX + 7 {
        rig.monitor.slow_io(rig.link, Nanos::from_secs(1));
    }
    assert_eq!(rig.monitor.events_dropped(), 7);
    assert_eq!(std::iter::from_fn(|| rig.monitor.poll_event()).count(), EVENTS_MAX);
    rig.monitor.look(rig.now, std::iter::empty());
    assert_eq!(rig.monitor.links().count(), 0);
    rig.monitor.slow_io(rig.link, Nanos::from_secs(1));
    assert_eq!(rig.monitor.slow(), EVENTS_MAX as u64 + 8, "it counts all the same");
}

#[test]
fn a_path_that_changes_is_told_and_the_link_is_watched_from_its_first_to_its_last_event() {
    let mut monitor = HealthMonitor::new(HealthConfig::new());
    let (link, path) = (link(), PathId(2));
    let (device_addr, class) = (([127, 0, 0, 1], 1).into(), Class::Copper);
    let peer = Peer { instance: 1, device_addr, setup_addr: None, class };
    monitor.on_event(&Event::Accepted { link, peer });
    let seen = monitor.link(link).map(|health| (health.state, health.class));
    assert_eq!(seen, Some((HealthState::Good, class)));
    let (from, to, signal) = (PathState::Good, PathState::Suspect, PathSignal::Silent);
    monitor.on_event(&Event::PathChanged { link, path, from, to, signal });
    let told = HealthEvent::PathChanged { link, path, to, signal };
    assert_eq!(monitor.poll_event(), Some(told));
    let stats = LinkStats { chunks_sent: 100, path_doubts: 1, ..LinkStats::default() };
    let carrier = Carrier::Uc;
    let dscp_changed = 7;
    let (rtt, paths, paths_good) = (None, 4, 3);
    let view = LinkView { link, stats, rtt, carrier, paths, paths_good, class, dscp_changed };
    for now in [1, 2] {
        monitor.look(Time(now), [view].into_iter());
    }
    let health = monitor.link(link).expect("it is watched");
    assert_eq!((health.paths, health.paths_good), (4, 3));
    assert_eq!((health.class, health.dscp_changed), (class, 7));
    assert_eq!(health.state, HealthState::Degraded(Cause::Rerouted), "all of it since it is up");
    monitor.on_event(&Event::LinkDown { link, reason: DownReason::Goodbye });
    assert_eq!((monitor.link(link), monitor.links().count()), (None, 0));
}

#[test]
fn a_link_is_degraded_for_as_long_as_it_rides_on_a_worse_carrier_than_it_did() {
    let mut rig = Rig::new();
    let link = rig.link;
    assert_eq!(rig.window(1000, 0, 0), [], "RC is as good as any where it is what there is");
    rig.carrier = Carrier::Tcp;
    let (from, to) = (Carrier::Rc, Carrier::Tcp);
    let why = CarrierReason::Silent;
    rig.monitor.on_event(&Event::CarrierChanged { link, from, to, why });
    let changed = HealthEvent::CarrierChanged { link, from, to, why };
    let degraded = HealthEvent::Degraded { link, cause: Cause::Fallback };
    assert_eq!(rig.window(1000, 0, 0), [changed, degraded]);
    for _ in 0..2 * CLEAN_WINDOWS {
        assert_eq!(rig.window(1000, 0, 0), [], "it is where it was");
    }
    assert_eq!((rig.health().carrier, rig.health().carrier_best), (to, from));
    rig.carrier = Carrier::Uc;
    for _ in 1..CLEAN_WINDOWS {
        assert_eq!(rig.look(1000), []);
    }
    assert_eq!(rig.look(1000), [HealthEvent::Recovered { link }]);
}
