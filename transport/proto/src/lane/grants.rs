//! What each end lets the other reach.

use super::ops::{OpError, OpKey, OpKind, OpPost, OpRequest};
use crate::limits::{LANE_GRANTS_KNOWN_MAX, LANE_GRANTS_MAX};
use alloc::collections::{BTreeMap, BTreeSet};
use towpath_verbs::{RemoteAddr, SendOp};

/// What a peer may do with granted memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// READ.
    pub read: bool,
    /// WRITE, of ranges and of words.
    pub write: bool,
    /// FETCH_ADD and CMP_SWAP.
    pub atomic: bool,
}

impl Rights {
    /// Reading alone.
    pub const READ: Self = Self { read: true, write: false, atomic: false };
    /// All of it.
    pub const ALL: Self = Self { read: true, write: true, atomic: true };

    const BITS: u32 = 3;

    /// Whether an operation of this kind is among them.
    #[must_use]
    pub fn allow(self, kind: OpKind) -> bool {
        match kind {
            OpKind::Read => self.read,
            OpKind::Write | OpKind::WriteWord { .. } => self.write,
            OpKind::FetchAdd { .. } | OpKind::CmpSwap { .. } => self.atomic,
        }
    }

    fn bits(self) -> u32 {
        u32::from(self.read) | u32::from(self.write) << 1 | u32::from(self.atomic) << 2
    }

    fn from_bits(bits: u32) -> Self {
        Self { read: bits & 1 != 0, write: bits & 2 != 0, atomic: bits & 4 != 0 }
    }
}

/// A grant, as its owner numbers it: unique among the grants of one end in the life of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub u32);

impl GrantId {
    const MAX: u32 = (1 << (u32::BITS - Rights::BITS)) - 1;
}

/// Memory of the peer that this end may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How operations name it.
    pub id: GrantId,
    /// Bytes of it, from offset 0 on.
    pub byte_len: u32,
    /// What may be done with it.
    pub rights: Rights,
}

/// What the peer has granted, with what only the device needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theirs {
    grant: Grant,
    addr: u64,
    rkey: u32,
}

impl Theirs {
    /// Whether the grant allows an operation.
    pub(super) fn check(&self, request: &OpRequest) -> Result<(), OpError> {
        let Grant { byte_len, rights, .. } = self.grant;
        if !rights.allow(request.kind) {
            return Err(OpError::Rights { rights });
        }
        let end = request.offset.checked_add(request.length);
        if request.length == 0 || end.is_none_or(|end| end > byte_len) {
            return Err(OpError::Range { byte_len });
        }
        let is_word = !matches!(request.kind, OpKind::Read | OpKind::Write);
        let at = self.addr.wrapping_add(request.offset.into());
        if is_word && !at.is_multiple_of(8) {
            return Err(OpError::Misaligned);
        }
        Ok(())
    }

    /// An operation as the device takes it.
    pub(super) fn post(&self, key: OpKey, request: &OpRequest) -> OpPost {
        let addr = self.addr.wrapping_add(request.offset.into());
        let remote = RemoteAddr { addr, rkey: self.rkey };
        let op = match request.kind {
            OpKind::Read => SendOp::Read { remote },
            OpKind::Write | OpKind::WriteWord { .. } => SendOp::Write { remote },
            OpKind::FetchAdd { add } => SendOp::FetchAdd { remote, add },
            OpKind::CmpSwap { compare, swap } => SendOp::CmpSwap { remote, compare, swap },
        };
        let OpRequest { kind, grant, offset, length, fence, .. } = *request;
        OpPost { key, kind, op, grant, offset, length, fence }
    }
}

/// The grants of both ends.
#[derive(Debug, Default)]
pub(super) struct Grants {
    ours: BTreeSet<u32>,
    last: u32,
    theirs: BTreeMap<u32, Theirs>,
    /// The peer has granted something once.
    has_heard: bool,
    /// Revoked by messages that overtook those that granted them.
    revoked: BTreeSet<u32>,
}

impl Grants {
    /// Grants memory of ours, and returns what the GRANT tells of it: its number, and its rights in
    /// the highest bits.
    pub(super) fn grant(&mut self, rights: Rights) -> Result<(GrantId, u32), OpError> {
        let is_full = self.ours.len() == LANE_GRANTS_MAX || self.last == GrantId::MAX;
        if is_full {
            return Err(OpError::Full { max: LANE_GRANTS_MAX });
        }
        self.last += 1;
        self.ours.insert(self.last);
        Ok((GrantId(self.last), self.last | rights.bits() << (u32::BITS - Rights::BITS)))
    }

    /// Takes a grant of ours back; false when there is none.
    pub(super) fn revoke(&mut self, id: GrantId) -> bool {
        self.ours.remove(&id.0)
    }

    /// Whether the peer may reach memory of ours.
    pub(crate) fn has_ours(&self) -> bool {
        !self.ours.is_empty()
    }

    /// Whether either end has granted anything, ever.
    pub(super) fn were_any(&self) -> bool {
        self.last > 0 || self.has_heard
    }

    /// What the peer has granted.
    pub(super) fn theirs(&self, id: GrantId) -> Option<&Theirs> {
        self.theirs.get(&id.0)
    }

    /// GRANT, of memory under a key: what is to be told of it, if anything.
    pub(super) fn on_grant(
        &mut self,
        told: u32,
        (addr, byte_len): (u64, u32),
        rkey: u32,
    ) -> Result<Option<Grant>, ()> {
        let (id, rights) = (told & GrantId::MAX, told >> (u32::BITS - Rights::BITS));
        if self.revoked.remove(&id) {
            return Ok(None);
        }
        let is_sound = byte_len > 0 && addr.checked_add(byte_len.into()).is_some();
        let is_full = self.theirs.len() == LANE_GRANTS_KNOWN_MAX || self.theirs.contains_key(&id);
        if !is_sound || is_full {
            return Err(());
        }
        let grant = Grant { id: GrantId(id), byte_len, rights: Rights::from_bits(rights) };
        self.has_heard = true;
        self.theirs.insert(id, Theirs { grant, addr, rkey });
        Ok(Some(grant))
    }

    /// REVOKE: whether it was known.
    pub(super) fn on_revoke(&mut self, id: u32) -> Result<bool, ()> {
        if self.theirs.remove(&id).is_some() {
            return Ok(true);
        }
        if self.revoked.len() == LANE_GRANTS_MAX {
            return Err(());
        }
        self.revoked.insert(id);
        Ok(false)
    }
}
