//! `towpath sim`: studies in virtual time.

use super::study::{Family, FamilyArgs};
use crate::bench::scale;
use towpath_kv_lab::studies as kv;
use towpath_lab::studies::{self, Clock, Study};
use towpath_storage_lab::studies as storage;

/// Flags of `towpath sim`.
pub(crate) type SimArgs = FamilyArgs<Virtual>;

/// Studies that replay.
#[derive(Clone, Debug)]
pub(crate) struct Virtual;

impl Family for Virtual {
    const COMMAND: &'static str = "sim";
    const CLOCK: Clock = Clock::Virtual;
    const TITLE: &'static str = "Studies in virtual time";
    const AFTER_HELP: &'static str = "\
Everything follows from seed and parameters: the same ones give the same packets, and the
same trace hash, on any machine and with any number of threads.";
    const TAKES: &'static str = "within a minute on two cores";
    const STUDIES: &'static [&'static Study] = &ALL;

    fn replays(_: &Study) -> bool {
        true
    }
}

/// What the simulator itself costs stands last.
const COUNT: usize = studies::ALL.len() + storage::ALL.len() + kv::ALL.len() + 1;

/// Those of the transport, then those of storage, then those of the key-value store.
const ALL: [&Study; COUNT] = {
    let mut all = [&scale::STUDY; COUNT];
    let mut place = 0;
    while place < COUNT - 1 {
        let beyond = place.saturating_sub(studies::ALL.len());
        all[place] = if place < studies::ALL.len() {
            studies::ALL[place]
        } else if beyond < storage::ALL.len() {
            storage::ALL[beyond]
        } else {
            kv::ALL[beyond - storage::ALL.len()]
        };
        place += 1;
    }
    all
};
