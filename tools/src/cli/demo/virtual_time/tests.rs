//! What the demo makes of bytes that are not as they were sent.

use std::time::Duration;

use clap::Parser as _;
use towpath_disk::{Disk as _, Op, PAGE_BYTES, PageNumber, ReadPages};
use towpath_memory::Pool;

use super::*;
use crate::cli::args::{Args, Command};

fn args(words: &[&str]) -> DemoArgs {
    let words = ["towpath", "demo", "--virtual"].iter().chain(words);
    match Args::try_parse_from(words).expect("sound flags").command {
        Command::Demo(args) => args,
        other => panic!("{other:?}"),
    }
}

fn ground<'a>(args: &'a DemoArgs, interrupt: &'a Interrupt) -> Ground<'a> {
    let plan = FaultPlan::none().drop(args.loss());
    Ground {
        args,
        scene: Rc::new(RefCell::new(Scene { world: World::new(args.seed), server: None })),
        medium: Medium::new(args.seed, DISK_PAGES),
        near: FaultControl::new(plan.clone()),
        far: FaultControl::new(plan),
        interrupt,
        lives: 0,
    }
}

#[test]
fn one_byte_that_differs_from_the_input_is_found_where_it_is() {
    let file = tempfile::NamedTempFile::new().expect("room");
    let mut bytes = vec![7; 300_000];
    std::fs::write(file.path(), &bytes).expect("written");
    let source = Source::open(file.path()).expect("readable");
    let (args, interrupt) = (args(&[]), Interrupt::default());
    let mut ground = ground(&args, &interrupt);
    let mut session = ground.start().expect("a server");
    let pipeline = Pipeline { depth: 4, op_bytes: 16 << 10 };
    let mut journey = Journey::new(&source, pipeline, Prng::new(1));
    journey.put(&mut session).expect("stored");
    journey.get(&mut session).expect("read");
    assert_eq!(journey.changed_at, None);

    bytes[200_000] ^= 1;
    std::fs::write(file.path(), &bytes).expect("written");
    journey.get(&mut session).expect("read");
    let changed_at = journey.changed_at.expect("found");
    assert!((200_000 - (56 << 10)..=200_000).contains(&changed_at), "{changed_at}");

    journey.changed_at = None;
    ground.stop(&mut session).expect("a clean stop");
    let mut session = ground.start().expect("the same store");
    let sampled = journey.sample(&mut session).expect("read");
    assert_eq!(sampled, 300_000, "a small input is read again whole");
    assert!(journey.changed_at.is_some());
    journey.clean_up(&mut session).expect("removed");
    assert!(session.list(None).expect("listed").chunks.is_empty());
}

/// The page of a disk that has these bytes, found in a copy, since the store has the disk open.
fn page_with(medium: &Medium, bytes: &[u8]) -> Option<PageNumber> {
    let mut disk = medium.fork(1).open(1).expect("nobody has the copy open");
    let pool = Pool::with_count(PAGE_BYTES, 1).expect("memory");
    let mut done = Vec::new();
    (0..DISK_PAGES).map(PageNumber).find(|at| {
        let page = ReadPages::part(pool.take().expect("it came back"), 0..1).expect("one page");
        disk.submit(0, Op::read(*at, page)).expect("one at a time");
        disk.wait(Duration::from_secs(1), &mut done).expect("it always speaks");
        let Some(Op::Read { into, .. }) = done.pop().map(|done| done.op) else { return false };
        into[0][..] == *bytes
    })
}

#[test]
fn a_slice_that_is_damaged_on_the_disk_stops_the_demo() {
    let source = Source::generated(3, 1 << 20);
    let (args, interrupt) = (args(&[]), Interrupt::default());
    let mut ground = ground(&args, &interrupt);
    let mut session = ground.start().expect("a server");
    // Smaller writes would be in memory, and in the log.
    let pipeline = Pipeline { depth: 4, op_bytes: 64 << 10 };
    let mut journey = Journey::new(&source, pipeline, Prng::new(1));
    journey.put(&mut session).expect("stored");
    let mut slice = vec![0; 4096];
    source.fill(9 * 4096, &mut slice).expect("there");
    let at = page_with(&ground.medium, &slice).expect("the slice is on the disk");
    ground.medium.flip_bit(at.byte_offset() + 100);
    let said = journey.get(&mut session).expect_err("never served").to_string();
    assert!(said.contains("slice 9 ") && said.contains("damaged"), "{said}");
}
