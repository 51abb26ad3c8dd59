//! What clients over any transport do, and what must come of it.

use super::linear::{Deed, Op, check};
use super::lossy::Lossy;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use towpath_base::Prng;
use towpath_kv::When;
use towpath_kv::client::{Client, ClientConfig, ClientError, Transport};
use towpath_kv::wire::{Failure, Listing};

/// Far longer than anything takes.
pub const SOON: Duration = Duration::from_secs(60);

/// Each call, and what comes of it, with a value of so many bytes.
pub fn use_all(transport: impl Transport, value_bytes: usize) {
    let shown = format!("{transport:?}");
    let mut client = Client::new(transport, ClientConfig::default());
    let mut run = || -> Result<(), ClientError> {
        client.ping()?;
        client.reset()?;
        assert_eq!(client.get(b"k")?, None);
        client.set(b"k", b"v")?;
        assert_eq!(client.get(b"k")?, Some(b"v".to_vec()));
        assert!(!client.set_if(b"k", b"w", When::Absent, 0)?);
        let long = vec![7; value_bytes];
        client.set(b"long", &long)?;
        assert_eq!(client.get(b"long")?.as_deref(), Some(&long[..]));
        assert!(client.del(b"long")? && !client.del(b"long")?);
        assert_eq!(client.incr(b"n", 5)?, 5);
        assert!(matches!(client.incr(b"k", 1), Err(ClientError::Refused(Failure::NotANumber))));
        let dumped = client.dump()?;
        let listing = Listing::parse(&dumped)?;
        assert_eq!((listing.keys, listing.entries().count()), (2, 2));
        let option = client.set_option(b"colour", b"red");
        assert!(matches!(option, Err(ClientError::Refused(Failure::BadOption))));
        Ok(())
    };
    run().unwrap_or_else(|error| panic!("{error} over {shown}"));
    assert_eq!(client.stats().repeated, 0, "{shown}");
    client.exit().expect("a farewell");
}

/// Repeats soon, since requests and replies are lost.
pub const IMPATIENT: ClientConfig =
    ClientConfig { repeat_after: Duration::from_millis(20), repeat_least: None, timeout: SOON };

/// A deed of a client, done for certain.
fn deed<T: Transport>(client: &mut Client<T>, key: &[u8], prng: &mut Prng, fresh: i64) -> Deed {
    let text = fresh.to_string();
    let number = |value: Vec<u8>| String::from_utf8(value).expect("text").parse().expect("number");
    let mut run = || -> Result<Deed, ClientError> {
        Ok(match prng.below(5) {
            0 => {
                client.set(key, text.as_bytes())?;
                Deed::Set(fresh)
            }
            1 => {
                let is_put = client.set_if(key, text.as_bytes(), When::Absent, 0)?;
                Deed::SetAbsent(fresh, is_put)
            }
            2 => Deed::Del(client.del(key)?),
            3 => Deed::Incr(client.incr(key, 1)?),
            _ => Deed::Get(client.get(key)?.map(number)),
        })
    };
    run().expect("in time")
}

/// Eight clients at a time; what each saw of each key.
pub fn histories<T: Transport + 'static>(
    connect: impl Fn(u64) -> T + Sync,
    (loss, seed): (f64, u64),
) -> BTreeMap<u64, Vec<Op>> {
    const OPS: u64 = 150;
    let clock = AtomicU64::new(0);
    let work = |number: u64| {
        let mut prng = Prng::new(seed << 8 | number);
        let lossy = Lossy::new(connect(number), loss, prng.next_u64());
        let mut client = Client::new(lossy, IMPATIENT);
        let ops = (0..OPS).map(|op| {
            let key = prng.below(3);
            let fresh = ((number * OPS + op + 1) * 1_000_000) as i64;
            let begin = clock.fetch_add(1, SeqCst);
            let deed = deed(&mut client, &key.to_le_bytes(), &mut prng, fresh);
            (key, Op { deed, begin, end: Some(clock.fetch_add(1, SeqCst)) })
        });
        ops.collect::<Vec<_>>()
    };
    let mut found: BTreeMap<u64, Vec<Op>> = BTreeMap::new();
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || work(n))).collect();
        for (key, op) in threads.into_iter().flat_map(|t| t.join().expect("no panic")) {
            found.entry(key).or_default().push(op);
        }
    });
    found
}

pub fn assert_linear(found: BTreeMap<u64, Vec<Op>>, shown: impl Debug) {
    for (key, history) in found {
        assert_eq!(check(history), Ok(()), "key {key} over {shown:?}");
    }
}
