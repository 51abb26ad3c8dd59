//! Random operations against a plain array.

use towpath_base::Prng;
use towpath_disk::{
    Buffers, Disk, Done, DurableWrites, Limits, Op, PAGE_BYTES, PageNumber, ReadPages, WritePages,
};
use towpath_memory::Pool;

use crate::cases::{LONG, finish, full, one, pool, read};
use crate::rigs::Rig;

/// Few enough that operations meet the same pages again and again.
const PAGES: u64 = 200;

/// Operations of one run.
const STEPS: u64 = 1_500;

/// What a page holds: each version of it is of another pattern.
fn pattern(page: u64, version: u64) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    if version > 0 {
        Prng::new(page << 32 | version).fill(&mut bytes);
    }
    bytes
}

struct Model {
    prng: Prng,
    pool: Pool,
    /// The version of each page, zero for zeros.
    versions: Vec<u64>,
    next_version: u64,
    /// The versions that the pages of operations under way have afterwards, by tag.
    under_way: Vec<(u64, u64, Vec<u64>)>,
}

impl Model {
    fn is_busy(&self, at: u64, count: u64) -> bool {
        let meets = |other: &(u64, u64, Vec<u64>)| {
            at < other.1 + other.2.len() as u64 && other.1 < at + count
        };
        self.under_way.iter().any(meets)
    }

    /// Lengths of buffers for one operation, pages.
    fn shape(&mut self) -> Vec<u32> {
        (0..self.prng.between(1, 4)).map(|_| self.prng.between(1, 4) as u32).collect()
    }

    fn next_op(&mut self, limits: Limits) -> Option<(Op, u64, Vec<u64>)> {
        let shape = self.shape();
        let count: u32 = shape.iter().sum();
        let at = self.prng.below(PAGES - u64::from(count) + 1);
        if self.is_busy(at, u64::from(count)) || self.pool.free() < shape.len() {
            return None;
        }
        let range = at as usize..at as usize + count as usize;
        let now = self.versions[range.clone()].to_vec();
        let page_at = PageNumber(at);
        match self.prng.below(20) {
            0 => Some((Op::Flush, at, Vec::new())),
            1 if limits.can_discard => {
                let op = Op::Discard { at: page_at, count: u64::from(count) };
                Some((op, at, vec![0; count as usize]))
            }
            2..=9 => {
                let part = |pages| ReadPages::part(full(&self.pool, 0xcc), 0..pages);
                let into = shape.iter().map(|pages| part(*pages).expect("it fits")).collect();
                Some((Op::Read { at: page_at, into }, at, now))
            }
            _ => {
                self.next_version += 1;
                let mut from = Buffers::new();
                let mut page = at;
                for pages in shape {
                    let mut buf = full(&self.pool, 0);
                    for place in buf.chunks_exact_mut(PAGE_BYTES).take(pages as usize) {
                        place.copy_from_slice(&pattern(page, self.next_version));
                        page += 1;
                    }
                    from.push(WritePages::part(buf, 0..pages).expect("it fits"));
                }
                let after = vec![self.next_version; count as usize];
                let is_durable =
                    limits.durable_writes != DurableWrites::None && self.prng.chance(0.3);
                Some((Op::Write { at: page_at, from, is_durable }, at, after))
            }
        }
    }

    fn take(&mut self, done: Done) {
        done.outcome.expect("it succeeds");
        let place = self.under_way.iter().position(|one| one.0 == done.tag).expect("once");
        let (_, at, after) = self.under_way.swap_remove(place);
        if let Op::Read { into, .. } = &done.op {
            let pages = into.iter().flat_map(|pages| pages.chunks_exact(PAGE_BYTES));
            for ((page, version), bytes) in (at..).zip(&after).zip(pages) {
                assert!(bytes == pattern(page, *version), "page {page}, version {version}");
            }
        }
        self.versions[at as usize..at as usize + after.len()].copy_from_slice(&after);
    }

    fn check_all(&self, disk: &mut dyn Disk) {
        let bytes = read(disk, 0, PAGES as usize);
        for (page, bytes) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
            let version = self.versions[page];
            assert!(bytes == pattern(page as u64, version), "page {page}, version {version}");
        }
    }
}

pub(crate) fn random_operations_give_what_a_plain_array_gives(rig: &dyn Rig) {
    let seed = 0x0d15_c001;
    println!("seed {seed}");
    let mut model = Model {
        prng: Prng::new(seed),
        pool: pool(4, 40),
        versions: vec![0; PAGES as usize],
        next_version: 0,
        under_way: Vec::new(),
    };
    let mut disk = rig.open().expect("it opens");
    let mut done = Vec::new();
    for tag in 0..STEPS {
        if let Some((op, at, after)) = model.next_op(disk.limits()) {
            match disk.submit(tag, op) {
                Ok(()) => model.under_way.push((tag, at, after)),
                Err(refused) => assert_eq!(disk.in_flight(), disk.depth(), "{refused}"),
            }
        }
        match model.prng.below(4) {
            0 => disk.wait(LONG, &mut done),
            1 => disk.poll(&mut done),
            _ => Ok(0),
        }
        .expect("the system speaks of it");
        done.drain(..).for_each(|done| model.take(done));
    }
    finish(&mut *disk).into_iter().for_each(|done| model.take(done));
    one(&mut *disk, Op::Flush);
    model.check_all(&mut *disk);
    drop(disk);
    model.check_all(&mut *rig.open().expect("it opens again"));
}
