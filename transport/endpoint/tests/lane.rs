//! One-sided operations in virtual time: what they do, what is refused, and what becomes of them
//! when the queue pair, the grant or the link is lost.

mod lab;

use lab::Lab;
use towpath_base::{Nanos, Prng};
use towpath_memory::Pool;
use towpath_proto::{Denied, Grant, OpError, OpOutcome, Rights};
use towpath_sim::FaultPlan;
use towpath_transport::{EndpointConfig, Event, LaneError, OpOptions, Place, Served, SharedMemory};
use towpath_verbs::{Device as _, QpState};

const MEMORY_BYTES: usize = 1 << 20;

fn lab(seed: u64, plan: &FaultPlan) -> Lab {
    Lab::new(seed, plan, &EndpointConfig::new().links_max(1).send_pools(&[(64 << 10, 300)]))
}

impl Lab {
    /// Lets the far end grant memory, and the near end learn of it.
    fn share(&mut self, rights: Rights) -> (SharedMemory, Grant) {
        let memory = SharedMemory::new(MEMORY_BYTES).expect("memory for a test");
        let range = memory.whole();
        self.far.grant(self.far_link, &memory, range, rights).expect("room");
        let mut told = None;
        self.run(|near, _, event| {
            if let Event::Granted { grant, .. } = event {
                assert!(near && told.is_none());
                told = Some(grant);
            }
            told.is_some()
        });
        (memory, told.expect("it was told"))
    }

    /// What the near end did to the far end's memory.
    fn served(&self) -> Served {
        self.far.served(self.far_link).expect("the device counts")
    }

    /// The same, which has not become less.
    fn served_since(&self, before: Served) -> Served {
        let served = self.served();
        assert!(is_within(&before, &served), "{before:?} {served:?}");
        served
    }

    fn place(&self, grant: &Grant, offset: u32) -> Place {
        Place { link: self.near_link, grant: grant.id, offset }
    }

    /// Asks for a READ each fourth time, and else for an addition to the first word.
    fn ask(&mut self, grant: &Grant, token: u64) {
        let options = OpOptions::new().token(token);
        if token % 4 == 3 {
            let buf = self.near.alloc(4096).expect("a free buffer");
            self.near.read(self.place(grant, 1024), 4096, buf, options).expect("allowed");
        } else {
            self.near.fetch_add(self.place(grant, 0), 1, options).expect("allowed");
        }
    }

    /// What the next operation came to.
    fn done(&mut self) -> (u64, OpOutcome, Option<u64>, Option<Vec<u8>>) {
        let mut found = None;
        self.run(|_, _, event| {
            if let Event::OpDone { token, outcome, word, buf, .. } = event {
                assert!(found.is_none(), "one at a time");
                found = Some((token, outcome, word, buf.map(|buf| buf.to_vec())));
            }
            found.is_some()
        });
        found.expect("it has ended")
    }
}

fn is_within(before: &Served, after: &Served) -> bool {
    before.reads <= after.reads
        && before.read_bytes <= after.read_bytes
        && before.reads_again <= after.reads_again
        && before.read_again_bytes <= after.read_again_bytes
        && before.writes <= after.writes
        && before.write_bytes <= after.write_bytes
        && before.atomics <= after.atomics
}

