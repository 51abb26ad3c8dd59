//! What was asked for, what came of it, and what must hold of it.

use super::adder::{Adders, word};
use super::area;
use super::broken::Broken;
use super::register::{Register, Registers};
use super::swapper::Swaps;
use std::collections::BTreeMap;
use towpath_proto::{Denied, OpOutcome};
use towpath_transport::SharedMemory;

/// An operation that a client has asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// One more in the counter, or in the client's own field.
    Add { is_field: bool },
    /// A swap of the shared word.
    Swap { compare: u64, swap: u64 },
    /// The client's word becomes this.
    Word { number: u64 },
    /// The client's block becomes that of this number.
    Block { number: u64 },
    /// The area of a client, of whose word and block this was sure.
    Look { writer: usize, low: (u64, u64) },
}

/// What came of an operation, and what it brought.
pub(super) struct OpAnswer<'a> {
    pub(super) outcome: OpOutcome,
    pub(super) word: Option<u64>,
    pub(super) bytes: &'a [u8],
}

/// How many operations have ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// They were carried out.
    pub executed: u64,
    /// They were not: denied, or too late.
    pub not: u64,
    /// Nobody knows.
    pub unknown: u64,
}

/// One client's.
#[derive(Default)]
struct Page {
    next: u64,
    live: BTreeMap<u64, Asked>,
    /// The latest of those that were carried out on the link that is on.
    executed: Option<u64>,
    own: Registers,
}

/// Of all clients.
pub(super) struct Books {
    pages: Vec<Page>,
    adders: Adders,
    swaps: Swaps,
    pub(super) outcomes: Outcomes,
    /// Over all that software saw. What is on the wire names addresses of this process, and a seed
    /// would not give the same twice.
    pub(super) hash: u64,
    /// The first promise that was broken.
    pub(super) broken: Option<Broken>,
}

impl Books {
    pub(super) fn new(clients: usize) -> Self {
        Self {
            pages: (0..clients).map(|_| Page::default()).collect(),
            adders: Adders::new(clients),
            swaps: Swaps::default(),
            outcomes: Outcomes::default(),
            hash: 0xcbf2_9ce4_8422_2325,
            broken: None,
        }
    }

    /// Writes down the first promise that was broken.
    pub(super) fn note(&mut self, result: Result<(), Broken>) {
        if let Err(broken) = result {
            self.broken.get_or_insert(broken);
        }
    }

    /// A client asks for an operation; its number.
    pub(super) fn ask(&mut self, client: usize, asked: Asked) -> u64 {
        let page = &mut self.pages[client];
        page.next += 1;
        page.live.insert(page.next, asked);
        page.next
    }

    /// It was refused: nothing of it happens.
    pub(super) fn take_back(&mut self, client: usize, op: u64) -> Result<(), Broken> {
        let asked = self.pages[client].live.remove(&op);
        asked.map_or(Ok(()), |asked| self.on_not_executed(client, asked))
    }

    /// The next write of a client, to its word or its block.
    pub(super) fn next_write(&mut self, client: usize, is_block: bool) -> u64 {
        let own = &mut self.pages[client].own;
        if is_block { own.block.ask() } else { own.word.ask() }
    }

    /// What is sure of a client's area now.
    pub(super) fn sure_of(&self, writer: usize) -> (u64, u64) {
        self.pages[writer].own.sure()
    }

    /// What an operation was asked for that has no outcome yet.
    pub(super) fn asked(&self, client: usize, op: u64) -> Option<Asked> {
        self.pages[client].live.get(&op).copied()
    }

