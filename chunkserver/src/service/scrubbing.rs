//! How far the background scrub is, for all who tell of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::store::ScrubReport;

/// Written by the thread that scrubs, and read by others.
#[derive(Debug, Default)]
pub(crate) struct ScrubBoard {
    /// Bytes a second; 0: there is no background scrub.
    rate: u64,
    checked: AtomicU64,
    expected: AtomicU64,
    last_pass_s: AtomicU64,
    bytes: AtomicU64,
    damaged: AtomicU64,
    unreadable: AtomicU64,
}

/// What it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScrubProgress {
    /// Bytes a second; 0: there is no background scrub.
    pub(crate) rate: u64,
    /// Slices that this pass has checked; 0 between passes.
    pub(crate) checked: u64,
    /// Slices that the store has, about.
    pub(crate) expected: u64,
    /// When the last whole pass ended, seconds since 1970; 0: never.
    pub(crate) last_pass_s: u64,
    /// Bytes read since the server started.
    pub(crate) bytes: u64,
    /// Slices found damaged since then.
    pub(crate) damaged: u64,
    /// Slices that the disk would not read.
    pub(crate) unreadable: u64,
}

impl ScrubBoard {
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate, ..Self::default() }
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    pub(crate) fn tell(&self, checked: u64, last_pass_s: u64) {
        self.checked.store(checked, Relaxed);
        self.last_pass_s.store(last_pass_s, Relaxed);
    }

    pub(crate) fn expect(&self, slices: u64) {
        self.expected.store(slices, Relaxed);
    }

    pub(crate) fn add(&self, report: &ScrubReport) {
        self.bytes.fetch_add(report.bytes, Relaxed);
        self.damaged.fetch_add(report.corrupt.len() as u64, Relaxed);
        self.unreadable.fetch_add(report.unreadable.len() as u64, Relaxed);
    }

    pub(crate) fn read(&self) -> ScrubProgress {
        ScrubProgress {
            rate: self.rate,
            checked: self.checked.load(Relaxed),
            expected: self.expected.load(Relaxed),
            last_pass_s: self.last_pass_s.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            damaged: self.damaged.load(Relaxed),
            unreadable: self.unreadable.load(Relaxed),
        }
    }
}
