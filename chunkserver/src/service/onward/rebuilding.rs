//! A range of a lost part while it is made anew: what this server adds to it, and how far it has
//! gone to the next one.

use std::collections::VecDeque;
use std::ops::Range;

use towpath_ec::{Factor, add};
use towpath_fastpath::cap::Capability;
use towpath_fastpath::{Helper, Rebuild};
use towpath_rpc::Piece;
use towpath_transport::Class;

use super::hop::Hop;
use super::peers::PeerId;
use crate::service::ask::Place;
use crate::service::clients::Leave;

/// Bytes of a sum that go on together where they are here together: a piece of a message.
const SENT_BYTES: usize = 64 << 10;

/// A range that is made anew, at a server that helps.
#[derive(Debug)]
pub(in crate::service) struct Rebuilding {
    /// As the next server gets it.
    pub(super) onward: Rebuild,
    pub(super) helper: Helper,
    /// The next server.
    pub(in crate::service) hop: Hop,
    pub(super) class: Class,
    /// What it was proved with; none where nobody has to prove anything.
    pub(super) capability: Option<Capability>,
    /// This server's own part is in the sum.
    has_own: bool,
    /// What came before this server's own part was here.
    held: Vec<(usize, Piece)>,
    sum: Vec<u8>,
    /// Bytes that have not come, or are not added yet.
    missing: usize,
    /// What is added up and was not given to the link yet.
    ready: VecDeque<Range<usize>>,
    /// Bytes that were not given to the link.
    unsent: usize,
    _leave: Leave,
}

impl Rebuilding {
    pub(super) fn new(
        plan: &Rebuild,
        (onward, helper): (Rebuild, Helper),
        peer: PeerId,
        (class, capability): (Class, Option<Capability>),
        leave: Leave,
    ) -> Self {
        let byte_len = plan.target().length as usize;
        Self {
            hop: Hop::new(peer, onward.rank()),
            onward,
            helper,
            class,
            capability,
            has_own: false,
            held: Vec::new(),
            sum: Vec::new(),
            missing: plan.data_len() as usize,
            ready: VecDeque::new(),
            unsent: byte_len,
            _leave: leave,
        }
    }

    /// The chunk that is made, and which bytes of it.
    pub(in crate::service) fn place(&self) -> Place {
        Place::of(&self.onward.write_header())
    }

    /// Bytes of the range.
    pub(in crate::service) fn byte_len(&self) -> usize {
        self.onward.target().length as usize
    }

    /// What the server before has sent of the sum is here.
    pub(in crate::service) fn take(&mut self, offset: usize, piece: Piece) {
        match self.has_own {
            true => self.add(offset, &piece),
            false => self.held.push((offset, piece)),
        }
    }

    /// This server's own part is here.
    pub(super) fn take_own(&mut self, bytes: &[u8]) {
        self.sum = vec![0; bytes.len()];
        // Both have the length of the range.
        let multiplied = Factor::new(self.helper.coefficient).multiply(bytes, &mut self.sum);
        debug_assert_eq!(multiplied, Ok(()));
        self.has_own = true;
        for (offset, piece) in std::mem::take(&mut self.held) {
            self.add(offset, &piece);
        }
        if self.missing == 0 && self.onward.rank() == 1 {
            self.make_ready(0..self.sum.len());
        }
    }

    fn add(&mut self, offset: usize, bytes: &[u8]) {
        let range = offset..offset + bytes.len();
        let added = self.sum.get_mut(range.clone()).map(|sum| add(sum, bytes));
        debug_assert_eq!(added, Some(Ok(())));
        self.missing = self.missing.saturating_sub(bytes.len());
        match (self.is_last(), self.missing) {
            (false, _) => self.make_ready(range),
            // The target checks each slice by its checksum, which comes before the data.
            (true, 0) => self.make_ready(0..self.sum.len()),
            (true, _) => {}
        }
    }

    fn make_ready(&mut self, range: Range<usize>) {
        let ends = range.clone().step_by(SENT_BYTES);
        self.ready.extend(ends.map(|from| from..range.end.min(from + SENT_BYTES)));
    }

    /// Whether the next server is the target.
    pub(super) fn is_last(&self) -> bool {
        self.onward.helper().is_none()
    }

    /// Whether the next server can be asked: at the target, once the checksums of the sum are
    /// known.
    pub(super) fn can_ask(&self) -> bool {
        !self.is_last() || !self.ready.is_empty()
    }

    /// What goes on next.
    pub(super) fn next_ready(&self) -> Option<(usize, &[u8])> {
        let range = self.ready.front()?;
        Some((range.start, self.sum.get(range.clone())?))
    }

    /// That has gone on.
    pub(super) fn note_sent(&mut self) {
        if let Some(range) = self.ready.pop_front() {
            self.unsent = self.unsent.saturating_sub(range.len());
        }
    }

    /// What comes before the data at the next server.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = self.onward.emit();
        if self.is_last() {
            body.extend_from_slice(&self.onward.crcs_of(&self.sum));
        }
        body
    }

    /// All of it has gone on: whether it was written is told by those behind alone.
    pub(in crate::service) fn is_released(&self) -> bool {
        self.unsent == 0
    }
}
