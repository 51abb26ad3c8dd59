//! Whether what several clients saw of a register could have happened one after the other.
//!
//! Each value is written once. Then a history is linearizable exactly if no value is read before
//! its write began, and the zones of the values fit (P. Gibbons and E. Korach, Testing Shared
//! Memories, 1997): of the operations of one value let f be the earliest end and s the latest
//! begin. Where f is before s the value must have stood from f to s, and no two values can at a
//! time. Otherwise it must have stood at some moment from s to f, and that may not lie wholly
//! within the time of another one.

use std::collections::BTreeMap;

/// What was done to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Write,
    Read,
}

/// One operation, and when it began and ended.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub deed: Deed,
    pub value: u64,
    pub begin: u64,
    /// None where nobody knows whether the write was done: it may be done at any time.
    pub end: Option<u64>,
}

/// What is known of the operations of one value.
#[derive(Clone, Copy, Debug)]
struct Zone {
    value: u64,
    written: Option<u64>,
    is_read: bool,
    is_sure: bool,
    first_end: u64,
    last_begin: u64,
}

/// Whether the operations could have happened one after the other, each between its begin and its
/// end; the register held `first` before all of them. Times are of one clock, and begin above 0.
///
/// # Errors
/// What could not have happened.
pub fn check(first: u64, ops: &[Op]) -> Result<(), String> {
    let mut zones: BTreeMap<u64, Zone> = BTreeMap::new();
    let blank = |value, end, written| Zone {
        value,
        written,
        is_read: false,
        is_sure: false,
        first_end: end,
        last_begin: 0,
    };
    zones.insert(first, blank(first, 0, Some(0)));
    for op in ops {
        let zone = zones.entry(op.value).or_insert_with(|| blank(op.value, u64::MAX, None));
        match op.deed {
            Deed::Write if zone.written.replace(op.begin).is_some() => {
                return Err(format!("value {:x} is written twice", op.value));
            }
            Deed::Write => zone.is_sure = op.end.is_some(),
            Deed::Read => zone.is_read = true,
        }
        zone.first_end = zone.first_end.min(op.end.unwrap_or(u64::MAX));
        zone.last_begin = zone.last_begin.max(op.begin);
    }
    for op in ops.iter().filter(|op| op.deed == Deed::Read) {
        let written = zones[&op.value].written;
        let written = written.ok_or_else(|| format!("value {:x} comes from nowhere", op.value))?;
        if op.end.is_some_and(|end| end < written) {
            return Err(format!("value {:x} is read before it is written", op.value));
        }
    }
    // A write that perhaps never was, and that nobody saw, need not have been.
    let zones = zones.into_values().filter(|zone| zone.is_read || zone.is_sure);
    let (mut stood, somewhere): (Vec<Zone>, Vec<Zone>) =
        zones.partition(|zone| zone.first_end < zone.last_begin);
    stood.sort_by_key(|zone| zone.first_end);
    for pair in stood.windows(2) {
        if pair[1].first_end < pair[0].last_begin {
            let (one, other) = (pair[0].value, pair[1].value);
            return Err(format!("values {one:x} and {other:x} would have stood at a time"));
        }
    }
    for zone in somewhere {
        let around = stood.partition_point(|other| other.first_end < zone.last_begin);
        let around = around.checked_sub(1).map(|at| stood[at]);
        if let Some(around) = around.filter(|around| zone.first_end < around.last_begin) {
            let (one, other) = (zone.value, around.value);
            return Err(format!("value {one:x} stood while {other:x} must have"));
        }
    }
    Ok(())
}
