//! What the demo makes of bytes that are not as they were sent.

use clap::Parser as _;

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
        media: SimMedia::new(args.seed),
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

#[test]
fn a_slice_that_is_damaged_on_the_disk_stops_the_demo() {
    let source = Source::generated(3, 1 << 20);
    let (args, interrupt) = (args(&[]), Interrupt::default());
    let mut ground = ground(&args, &interrupt);
    let mut session = ground.start().expect("a server");
    let pipeline = Pipeline { depth: 4, op_bytes: 16 << 10 };
    let mut journey = Journey::new(&source, pipeline, Prng::new(1));
    journey.put(&mut session).expect("stored");
    let mut slice = vec![0; 4096];
    source.fill(9 * 4096, &mut slice).expect("there");
    let media = &ground.media;
    let found = towpath_chunkserver::store::Media::list(media).expect("names");
    let damaged = found.iter().any(|name| {
        use towpath_chunkserver::store::Media as _;
        let file = media.open(name).expect("there");
        let byte_len = media.len(&file).expect("known");
        let mut page = vec![0; 4096];
        (0..byte_len / 4096).any(|number| {
            media.read_at(&file, number * 4096, &mut page).expect("readable");
            let hit = page == slice;
            if hit {
                media.write_at(&file, number * 4096 + 100, &[!page[100]]).expect("writable");
            }
            hit
        })
    });
    assert!(damaged, "the slice is on the disk");
    let said = journey.get(&mut session).expect_err("never served").to_string();
    assert!(said.contains("slice 9 ") && said.contains("damaged"), "{said}");
}
