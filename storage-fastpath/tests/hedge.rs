//! Reads that the first replica is late with are asked for at a second; nothing of the loser stays.

mod common;

use common::{Direct, Server, pattern};
use std::sync::atomic::{AtomicBool, Ordering};
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{
    ChunkId, Client, ClientConfig, Driver, Ended, ErrorKind, HedgeAfter, HedgeConfig, HedgeServer,
    HedgeStats, Output, ReadData, Ticket,
};
use towpath_rpc::Fate;
use towpath_transport::{EndpointConfig, Nanos, RoceUdp};

const CHUNK: ChunkId = ChunkId(5);

/// Long before the timeout.
const LATE: Nanos = Nanos::from_millis(20);

/// The timeout of reads that shall end well, however busy the machine.
const LONG: Nanos = Nanos::from_secs(60);

/// The timeout of reads that nobody answers, in tests that have others answered within it.
const SHORT: Nanos = Nanos::from_secs(3);

/// The timeout where a write is given up, and reads end well.
const GIVEN_UP: Nanos = Nanos::from_secs(8);

/// Two servers with the same bytes, and a client of the first.
struct Pair {
    first: Server,
    second: Server,
    driver: Driver<RoceUdp>,
    bytes: Vec<u8>,
}

impl Pair {
    fn new(config: HedgeConfig, timeout: Nanos) -> Self {
        let (first, second) = (Server::start(), Server::start());
        let bytes = pattern(200_000, 1);
        for server in [&first, &second] {
            let mut client = Direct::with(server.addr, |client| client.timeout(LONG));
            client.create(CHUNK).expect("a new chunk");
            client.write(CHUNK, 0, &bytes).expect("room");
            client.close();
        }
        // Who is avoided stays so until the test says otherwise, and who stalls is not gone.
        let long = Nanos::from_secs(600);
        let config = config.avoid_for(long);
        let endpoint = EndpointConfig::new().app_protocol(PROTOCOL).links_max(2);
        let endpoint = endpoint.tune_links(move |link| link.peer_timeout(long));
        let client = ClientConfig::new().hedge(second.addr, config).timeout(timeout);
        // Nothing waits for a server that is away.
        let client = client.patience(Nanos::ZERO);
        let (_, driver) = Client::driven(common::endpoint(endpoint), first.addr, &client);
        let mut pair = Self { first, second, driver, bytes };
        while pair.driver.take_opened().transpose().expect("both listen").is_none() {
            pair.turn();
        }
        // The link to the second follows that to the first.
        while !pair.driver.has_replica() {
            pair.turn();
        }
        pair
    }

    fn turn(&mut self) {
        if !self.driver.turn() {
            let due = self.driver.next_due().since(self.driver.endpoint().now());
            self.driver.endpoint_mut().wait(due.min(Nanos::from_millis(1)));
        }
    }

