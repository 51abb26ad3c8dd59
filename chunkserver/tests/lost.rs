//! Files that are stored while servers are killed and started again.

mod common;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{LONG, Process, Running, config, pattern};
use tempfile::TempDir;
use towpath_base::{Nanos, Prng};
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_chunkserver::service::AllowedPeers;
use towpath_fastpath::ClientConfig;
use towpath_spread::{Layout, NodeState, Notice, PutOptions, RepairOptions, Servers, SpreadError};

/// Servers in processes of their own, some of which are killed.
struct Fleet {
    folders: TempDir,
    places: Vec<SocketAddr>,
    processes: Vec<Option<Process>>,
}

impl Fleet {
    fn new(count: usize) -> Self {
        let folders = tempfile::tempdir().expect("room for a folder");
        let mut fleet = Self { folders, places: Vec::new(), processes: Vec::new() };
        for number in 0..count {
            let process = Process::start(&fleet.config(number, (Ipv4Addr::LOCALHOST, 0).into()));
            fleet.places.push(process.addr);
            fleet.processes.push(Some(process));
        }
        fleet
    }

    fn config(&self, number: usize, listen: SocketAddr) -> DaemonConfig {
        let folder = self.folders.path().join(number.to_string());
        let log = String::from("error");
        config(&folder).with(|config| {
            config.network.listen = listen;
            config.telemetry.log = log;
            config.store.capacity_bytes = 256 << 20;
            config.network.links_max = 64;
        })
    }

    /// As `kill -9` does.
    fn kill(&mut self, number: usize) {
        self.processes[number] = None;
    }

    fn start(&mut self, number: usize) {
        let config = self.config(number, self.places[number]);
        // The kernel may close the store of a process a moment after it has ended.
        let started = (0..100).find_map(|_| {
            let process = catch_unwind(|| Process::start(&config)).ok();
            if process.is_none() {
                std::thread::sleep(Duration::from_millis(100));
            }
            process
        });
        assert!(started.is_some(), "server {number} does not start again");
        self.processes[number] = started;
    }

    fn is_alive(&self, number: usize) -> bool {
        self.processes[number].is_some()
    }
}

/// What was told.
type Told = Arc<Mutex<Vec<Notice>>>;

/// Clients that wait for so long for a server that is away, and what they tell.
fn servers(lost_after: Duration) -> (Servers, Told) {
    let (servers, told) = servers_by(ClientConfig::new().timeout(LONG));
    (servers.lost_after(lost_after), told)
}

fn servers_by(config: ClientConfig) -> (Servers, Told) {
    let told = Told::default();
    let heard = Arc::clone(&told);
    let servers = Servers::new(config.depth(32)).late_after(Duration::from_millis(300)).on_notice(
        move |notice| {
            println!("{notice}");
            heard.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
        },
    );
    (servers, told)
}

fn options(policy: &str) -> PutOptions {
    PutOptions::new(policy.parse().expect("a policy")).unit_bytes(8_192)
}

fn get(servers: &Servers, layout: &Layout) -> Result<Vec<u8>, SpreadError> {
    let mut read = Vec::new();
    servers.get(layout, &mut read, |_| {}).map(|_| read)
}

fn missing(layout: &Layout) -> Vec<usize> {
    let nodes = layout.nodes.iter().enumerate();
    nodes.filter(|(_, node)| node.version.is_none()).map(|(part, _)| part).collect()
}

/// As many servers die in the middle of a put as the policy bears, wherever they stand.
#[test]
fn a_put_goes_on_without_servers_that_die_and_says_which_parts_are_missing() {
    for (policy, victims) in [
        ("ring:3", &[0, 2][..]),
        ("ring:3", &[1]),
        ("tree:3", &[0]),
        ("flat:3", &[1, 2]),
        ("rs:3+2", &[0, 4]),
        ("rs:3+2,triec", &[1]),
        ("rs:3+2,triec", &[3, 4]),
    ] {
        println!("{policy} without {victims:?}");
        let mut fleet = Fleet::new(5);
        let places = fleet.places.clone();
        let (servers, told) = servers(Duration::from_secs(1));
        let bytes = pattern(2 << 20, 3);
        let mut killed = false;
        let stored = servers.put(&places, &options(policy), &mut &bytes[..], |done| {
            if done >= 1 << 20 && !std::mem::replace(&mut killed, true) {
                victims.iter().for_each(|number| fleet.kill(*number));
            }
        });
        let layout = stored.expect("enough are left");
        assert_eq!(missing(&layout), victims, "{policy}");
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for victim in victims {
            let is_it = |notice: &Notice| {
                matches!(notice, Notice::Lost { part, server, .. }
                    if part == victim && *server == places[*victim])
            };
            assert!(told.iter().any(is_it), "{policy}: {victim} is not in {told:?}");
        }
        assert!(get(&servers, &layout).expect("enough are left") == bytes, "{policy}");
        let states = servers.stat(&layout).expect("a layout");
        let whole = states.iter().filter(|state| **state == NodeState::Whole).count();
        assert_eq!(whole, layout.nodes.len() - victims.len());
        victims.iter().for_each(|number| fleet.start(*number));
        let servers = self::servers(LONG.into()).0;
        let repaired = servers.repair(&layout, &RepairOptions::new(), |_| {}).expect("enough are");
        assert_eq!(repaired.parts.iter().collect::<Vec<_>>(), victims);
        let layout = repaired.layout;
        assert_eq!(missing(&layout), [0; 0]);
        let scrubbed = servers.scrub(&layout, |_| {}).expect("a layout");
        assert!(scrubbed.bad.is_empty() && scrubbed.torn == 0, "{policy}: {scrubbed:?}");
        assert!(get(&servers, &layout).expect("all are there") == bytes, "{policy}");
    }
}

