//! The rules of additions: each is carried out once, or not at all.

use super::area::{self, FIELD_BITS, FIELD_WORDS, FIELDS_PER_WORD};
use super::broken::Broken;
use towpath_transport::SharedMemory;

/// Additions of one client to the shared counter or to its field, in the order of asking. That is
/// the order in which it is told of them too, but for those that were not carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Additions {
    pub(super) sure: u64,
    pub(super) unknown: u64,
    /// Of the unknown ones so many have shown.
    shown: u64,
    last: Option<u64>,
}

impl Additions {
    /// One to the counter fetched `was`.
    fn on_counted(&mut self, client: usize, was: u64) -> Result<(), Broken> {
        let before = self.last.replace(was);
        self.sure += 1;
        match before.filter(|&before| was <= before) {
            Some(before) => {
                let what = format!("counter, client {client}");
                Err(Broken::Fetched { what, before, next: was })
            }
            None => Ok(()),
        }
    }

    /// One to the client's field found so many of its own before it: as many as it was told of,
    /// and some of those that it was told nothing of, never fewer than once were there.
    fn on_field(&mut self, client: usize, found: u64) -> Result<(), Broken> {
        self.check_field(client, found)?;
        (self.shown, self.sure) = (found - self.sure, self.sure + 1);
        Ok(())
    }

    fn check_field(&self, client: usize, found: u64) -> Result<(), Broken> {
        let Self { sure, unknown, shown, .. } = *self;
        if (sure + shown..=sure + unknown).contains(&found) {
            return Ok(());
        }
        let what = format!("field of client {client}, {shown} of the unknown ones shown");
        Err(Broken::Sum { what, found, sure, unknown })
    }
}

/// All additions of all clients.
pub(super) struct Adders {
    counter: Vec<Additions>,
    fields: Vec<Additions>,
    /// What those to the counter fetched.
    counted: Vec<u64>,
    /// What those to the fields of each word fetched.
    fetched: [Vec<u64>; FIELD_WORDS],
}

impl Adders {
    pub(super) fn new(clients: usize) -> Self {
        let none = vec![Additions::default(); clients];
        let fetched = Default::default();
        Self { counter: none.clone(), fields: none, counted: Vec::new(), fetched }
    }

    /// Additions of a client, to the counter or to its field.
    pub(super) fn of(&mut self, client: usize, is_field: bool) -> &mut Additions {
        let of = if is_field { &mut self.fields } else { &mut self.counter };
        &mut of[client]
    }

    /// All that were carried out, and all of which that is not known.
    pub(super) fn sums(&self) -> (u64, u64) {
        let each = self.counter.iter().chain(&self.fields);
        each.fold((0, 0), |(sure, unknown), of| (sure + of.sure, unknown + of.unknown))
    }

    /// One was carried out, and fetched this.
    pub(super) fn on_executed(
        &mut self,
        client: usize,
        is_field: bool,
        was: u64,
    ) -> Result<(), Broken> {
        if is_field {
            let (_, shift) = area::field(client);
            self.fetched[client / FIELDS_PER_WORD].push(was);
            self.fields[client].on_field(client, area::in_field(was, shift))
        } else {
            self.counted.push(was);
            self.counter[client].on_counted(client, was)
        }
    }

    /// What must hold of the memory when all is over; how many additions have happened.
    pub(super) fn check(&mut self, memory: &SharedMemory) -> Result<u64, Broken> {
        let counter = word(memory, area::COUNTER);
        let sum = |of: fn(&Additions) -> u64| self.counter.iter().map(of).sum::<u64>();
        let (sure, unknown) = (sum(|of| of.sure), sum(|of| of.unknown));
        if !(sure..=sure + unknown).contains(&counter) {
            return Err(Broken::Sum { what: "counter".into(), found: counter, sure, unknown });
        }
        self.counted.sort_unstable();
        if let Some((before, next)) = first_pair(&self.counted, counter, |a, b| a >= b) {
            return Err(Broken::Fetched { what: "counter, all clients".into(), before, next });
        }
        let mut all = counter;
        for (client, field) in self.fields.iter().enumerate() {
            let (at, shift) = area::field(client);
            let found = area::in_field(word(memory, at), shift);
            field.check_field(client, found)?;
            all += found;
        }
        for (place, fetched) in self.fetched.iter_mut().enumerate() {
            let last = word(memory, area::field(place * FIELDS_PER_WORD).0);
            in_one_order(place, fetched, last)?;
        }
        Ok(all)
    }
}

/// Each addition found what the one before it had left: no field of it is less.
fn in_one_order(place: usize, fetched: &mut [u64], last: u64) -> Result<(), Broken> {
    let fields = |word: u64| {
        std::array::from_fn::<u64, FIELDS_PER_WORD, _>(|nth| {
            area::in_field(word, nth as u32 * FIELD_BITS)
        })
    };
    fetched.sort_unstable_by_key(|&word| fields(word).iter().sum::<u64>());
    let is_wrong = |before: u64, next: u64| {
        let mut each = fields(before).into_iter().zip(fields(next));
        before == next || each.any(|(before, next)| before > next)
    };
    match first_pair(fetched, last, is_wrong) {
        Some((before, next)) => {
            let what = format!("word {place} of fields");
            Err(Broken::Fetched { what, before, next })
        }
        None => Ok(()),
    }
}

/// The first two that follow each other as they must not, with `last` behind them all.
fn first_pair(
    values: &[u64],
    last: u64,
    is_wrong: impl Fn(u64, u64) -> bool,
) -> Option<(u64, u64)> {
    let nexts = values.iter().skip(1).chain([&last]);
    let mut pairs = values.iter().zip(nexts).map(|(&before, &next)| (before, next));
    pairs.find(|&(before, next)| is_wrong(before, next))
}

/// A word of the memory.
pub(super) fn word(memory: &SharedMemory, at: usize) -> u64 {
    memory.word(at).map_or(u64::MAX, |word| word.load(std::sync::atomic::Ordering::Relaxed))
}