#[test]
fn what_is_written_is_read_and_words_change_as_they_should() {
    let mut lab = lab(1, &FaultPlan::none());
    let (memory, grant) = lab.share(Rights::ALL);
    assert_eq!((grant.byte_len as usize, grant.rights), (MEMORY_BYTES, Rights::ALL));
    let bytes: Vec<u8> = (0..50_000u32).map(|i| (i * 7) as u8).collect();
    let buf = lab.near.copy(&bytes).expect("a free buffer");
    let options = OpOptions::new();
    lab.near.write(lab.place(&grant, 4096), buf, options.token(1)).expect("allowed");
    let (token, outcome, _, buf) = lab.done();
    assert_eq!((token, outcome), (1, OpOutcome::Executed));
    assert_eq!(buf.as_deref(), Some(&bytes[..]), "the buffer comes back as it was");
    let mut there = vec![0; bytes.len()];
    memory.read(4096, &mut there).expect("it fits");
    assert_eq!(there, bytes);

    let buf = lab.near.alloc(bytes.len()).expect("a free buffer");
    let length = bytes.len() as u32 - 3;
    lab.near.read(lab.place(&grant, 4099), length, buf, options.token(2)).expect("allowed");
    let (token, outcome, _, buf) = lab.done();
    assert_eq!((token, outcome), (2, OpOutcome::Executed));
    assert_eq!(buf.as_deref(), Some(&bytes[3..]));

    lab.near.write_word(lab.place(&grant, 8), 40, options).expect("allowed");
    assert_eq!(lab.done().1, OpOutcome::Executed);
    lab.near.fetch_add(lab.place(&grant, 8), 2, options).expect("allowed");
    assert_eq!(lab.done().2, Some(40));
    lab.near.cmp_swap(lab.place(&grant, 8), (42, 7), options).expect("allowed");
    assert_eq!(lab.done().2, Some(42));
    lab.near.cmp_swap(lab.place(&grant, 8), (42, 9), options).expect("allowed");
    assert_eq!(lab.done().2, Some(7), "the comparison failed");
    let word = memory.word(8).expect("aligned").load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(word, 7);
    let Served { reads, read_bytes, writes, write_bytes, atomics, .. } = lab.served();
    assert_eq!((read_bytes, writes, write_bytes, atomics), (49_997, 2, 50_008, 3));
    assert!(reads >= 1);
}

#[test]
fn what_a_grant_does_not_allow_is_refused_before_it_is_sent() {
    let mut lab = lab(2, &FaultPlan::none());
    let (_memory, grant) = lab.share(Rights::READ);
    let options = OpOptions::new();
    let rights = Err(LaneError::Op(OpError::Rights { rights: Rights::READ }));
    assert_eq!(lab.near.fetch_add(lab.place(&grant, 0), 1, options), rights);
    assert_eq!(lab.near.write_word(lab.place(&grant, 0), 1, options), rights);
    let byte_len = grant.byte_len;
    for (offset, length) in [(byte_len, 1), (byte_len - 1, 2), (0, byte_len + 1), (u32::MAX, 9)] {
        let buf = lab.near.alloc(64).expect("a free buffer");
        let refused = lab.near.read(lab.place(&grant, offset), length, buf, options);
        let error = refused.expect_err("it leaves the grant").error;
        let too_short = matches!(error, LaneError::BufferTooShort { .. });
        let range = LaneError::Op(OpError::Range { byte_len });
        assert!(error == range || too_short && length > 64, "{offset} {length}: {error}");
    }
    let unknown = Place { grant: towpath_proto::GrantId(77), ..lab.place(&grant, 0) };
    let refused = lab.near.write_word(unknown, 1, options);
    assert_eq!(refused, Err(LaneError::Op(OpError::NoSuchGrant)));
}

#[test]
fn what_is_revoked_is_reached_no_more_and_what_waits_for_it_is_denied() {
    let mut lab = lab(3, &FaultPlan::none());
    let (memory, grant) = lab.share(Rights::ALL);
    let options = OpOptions::new();
    lab.near.write_word(lab.place(&grant, 0), 1, options).expect("allowed");
    assert_eq!(lab.done().1, OpOutcome::Executed);
    assert!(lab.far.revoke(lab.far_link, grant.id));
    assert!(!lab.far.revoke(lab.far_link, grant.id), "once");
    // The near end does not know yet.
    lab.near.write_word(lab.place(&grant, 0), 2, options.token(2)).expect("as far as is known");
    let (mut revoked, mut ended) = (false, None);
    lab.run(|near, _, event| {
        match event {
            Event::Revoked { grant: id, .. } => {
                assert!(near && id == grant.id);
                revoked = true;
            }
            Event::OpDone { outcome, .. } => ended = Some(outcome),
            _ => {}
        }
        revoked && ended.is_some()
    });
    let denied = [Denied::Device, Denied::Revoked].map(|why| Some(OpOutcome::Denied(why)));
    assert!(denied.contains(&ended), "{ended:?}");
    let word = memory.word(0).expect("aligned").load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(word, 1, "nothing has reached it");
    let refused = lab.near.write_word(lab.place(&grant, 0), 3, options);
    assert_eq!(refused, Err(LaneError::Op(OpError::NoSuchGrant)));

    // Another grant of the same memory works, on a queue pair that was made anew if need be.
    let range = 0..64;
    let id = lab.far.grant(lab.far_link, &memory, range, Rights::ALL).expect("room");
    lab.run(|_, _, event| matches!(event, Event::Granted { .. }));
    let place = Place { link: lab.near_link, grant: id, offset: 0 };
    lab.near.fetch_add(place, 1, options).expect("allowed");
    let (_, outcome, word, _) = lab.done();
    assert_eq!((outcome, word), (OpOutcome::Executed, Some(1)));
}