    pub(super) fn clients(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn live(&self, client: usize) -> usize {
        self.pages[client].live.len()
    }

    /// Additions that were carried out, and those of which that is not known.
    pub(super) fn additions(&self) -> (u64, u64) {
        self.adders.sums()
    }

    pub(super) fn swaps(&self) -> u64 {
        self.swaps.done()
    }

    /// A client is told what came of an operation.
    pub(super) fn answer(
        &mut self,
        client: usize,
        op: u64,
        answer: &OpAnswer<'_>,
    ) -> Result<(), Broken> {
        let page = &mut self.pages[client];
        let asked = page.live.remove(&op).ok_or(Broken::Twice { client, op })?;
        let outcome = answer.outcome;
        let told = [client as u64, op, outcome_number(outcome), answer.word.unwrap_or(0)];
        for word in told {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
        match outcome {
            OpOutcome::Executed => {
                self.outcomes.executed += 1;
                if let Some(before) = page.executed.replace(op).filter(|&before| before > op) {
                    return Err(Broken::Order { client, before, op });
                }
                self.on_executed(client, op, asked, answer)
            }
            OpOutcome::Unknown if matches!(asked, Asked::Look { .. }) => {
                Err(Broken::Outcome { client, op, outcome })
            }
            OpOutcome::Unknown => {
                self.outcomes.unknown += 1;
                self.on_unknown(client, asked);
                Ok(())
            }
            OpOutcome::Denied(_) | OpOutcome::NotExecuted => {
                self.outcomes.not += 1;
                let is_device = outcome == OpOutcome::Denied(Denied::Device);
                match asked {
                    // Its first packets may have come before the grant was revoked.
                    Asked::Block { .. } if is_device => Ok(()),
                    _ => self.on_not_executed(client, asked),
                }
            }
        }
    }

    fn on_executed(
        &mut self,
        client: usize,
        op: u64,
        asked: Asked,
        answer: &OpAnswer<'_>,
    ) -> Result<(), Broken> {
        let empty = Broken::Empty { client, op };
        match asked {
            Asked::Add { is_field } => {
                self.adders.on_executed(client, is_field, answer.word.ok_or(empty)?)
            }
            Asked::Swap { compare, swap } => {
                self.swaps.on_executed((compare, swap), answer.word.ok_or(empty)?)
            }
            Asked::Word { number } => {
                self.pages[client].own.word.on_executed(number);
                Ok(())
            }
            Asked::Block { number } => {
                self.pages[client].own.block.on_executed(number);
                Ok(())
            }
            Asked::Look { writer, low } => {
                if answer.bytes.len() != area::AREA_BYTES {
                    return Err(empty);
                }
                self.pages[writer].own.on_seen(writer, answer.bytes, low)
            }
        }
    }

    fn on_unknown(&mut self, client: usize, asked: Asked) {
        match asked {
            Asked::Add { is_field } => self.adders.of(client, is_field).unknown += 1,
            Asked::Swap { compare, swap } => self.swaps.on_unknown((compare, swap)),
            Asked::Word { .. } | Asked::Block { .. } | Asked::Look { .. } => {}
        }
    }

    fn on_not_executed(&mut self, client: usize, asked: Asked) -> Result<(), Broken> {
        let own = &mut self.pages[client].own;
        let (register, number): (&mut Register, u64) = match asked {
            Asked::Word { number } => (&mut own.word, number),
            Asked::Block { number } => (&mut own.block, number),
            Asked::Add { .. } | Asked::Swap { .. } | Asked::Look { .. } => return Ok(()),
        };
        register.on_not_executed(client, number)
    }

    /// A client is dead: nobody is told what came of what it had asked for.
    pub(super) fn on_death(&mut self, client: usize) {
        let page = &mut self.pages[client];
        page.executed = None;
        for asked in std::mem::take(&mut page.live).into_values() {
            self.outcomes.unknown += 1;
            self.on_unknown(client, asked);
        }
    }

    /// What must hold of the memory when all is over; how many additions have happened.
    pub(super) fn check(&mut self, memory: &SharedMemory) -> Result<u64, Broken> {
        let found = self.adders.check(memory)?;
        self.swaps.check(word(memory, area::SWAPPED))?;
        let mut bytes = vec![0; area::AREA_BYTES];
        for (writer, page) in self.pages.iter_mut().enumerate() {
            let start = area::area(writer).start;
            let is_read = memory.read(start, &mut bytes).is_ok();
            debug_assert!(is_read, "each client has an area");
            let low = page.own.sure();
            page.own.on_seen(writer, &bytes, low)?;
        }
        match area::first_touched(memory, self.pages.len()) {
            Some(at) => Err(Broken::Touched { at }),
            None => Ok(found),
        }
    }
}

fn outcome_number(outcome: OpOutcome) -> u64 {
    match outcome {
        OpOutcome::Executed => 0,
        OpOutcome::Denied(_) => 1,
        OpOutcome::NotExecuted => 2,
        OpOutcome::Unknown => 3,
    }
}