/// A server that stands still keeps its link for a while: it is told of before, and done without
/// after that.
#[test]
fn a_put_goes_on_without_a_server_that_stands_still() {
    let fleet = Fleet::new(3);
    let places = fleet.places.clone();
    for policy in ["ring:3", "rs:2+1"] {
        let (servers, told) = servers(Duration::from_secs(1));
        let bytes = pattern(2 << 20, 7);
        let mut victim = fleet.processes[1].as_ref();
        let stored = servers.put(&places, &options(policy), &mut &bytes[..], |done| {
            if done >= 1 << 20 {
                victim.take().into_iter().for_each(|process| process.signal("STOP"));
            }
        });
        let read = stored.as_ref().map(|layout| get(&servers, layout));
        fleet.processes[1].iter().for_each(|process| process.signal("CONT"));
        assert_eq!(missing(stored.as_ref().expect("two are left")), [1], "{policy}");
        assert!(read.expect("it is stored").expect("two are enough") == bytes, "{policy}");
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let place = |is_it: &dyn Fn(&Notice) -> bool| told.iter().position(is_it);
        let away = place(&|notice| *notice == Notice::Away { server: places[1] });
        let lost = place(&|notice| matches!(notice, Notice::Lost { part: 1, .. }));
        assert!(away.is_some() && away < lost, "{policy}: {told:?}");
    }
}

/// A server that is killed and started again within the time that it may be away has its part.
#[test]
fn a_put_waits_for_a_server_that_is_started_again() {
    for policy in ["ring:3", "tree:3", "flat:3", "rs:2+1", "rs:2+1,triec", "rs:3+0"] {
        println!("{policy}");
        let mut fleet = Fleet::new(3);
        let places = fleet.places.clone();
        let (servers, _) = servers(LONG.into());
        let bytes = pattern(2 << 20, 4);
        let mut at = (1..=3).map(|part| part << 19).collect::<Vec<u64>>();
        let stored = servers.put(&places, &options(policy), &mut &bytes[..], |done| {
            if at.first().is_some_and(|at| done >= *at) {
                at.remove(0);
                let number = at.len();
                fleet.kill(number);
                fleet.start(number);
            }
        });
        let layout = stored.expect("all are there again");
        assert_eq!(missing(&layout), [0; 0], "{policy}");
        let scrubbed = servers.scrub(&layout, |_| {}).expect("a layout");
        assert!(scrubbed.bad.is_empty() && scrubbed.torn == 0, "{policy}: {scrubbed:?}");
        assert!(get(&servers, &layout).expect("all are there") == bytes, "{policy}");
    }
}

/// Starts servers again once the client has told that it waits for one of them; whether it has.
fn start_when_waited_for(fleet: &Mutex<Fleet>, victims: &[usize], told: &Told) -> bool {
    let waits = || {
        let told = told.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().any(|notice| matches!(notice, Notice::Away { .. }))
    };
    let until = Instant::now() + Duration::from(LONG);
    while !waits() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut fleet = fleet.lock().unwrap_or_else(PoisonError::into_inner);
    victims.iter().for_each(|number| fleet.start(*number));
    true
}