    fn end_of(&mut self, wanted: Ticket) -> Result<Output, ErrorKind> {
        loop {
            self.turn();
            match self.driver.next_ended() {
                Some(Ended::Done(ticket, result)) if ticket == wanted => {
                    return result.map_err(|error| error.kind);
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }

    fn read_at(&mut self, offset: u64, length: usize) -> Result<ReadData, ErrorKind> {
        let ticket = self.driver.read(CHUNK, offset, length, false);
        match self.end_of(ticket)? {
            Output::Read(data) => Ok(data),
            other => panic!("a read gave {other:?}"),
        }
    }

    fn read(&mut self) -> Result<(), ErrorKind> {
        let data = self.read_at(4096, 20_000)?;
        assert!(data.to_vec() == self.bytes[4096..24_096], "verified, and the bytes asked for");
        Ok(())
    }

    fn stats(&self) -> HedgeStats {
        self.driver.hedge_stats()
    }

    /// Waits until the client holds nothing of any read, with the links up.
    fn nothing_is_left(&mut self) {
        let endpoint = self.driver.endpoint_mut();
        let mut quiet = 0;
        for _ in 0..100_000 {
            // Nothing that comes now is anybody's.
            let busy = endpoint.turn(|_, event| drop(event));
            let links: Vec<_> = endpoint.links().collect();
            let idle = links.iter().all(|&link| endpoint.is_idle(link));
            let census = endpoint.buffers();
            let held = census.recv_all - census.recv_free - census.recv_posted;
            let home = census.send_free == census.send_all && held == 0;
            quiet = if idle && home { quiet + 1 } else { 0 };
            if quiet == 10 {
                return;
            }
            if !busy {
                endpoint.wait(Nanos::from_micros(200));
            }
        }
        panic!("{:?}", endpoint.buffers());
    }
}

fn set(flag: &AtomicBool, on: bool) {
    flag.store(on, Ordering::Relaxed);
}

fn after(delay: Nanos) -> HedgeConfig {
    HedgeConfig::new().after(HedgeAfter::Fixed(delay)).budget_percent(100.0)
}

#[test]
fn what_a_stalled_server_does_not_answer_the_second_does() {
    let mut pair = Pair::new(after(LATE), LONG);
    pair.read().expect("both are well");
    pair.first.stall(true);
    for _ in 0..5 {
        pair.read().expect("the second answers");
    }
    let stats = pair.stats();
    assert!(stats.reads == 6 && stats.hedges >= 5 && stats.hedges_won >= 5, "{stats:?}");
    // What the first was asked for in vain it is told to leave, when it can be told again.
    pair.first.stall(false);
    pair.nothing_is_left();
    pair.read().expect("the links are as good as new");
}

#[test]
fn a_second_server_that_is_late_itself_costs_nothing_but_the_asking() {
    let mut pair = Pair::new(after(Nanos::ZERO), LONG);
    pair.second.stall(true);
    for _ in 0..20 {
        pair.read().expect("the first answers");
    }
    let stats = pair.stats();
    assert_eq!((stats.reads, stats.hedges_won, stats.failovers), (20, 0, 0), "{stats:?}");
    assert!(stats.hedges > 0, "some were asked for before they were answered: {stats:?}");
    pair.second.stall(false);
    pair.nothing_is_left();
}

#[test]
fn without_a_budget_left_a_read_waits_for_the_first_server_alone() {
    let config = after(LATE).budget_percent(10.0);
    let mut pair = Pair::new(config, SHORT);
    pair.first.stall(true);
    pair.read().expect("one hedge is there from the start");
    for _ in 0..3 {
        assert!(matches!(pair.read(), Err(ErrorKind::TimedOut { .. })));
    }
    let stats = pair.stats();
    assert_eq!((stats.hedges, stats.hedges_won, stats.hedges_denied), (1, 1, 3));
    pair.first.stall(false);
}

#[test]
fn what_is_damaged_at_the_first_server_is_read_from_the_second_at_once() {
    let mut pair = Pair::new(after(Nanos::from_secs(5)), LONG);
    set(&pair.first.mischief.damaged, true);
    let data = pair.read_at(0, 4096).expect("the second has it");
    assert!(data.to_vec() == pair.bytes[..4096]);
    drop(data);
    set(&pair.second.mischief.damaged, true);
    let error = pair.read_at(0, 4096).expect_err("both are damaged");
    assert!(matches!(error, ErrorKind::Refused(_)), "{error}");
    let stats = pair.stats();
    assert_eq!((stats.failovers, stats.hedges), (2, 0), "{stats:?}");
    pair.nothing_is_left();
}

#[test]
fn when_the_first_server_is_gone_reads_go_to_the_second() {
    let mut pair = Pair::new(after(Nanos::from_secs(5)), GIVEN_UP);
    set(&pair.first.mischief.vanish, true);
    // The first may answer one that was quicker than its end.
    while pair.stats().failovers == 0 {
        pair.read().expect("the second answers");
    }
    for _ in 0..3 {
        pair.read().expect("the second answers");
    }
    let stats = pair.stats();
    assert_eq!((stats.failovers, stats.hedges), (4, 0), "{stats:?}");
    // Its link was lost, so it would be avoided even if it came back.
    assert!(pair.driver.is_avoided(HedgeServer::First));
    assert!(!pair.driver.is_avoided(HedgeServer::Second));
    let data = pair.driver.endpoint().copy(b"no").expect("room");
    let write = pair.driver.write(CHUNK, 0, data);
    let error = pair.end_of(write).expect_err("writes are not hedged");
    assert_eq!(error, ErrorKind::TimedOut { fate: Fate::DidNotHappen });
}

#[test]
fn a_server_that_is_avoided_is_not_read_from_while_the_other_is_well() {
    let mut pair = Pair::new(after(Nanos::from_secs(5)), LONG);
    // It would not answer; nobody finds out.
    pair.first.stall(true);
    pair.driver.avoid(HedgeServer::First);
    for _ in 0..5 {
        pair.read().expect("the second answers");
    }
    let stats = pair.stats();
    assert_eq!((stats.reads, stats.avoided, stats.hedges, stats.failovers), (5, 5, 0, 0));
    pair.first.stall(false);
    pair.driver.trust(HedgeServer::First);
    pair.read().expect("the first answers again");
    assert_eq!(pair.stats().avoided, 5);
    pair.nothing_is_left();
}

#[test]
fn a_second_server_that_is_avoided_gets_no_hedged_read_unless_the_first_is_avoided_too() {
    let mut pair = Pair::new(after(LATE), SHORT);
    pair.driver.avoid(HedgeServer::Second);
    pair.first.stall(true);
    for _ in 0..2 {
        assert!(matches!(pair.read(), Err(ErrorKind::TimedOut { .. })), "nobody else is asked");
    }
    let stats = pair.stats();
    assert_eq!((stats.hedges, stats.hedges_avoided, stats.avoided), (0, 2, 0), "{stats:?}");
    pair.driver.avoid(HedgeServer::First);
    pair.read().expect("both are avoided, so the second is as good as the first");
    let stats = pair.stats();
    assert_eq!((stats.hedges, stats.hedges_won, stats.avoided), (1, 1, 0), "{stats:?}");
    pair.first.stall(false);
}