/// Faults under which RC has to repeat.
fn faults() -> FaultPlan {
    FaultPlan::none().drop(0.01).duplicate(0.01, Nanos::from_micros(100)).reorder(
        0.01,
        4,
        Nanos::from_micros(50),
    )
}

/// Operations of all kinds under faults, while queue pairs die at both ends.
fn survive(seed: u64, count: u64, deaths: u64) {
    let mut lab = lab(seed, &faults());
    let (memory, grant) = lab.share(Rights::ALL);
    memory.write(1024, &[9; 8192]).expect("it fits");
    let mut prng = Prng::new(seed);
    let (mut next, mut ended, mut live) = (0, 0, 0);
    let (mut executed, mut unknown, mut reads, mut lost) = (0, 0, 0, 0);
    let mut seen = vec![0u32; count as usize];
    let mut fetched = Vec::new();
    let every = count / (deaths + 1);
    let (mut deaths_left, mut served) = (deaths, lab.served());
    while ended < count {
        while next < count && live < 32 {
            lab.ask(&grant, next);
            (next, live) = (next + 1, live + 1);
        }
        let mut busy = false;
        for is_near in [true, false] {
            let end = if is_near { &mut lab.near } else { &mut lab.far };
            busy |= end.turn(|_, event| {
                let Event::OpDone { token, outcome, word, buf, .. } = event else { return };
                seen[token as usize] += 1;
                (ended, live) = (ended + 1, live - 1);
                match (outcome, token % 4 == 3) {
                    (OpOutcome::Executed, true) => {
                        reads += 1;
                        let buf = buf.expect("a READ has a buffer");
                        assert!(buf.len() == 4096 && buf.iter().all(|&byte| byte == 9));
                    }
                    (OpOutcome::Executed, false) => {
                        executed += 1;
                        fetched.push(word.expect("what it was"));
                    }
                    (OpOutcome::Unknown, false) => unknown += 1,
                    (outcome, is_read) => panic!("seed {seed}: {outcome:?}, read: {is_read}"),
                }
            });
        }
        served = lab.served_since(served);
        if deaths_left > 0 && ended >= every * (deaths - deaths_left + 1) {
            deaths_left -= 1;
            let (end, link) = match prng.chance(0.5) {
                true => (&mut lab.near, lab.near_link),
                false => (&mut lab.far, lab.far_link),
            };
            if let Some(qp_num) = end.lane(link).and_then(|lane| lane.qp_num) {
                lost += 1;
                end.device_mut().modify_qp(qp_num, QpState::Err).expect("it is there");
            }
        }
        if !busy {
            lab.pass();
        }
    }
    assert!(seen.iter().all(|&times| times == 1), "seed {seed}: one outcome each");
    let word = memory.word(0).expect("aligned").load(std::sync::atomic::Ordering::Relaxed);
    println!("seed {seed}: word {word}, {executed} executed, {unknown} unknown, {reads} READs");
    assert!((executed..=executed + unknown).contains(&word), "seed {seed}");
    assert_eq!(served.atomics, word, "seed {seed}: each is counted, on whatever queue pair");
    let read = served.read_bytes - served.read_again_bytes;
    assert!(read >= reads * 4096 && read <= (reads + lost * 32) * 4096, "seed {seed}: {served:?}");
    assert_eq!((served.writes, served.write_bytes), (0, 0));
    assert_eq!(lab.near.served(lab.near_link), Some(Served::default()), "nobody asked of it");
    assert_eq!(reads, count / 4, "seed {seed}: READs are repeated");
    assert!(unknown <= lost * 32, "seed {seed}");
    fetched.sort_unstable();
    let before = fetched.len();
    fetched.dedup();
    assert_eq!(fetched.len(), before, "seed {seed}: each addition saw another value");
    let census = lab.near.buffers();
    assert_eq!(census.send_free, census.send_all, "seed {seed}: buffers are home");
}