/// More servers die than the policy bears: what is stored and what is read waits until they are
/// started again, says so, and goes on.
#[test]
fn a_put_and_a_get_wait_for_servers_without_which_too_few_are_left() {
    for (policy, victims) in [("rs:2+1", &[0, 2][..]), ("ring:3", &[0, 1, 2])] {
        println!("{policy} without {victims:?}");
        let fleet = Mutex::new(Fleet::new(3));
        let places = fleet.lock().unwrap_or_else(PoisonError::into_inner).places.clone();
        let kill_once = |is_killed: &mut bool| {
            if !std::mem::replace(is_killed, true) {
                let mut fleet = fleet.lock().unwrap_or_else(PoisonError::into_inner);
                victims.iter().for_each(|number| fleet.kill(*number));
            }
        };
        let bytes = pattern(2 << 20, 8);
        let (servers, told) = servers(LONG.into());
        let (stored, has_waited) = std::thread::scope(|scope| {
            let starts = scope.spawn(|| start_when_waited_for(&fleet, victims, &told));
            let mut is_killed = false;
            let stored = servers.put(&places, &options(policy), &mut &bytes[..], |done| {
                if done >= 1 << 20 {
                    kill_once(&mut is_killed);
                }
            });
            (stored, starts.join().expect("no panic"))
        });
        let layout = stored.expect("all are there again");
        assert!(has_waited);
        assert_eq!(missing(&layout), [0; 0], "{policy}");

        // Reads are given up after a second, and then the servers are waited for.
        let (servers, told) = servers_by(ClientConfig::new().timeout(Nanos::from_secs(1)));
        let (read, has_waited) = std::thread::scope(|scope| {
            let starts = scope.spawn(|| start_when_waited_for(&fleet, victims, &told));
            let (mut is_killed, mut read) = (false, Vec::new());
            let got = servers.get(&layout, &mut read, |done| {
                if done >= 1 << 20 {
                    kill_once(&mut is_killed);
                }
            });
            (got.map(|_| read), starts.join().expect("no panic"))
        });
        assert!(read.expect("all are there again") == bytes && has_waited, "{policy}");
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(told.iter().any(|notice| matches!(notice, Notice::Back { .. })), "{told:?}");
    }
}

/// They do not come back: the error names one that is missing.
#[test]
fn a_put_and_a_get_end_when_their_patience_does() {
    let mut fleet = Fleet::new(3);
    let places = fleet.places.clone();
    let bytes = pattern(2 << 20, 9);
    let second = Nanos::from_secs(1);
    let impatient = || servers_by(ClientConfig::new().timeout(second).patience(second)).0;
    let layout = servers(LONG.into()).0.put(&places, &options("rs:2+1"), &mut &bytes[..], |_| {});
    let (layout, mut read) = (layout.expect("all are there"), Vec::new());
    let got = impatient().get(&layout, &mut read, |done| {
        if done >= 1 << 20 {
            [1, 2].into_iter().for_each(|number| fleet.kill(number));
        }
    });
    let is_named = |server: SocketAddr| places[1..].contains(&server);
    let Err(SpreadError::TooFew { needed: 2, server, .. }) = got else { panic!("{got:?}") };
    assert!(is_named(server), "{server}");
    assert!(bytes.starts_with(&read) && read.len() >= 1 << 20);
    [1, 2].into_iter().for_each(|number| fleet.start(number));
    let stored = impatient().put(&places, &options("rs:2+1"), &mut &bytes[..], |done| {
        if done >= 1 << 20 {
            [1, 2].into_iter().for_each(|number| fleet.kill(number));
        }
    });
    let Err(SpreadError::TooFew { needed: 2, server, .. }) = stored else { panic!("{stored:?}") };
    assert!(is_named(server), "{server}");
}

/// Whatever is done with a stored file goes on when a server that it needs is killed and started
/// again.
#[test]
fn a_file_is_read_scrubbed_and_repaired_while_servers_are_started_again() {
    let mut fleet = Fleet::new(4);
    let places = fleet.places.clone();
    let bytes = pattern(12 << 20, 6);
    let first = servers(LONG.into()).0;
    let put = |policy: &str| {
        let options = PutOptions::new(policy.parse().expect("a policy"));
        first.put(&places, &options, &mut &bytes[..], |_| {}).expect("all are there")
    };
    let (all_needed, mut spare) = (put("rs:3+0"), put("rs:2+1"));
    let servers = servers(LONG.into()).0;
    let mut read = Vec::new();
    let mut once = Some(1);
    let got = servers.get(&all_needed, &mut read, |_| {
        if let Some(number) = once.take() {
            fleet.kill(number);
            fleet.start(number);
        }
    });
    assert!(got.is_ok_and(|got| got.without.is_empty()) && read == bytes);
    let mut once = Some(2);
    let scrubbed = servers.scrub(&spare, |_| {
        if let Some(number) = once.take() {
            fleet.kill(number);
            fleet.start(number);
        }
    });
    let scrubbed = scrubbed.expect("a layout");
    assert!(scrubbed.bad.is_empty() && scrubbed.torn + scrubbed.lost == 0, "{scrubbed:?}");
    for (by_client, number) in [(false, 1), (true, 2), (true, 0)] {
        let mut once = Some(number);
        let options = RepairOptions::new().anew([0].into_iter().collect()).by_client(by_client);
        let repaired = servers.repair(&spare, &options, |_| {
            if let Some(number) = once.take() {
                fleet.kill(number);
                fleet.start(number);
            }
        });
        let repaired = repaired.unwrap_or_else(|error| panic!("{by_client} {number}: {error}"));
        spare = repaired.layout;
        assert!(get(&servers, &spare).expect("all are there") == bytes);
    }
}

