//! The map in an etcd that each test starts for itself.

mod common;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Asker, asker, promises, real_time};
use tempfile::TempDir;
use towpath_base::Nanos;
use towpath_cluster::meta::etcd::{Etcd, EtcdClient};
use towpath_cluster::meta::{Expect, LeaseId, MetaError, Op, Outcome, Revision, Transaction};

/// How long an etcd may take to answer after it is started.
const START_LIMIT: Duration = Duration::from_secs(60);

/// One member.
struct Member {
    process: Child,
    arguments: Vec<String>,
    address: String,
}

impl Member {
    fn stop(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it has ended");
    }

    fn start(&mut self) {
        self.process = started(&self.arguments);
    }
}

/// Members that end with the test.
struct Members {
    all: Vec<Member>,
    _folder: TempDir,
}

impl Drop for Members {
    fn drop(&mut self) {
        for member in &mut self.all {
            // It may have been stopped.
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

fn started(arguments: &[String]) -> Child {
    let mut command = Command::new("etcd");
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("`cargo xtask etcd` installs etcd")
}

/// A port that nobody has now, and that no test here gets again. It is below those that systems
/// give out by themselves, so nobody gets it by chance while its member is stopped.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 21_000 + (std::process::id() % 500) as u16 * 20;
    (0..100)
        .map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one of a hundred ports is free")
}

impl Members {
    fn start(number: usize) -> Self {
        let folder = tempfile::tempdir().expect("room for a folder");
        let names: Vec<(String, String)> = (0..number)
            .map(|member| (format!("m{member}"), format!("http://127.0.0.1:{}", port())))
            .collect();
        let peers: Vec<String> =
            names.iter().map(|(name, peer)| format!("{name}={peer}")).collect();
        let all = names.iter().map(|(name, peer)| {
            let address = format!("http://127.0.0.1:{}", port());
            let data = folder.path().join(name);
            let arguments = [
                ("name", name.clone()),
                ("data-dir", data.to_str().expect("text").to_owned()),
                ("listen-client-urls", address.clone()),
                ("advertise-client-urls", address.clone()),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer.clone()),
                ("initial-cluster", peers.join(",")),
            ];
            let arguments: Vec<String> =
                arguments.into_iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
            Member { process: started(&arguments), arguments, address }
        });
        Self { all: all.collect(), _folder: folder }
    }

    fn connect(&self) -> Etcd {
        let begun = Instant::now();
        loop {
            let addresses = self.all.iter().map(|member| &*member.address);
            let found = Etcd::connect(addresses, "towpath/test/").and_then(|etcd| {
                // A member that answers may have no leader yet.
                let mut look = asker(etcd.client(), real_time);
                look.ask(Op::Get { key: "none".into() }).map(|_| etcd)
            });
            match found {
                Ok(etcd) => return etcd,
                Err(error) => assert!(begun.elapsed() < START_LIMIT, "{error}"),
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn with_etcd(test: impl FnOnce(&mut Asker<EtcdClient>)) {
    let members = Members::start(1);
    test(&mut asker(members.connect().client(), real_time));
}

/// A test of what each store promises.
macro_rules! promised {
    ($($name:ident)*) => {
        $(
            #[test]
            #[ignore = "needs etcd: `cargo xtask etcd`"]
            fn $name() {
                with_etcd(|store| promises::$name(store));
            }
        )*
    };
}

promised! {
    a_transaction_is_done_whole_or_refused
    an_entry_says_when_it_was_made_and_changed
    what_no_store_takes_is_refused
    a_list_comes_in_pages_and_in_order
    a_watch_is_told_all_that_changes_under_its_prefix
    entries_end_with_their_lease
    a_lease_that_is_kept_does_not_end
    histories_agree_with_a_model
}

#[test]
#[ignore = "needs etcd: `cargo xtask etcd`"]
fn a_map_keeps_to_its_prefix() {
    let members = Members::start(1);
    let (etcd, address) = (members.connect(), &*members.all[0].address);
    let other = Etcd::connect([address], "towpath/tesu/").expect("it answers");
    let (mut ours, mut theirs) =
        (asker(etcd.client(), real_time), asker(other.client(), real_time));
    let last = theirs.put("a", "theirs");
    let watch = ours.start(Op::Watch { prefix: String::new(), after: Revision(0) });
    let put = ours.put("a", "ours");
    assert!(put > last, "revisions are those of the whole etcd");
    assert_eq!(ours.get("a").expect("it is there").value, b"ours");
    assert_eq!(ours.list("", None, 9).0.len(), 1);
    assert_eq!(ours.next_changed(watch).expect("it goes on").revision, put);
    assert_eq!(theirs.get("a").expect("it is there").value, b"theirs");
}

#[test]
#[ignore = "needs etcd: `cargo xtask etcd`"]
fn a_watch_of_forgotten_changes_says_so() {
    let members = Members::start(1);
    let mut store = asker(members.connect().client(), real_time);
    let revisions: Vec<Revision> = (0..9).map(|n| store.put("a", &n.to_string())).collect();
    let compaction = format!("{{\"revision\":\"{}\"}}", revisions[5].0);
    let path = format!("{}/v3/kv/compaction", members.all[0].address);
    ureq::post(path).send(compaction).expect("it is done");
    let from = |after| Op::Watch { prefix: "a".into(), after };
    let late = store.start(from(revisions[3]));
    assert_eq!(store.next_changed(late), Err(Err(MetaError::Compacted(revisions[4]))));
    let watch = store.start(from(revisions[4]));
    assert_eq!(store.next_changed(watch).expect("that is kept").revision, revisions[5]);
}

#[test]
#[ignore = "needs etcd: `cargo xtask etcd`"]
fn which_lease_has_ended_is_said() {
    with_etcd(|store| {
        let (kept, ended) =
            (store.grant(Nanos::from_secs(600)), store.grant(Nanos::from_secs(600)));
        assert_eq!(store.ask(Op::Revoke(ended)), Ok(Outcome::Revoked));
        let both = Transaction::new().put_leased("a", "", kept).put_leased("b", "", ended);
        assert_eq!(store.ask(Op::Commit(both)), Err(MetaError::NoLease(ended)));
        assert_ne!(kept, LeaseId(0));
        assert_eq!(store.get("a"), None);
    });
}

#[test]
#[ignore = "needs etcd: `cargo xtask etcd`"]
fn a_watch_goes_on_after_etcd_was_killed() {
    let mut members = Members::start(1);
    let etcd = members.connect();
    let mut store = asker(etcd.client(), real_time);
    let first = store.put("a", "0");
    let watch = store.start(Op::Watch { prefix: "a".into(), after: Revision(0) });
    assert_eq!(store.next_changed(watch).expect("it goes on").revision, first);
    for round in 0..3 {
        members.all[0].stop();
        let refused = store.ask(Op::Commit(Transaction::new().put("a", "not done")));
        // A connection that is kept breaks only when something was sent.
        let is_said = matches!(refused, Err(MetaError::Unavailable(_) | MetaError::Unknown(_)));
        assert!(is_said, "{refused:?}");
        members.all[0].start();
        let begun = Instant::now();
        let put = loop {
            let put = Transaction::new().put("a", round.to_string());
            match store.ask(Op::Commit(put)) {
                Ok(Outcome::Committed(revision)) => break revision,
                other => assert!(begun.elapsed() < START_LIMIT, "{other:?}"),
            }
            thread::sleep(Duration::from_millis(50));
        };
        // Where an answer was lost, there are more than one.
        while store.next_changed(watch).expect("it goes on").revision < put {}
    }
}

#[test]
#[ignore = "needs etcd: `cargo xtask etcd`"]
fn two_of_three_members_are_enough() {
    let mut members = Members::start(3);
    let etcd = members.connect();
    let mut store = asker(etcd.client(), real_time);
    let watch = store.start(Op::Watch { prefix: "n".into(), after: Revision(0) });
    let mut last = store.put("n", "0");
    for member in 0..3 {
        members.all[member].stop();
        let begun = Instant::now();
        let mut number = member + 1;
        while number < member + 4 {
            // Done or not, a check tells: what was changed has another revision.
            let add = Transaction::new().check("n", Expect::ChangedAt(last));
            match store.ask(Op::Commit(add.put("n", number.to_string()))) {
                Ok(Outcome::Committed(revision)) => {
                    last = revision;
                    number += 1;
                }
                Ok(Outcome::Refused { found, .. }) => last = found.expect("nobody deletes it"),
                other => assert!(begun.elapsed() < START_LIMIT, "{other:?}"),
            }
        }
        while store.next_changed(watch).expect("it goes on").revision < last {}
        members.all[member].start();
        // Until all three are there again: it takes part in what is decided next.
        let address = members.all[member].address.clone();
        let begun = Instant::now();
        loop {
            let alone = Etcd::connect([&*address], "towpath/test/").map(|etcd| etcd.client());
            if alone.is_ok_and(|client| {
                let found = asker(client, real_time).ask(Op::Get { key: "n".into() });
                matches!(found, Ok(Outcome::Got(Some(entry))) if entry.changed >= last)
            }) {
                break;
            }
            assert!(begun.elapsed() < START_LIMIT, "it does not come back");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn an_etcd_that_is_not_there_is_an_error() {
    let none = format!("http://127.0.0.1:{}", port());
    let refused = Etcd::connect([&*none], "").expect_err("nobody is there");
    assert!(matches!(refused, MetaError::Unavailable(_)), "{refused}");
    for address in ["127.0.0.1:2379", "https://127.0.0.1:2379", ""] {
        let refused = Etcd::connect([address], "").expect_err("it is no address");
        assert!(matches!(refused, MetaError::Invalid(_)), "{refused}");
    }
    let refused = Etcd::connect(Vec::<String>::new(), "").expect_err("there is none");
    assert!(matches!(refused, MetaError::Invalid(_)), "{refused}");
}

#[test]
fn what_is_no_etcd_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("its address"));
    let answers: [&[u8]; 6] = [
        b"",
        b"no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnone",
        b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"etcdserver\":",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    ];
    let server = thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = std::io::Read::read(&mut stream, &mut [0; 4_096]);
            let _ = std::io::Write::write_all(&mut stream, answer);
        }
    });
    for answer in answers {
        let refused = Etcd::connect([&*address], "").expect_err("it is no etcd");
        let is_said = matches!(refused, MetaError::Unavailable(_) | MetaError::Damaged(_));
        assert!(is_said, "{refused} for {answer:?}");
    }
    server.join().expect("it ends");
}