#[test]
fn additions_are_carried_out_once_or_not_at_all_while_queue_pairs_die() {
    for seed in 1..=10 {
        survive(seed, 2_000, 8);
    }
}

#[test]
fn every_operation_has_its_outcome_before_the_link_is_down() {
    let mut lab = lab(5, &FaultPlan::none());
    let (memory, grant) = lab.share(Rights::ALL);
    for token in 0..100 {
        let options = OpOptions::new().token(token);
        if token % 2 == 0 {
            let buf = lab.near.alloc(4096).expect("a free buffer");
            lab.near.read(lab.place(&grant, 0), 4096, buf, options).expect("allowed");
        } else {
            lab.near.fetch_add(lab.place(&grant, 0), 1, options).expect("allowed");
        }
    }
    lab.near.flush();
    let link = lab.far_link;
    lab.far.close(link);
    let (mut outcomes, mut down, mut served) = (0, 0, None);
    lab.run(|near, end, event| {
        match event {
            Event::OpDone { .. } => {
                assert!(near && down & 1 == 0, "before the link is down");
                outcomes += 1;
            }
            Event::LinkDown { .. } => {
                down |= if near { 1 } else { 2 };
                served = if near { served } else { end.served(link) };
            }
            _ => {}
        }
        down == 3
    });
    assert_eq!(outcomes, 100);
    let word = memory.word(0).expect("aligned").load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(served.map(|served| served.atomics), Some(word), "told with the end of the link");
    lab.far.turn(|_, _| {});
    assert_eq!(lab.far.served(link), None);
    let census = lab.near.buffers();
    assert_eq!(census.send_free, census.send_all, "buffers are home");
}

#[test]
fn what_is_late_is_given_up_and_has_not_happened() {
    let mut lab = lab(6, &FaultPlan::none());
    let (memory, grant) = lab.share(Rights::ALL);
    // More than the window: some wait, and their time is over before it comes.
    let soon = lab.near.now() + Nanos::from_micros(30);
    for token in 0..200 {
        let options = OpOptions::new().token(token).deadline(soon);
        lab.near.fetch_add(lab.place(&grant, 0), 1, options).expect("allowed");
    }
    let (mut executed, mut late) = (0, 0);
    lab.run(|_, _, event| {
        if let Event::OpDone { outcome, .. } = event {
            match outcome {
                OpOutcome::Executed => executed += 1,
                OpOutcome::NotExecuted => late += 1,
                other => panic!("{other:?}"),
            }
        }
        executed + late == 200
    });
    assert!(executed > 0 && late > 0, "{executed} {late}");
    let word = memory.word(0).expect("aligned").load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(word, executed);
}

/// It would be asked of the device for ever otherwise, and each time cost the lane its queue pair.
#[test]
fn an_operation_whose_buffer_the_device_does_not_know_any_more_ends_and_others_go_on() {
    let mut lab = lab(7, &FaultPlan::none());
    let (_memory, grant) = lab.share(Rights::ALL);
    let options = OpOptions::new();
    lab.near.fetch_add(lab.place(&grant, 0), 1, options).expect("allowed");
    assert_eq!(lab.done().1, OpOutcome::Executed);
    let qp_num = lab.near.lane(lab.near_link).and_then(|lane| lane.qp_num);
    let own = Pool::with_count(4096, 1).expect("memory for a test");
    lab.near.register(own.region()).expect("room");
    let buf = own.take().expect("one");
    lab.near.read(lab.place(&grant, 0), 4096, buf, options.token(1)).expect("allowed");
    lab.near.deregister(own.region()).expect("it is there");
    let (token, outcome, ..) = lab.done();
    assert_eq!((token, outcome), (1, OpOutcome::Denied(Denied::Device)));
    assert_eq!(own.free(), 1, "the buffer is home");
    lab.near.fetch_add(lab.place(&grant, 0), 1, options).expect("allowed");
    assert_eq!(lab.done().2, Some(1));
    let lane = lab.near.lane(lab.near_link);
    assert_eq!(lane.and_then(|lane| lane.qp_num), qp_num, "on the same queue pair");
}