/// Servers that pass nothing on have their parts sent by the client, which says so.
#[test]
fn servers_that_pass_nothing_on_get_their_parts_from_the_client() {
    let folders = tempfile::tempdir().expect("room for folders");
    let start = |number: usize| {
        let folder = folders.path().join(number.to_string());
        Running::start(
            &config(&folder).with(|config| config.service.peers = AllowedPeers::default()),
        )
    };
    let running: Vec<Running> = (0..3).map(start).collect();
    let places: Vec<SocketAddr> = running.iter().map(|server| server.addr).collect();
    for policy in ["ring:3", "tree:3", "rs:2+1,triec", "ring:3,ack:2"] {
        let (servers, told) = servers(LONG.into());
        let bytes = pattern(300_000, 5);
        let stored = servers.put(&places, &options(policy), &mut &bytes[..], |_| {});
        let layout = stored.expect("all are there");
        assert_eq!(missing(&layout), [0; 0], "{policy}");
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_it =
            |notice: &Notice| matches!(notice, Notice::Direct { why } if why.contains("--peers"));
        assert!(told.iter().any(is_it), "{policy}: {told:?}");
        let scrubbed = servers.scrub(&layout, |_| {}).expect("a layout");
        assert!(scrubbed.bad.is_empty() && scrubbed.torn == 0, "{policy}: {scrubbed:?}");
        assert!(get(&servers, &layout).expect("all are there") == bytes, "{policy}");
    }
}

/// Nine servers are killed and started again at random, in one put never more of them than the
/// policy bears. `TOWPATH_PUTS` says how many files are stored, `TOWPATH_SEED` draws others.
#[test]
fn no_put_fails_while_as_many_servers_live_as_the_policy_needs() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (seed, puts) = (number("TOWPATH_SEED").unwrap_or(21), number("TOWPATH_PUTS").unwrap_or(8));
    println!("seed {seed}, {puts} files");
    let mut prng = Prng::new(seed);
    let mut fleet = Fleet::new(9);
    let mut files: Vec<(Layout, Vec<u8>)> = Vec::new();
    let (mut kills, mut degraded) = (0, 0);
    for round in 0..puts {
        let (policy, parts, bears) = [("rs:6+3", 9, 3), ("ring:3", 3, 2)][prng.below(2) as usize];
        let first = prng.below(10 - parts) as usize;
        let used = first..first + parts as usize;
        for dead in used.clone().filter(|number| !fleet.is_alive(*number)).collect::<Vec<_>>() {
            let left = used.clone().filter(|number| !fleet.is_alive(*number)).count();
            if left > bears || prng.below(2) == 0 {
                fleet.start(dead);
            }
        }
        let mut victims: BTreeSet<usize> =
            used.clone().filter(|number| !fleet.is_alive(*number)).collect();
        let bytes = pattern(1 + prng.below(2 << 20) as usize, round);
        let (servers, _) = servers(Duration::from_secs(3));
        let (places, mut next) = (fleet.places[used].to_vec(), prng.below(bytes.len() as u64));
        let stored = servers.put(&places, &options(policy), &mut &bytes[..], |done| {
            while done >= next {
                next += 1 + prng.below(bytes.len() as u64 / 2 + 1);
                let number = first + prng.below(parts) as usize;
                let may_die = victims.len() < bears || victims.contains(&number);
                if !fleet.is_alive(number) {
                    fleet.start(number);
                } else if may_die {
                    kills += 1;
                    victims.insert(number);
                    fleet.kill(number);
                    // At once, or after the put has waited for it in vain.
                    if prng.below(2) == 0 {
                        fleet.start(number);
                    }
                }
            }
        });
        let layout = stored.unwrap_or_else(|error| panic!("round {round}, {policy}: {error}"));
        let missing = missing(&layout);
        assert!(missing.iter().all(|part| victims.contains(&(first + part))), "{missing:?}");
        degraded += usize::from(!missing.is_empty());
        let read = get(&servers, &layout).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(read == bytes, "round {round}");
        files.push((layout, bytes));
    }
    println!("{kills} kills, {degraded} of {puts} files were stored without all parts");
    for dead in (0..9).filter(|number| !fleet.is_alive(*number)).collect::<Vec<_>>() {
        fleet.start(dead);
    }
    let (servers, _) = servers(LONG.into());
    for (layout, bytes) in files {
        let repaired = servers.repair(&layout, &RepairOptions::new(), |_| {}).expect("enough are");
        assert_eq!(missing(&repaired.layout), [0; 0]);
        assert!(get(&servers, &repaired.layout).expect("all are there") == bytes);
    }
}
