//! One-sided operations: grants and calls (docs/protocol.md section 11). What carries them is in
//! `lane_qp` and `lane_messages`.

use super::Endpoint;
use crate::conn::{NO_QP, Phase};
use crate::event::Event;
use crate::ids::LinkId;
use crate::ids::OpId;
use crate::lane::{Landing, LaneError, LaneQp, LaneReport, OpOptions, Place, RejectedOp};
use crate::lane_talk::OwnGrant;
use std::ops::Range;
use towpath_memory::{Berth, Buf, Region, SharedMemory};
use towpath_proto::limits::LANE_OPS_MAX;
use towpath_proto::{GrantId, Lane, Link, OpCounts, OpKey, OpKind, OpOutcome, OpRequest, Rights};
use towpath_verbs::{Access, Device, Served};

/// Bytes of a word.
pub(super) const WORD_BYTES: u32 = 8;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Lets the peer of a link reach a range of shared memory; it learns of that by
    /// [`Event::Granted`]. The peer reaches that range alone, by this link alone, until
    /// [`revoke`](Self::revoke), or until the link ends.
    ///
    /// # Errors
    /// [`LaneError`].
    pub fn grant(
        &mut self,
        link: LinkId,
        memory: &SharedMemory,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<GrantId, LaneError> {
        let bytes = memory.byte_len();
        let byte_len = u32::try_from(range.len()).ok().filter(|&len| len > 0);
        let byte_len = byte_len.filter(|_| range.end <= bytes).ok_or(LaneError::Range { bytes })?;
        self.lane_of(link)?;
        let Self { links, device, .. } = self;
        let found =
            links.find_mut(link).and_then(|conn| conn.lane.as_mut().zip(conn.link.as_mut()));
        let (lane, state) = found.ok_or(LaneError::NoSuchLink)?;
        let access = Access {
            local_write: rights.write || rights.atomic,
            remote_write: rights.write,
            remote_read: rights.read,
            remote_atomic: rights.atomic,
        };
        let addr = memory.addr() + range.start as u64;
        let register = |pd| device.reg_shared_mr(pd, memory, range.clone(), access);
        let keys = lane.pd.map(register).transpose()?;
        let (lkey, rkey) = keys.map(|keys| (keys.lkey, keys.rkey)).unzip();
        match state.grant(device.now(), (addr, byte_len), rkey.unwrap_or(0), rights) {
            Ok(id) => {
                let memory = memory.clone();
                lane.grants.push(OwnGrant { id, lkey, memory, range, rights });
                links.touch(link.index);
                Ok(id)
            }
            Err(error) => {
                if let Some(lkey) = lkey {
                    let _ = device.dereg_mr(lkey);
                }
                Err(error.into())
            }
        }
    }

    /// Takes a grant back. When this returns, the peer does not reach the memory any more; it
    /// learns of that by [`Event::Revoked`]. False when there is no such grant.
    pub fn revoke(&mut self, link: LinkId, grant: GrantId) -> bool {
        let Self { links, device, .. } = self;
        let Some(conn) = links.find_mut(link) else { return false };
        let Some(lane) = conn.lane.as_mut() else { return false };
        let Some(place) = lane.grants.iter().position(|own| own.id == grant) else { return false };
        if let Some(lkey) = lane.grants.swap_remove(place).lkey {
            // The key was given by this device.
            let _ = device.dereg_mr(lkey);
        }
        if let Some(state) = &mut conn.link {
            state.revoke(grant);
        }
        links.touch(link.index);
        true
    }

    /// What a link has for one-sided operations; `None` where none were asked for.
    #[must_use]
    pub fn lane(&self, link: LinkId) -> Option<LaneReport> {
        let conn = self.links.find(link)?;
        let lane = conn.lane.as_ref()?;
        let state = conn.link.as_ref().and_then(Link::lane);
        Some(LaneReport {
            qp_num: Some(lane.qp_num).filter(|&num| num != NO_QP),
            is_by_messages: state.is_some_and(Lane::is_by_messages),
            operations: state.map_or(0, Lane::live),
            posted: lane.posted,
            operations_max: LANE_OPS_MAX,
            grants: lane.grants.len(),
            counts: state.map_or_else(OpCounts::default, Lane::counts),
        })
    }

    /// What the peer of a link did to the memory that was granted to it, over the life of the link:
    /// by each queue pair of its lane, and by messages. An application that sleeps while its memory
    /// is served learns of it here alone. When [`Event::LinkDown`] is told it holds all there was;
    /// in the next turn it may be gone.
    ///
    /// `None` when the link is gone, and where the device does not count what it serves by itself:
    /// real NICs do not, the userspace NIC does, and what goes by messages is counted on any.
    #[must_use]
    pub fn served(&self, link: LinkId) -> Option<Served> {
        match &self.links.find(link)?.lane {
            Some(lane) => lane.served(&self.device),
            None => Some(Served::default()),
        }
    }

    /// Fetches `length` bytes of the peer's memory into a buffer, which comes back in
    /// [`Event::OpDone`]; only there, and only if the outcome is
    /// [`Executed`](OpOutcome::Executed), does it hold them. Repeated until its deadline where the
    /// queue pair is lost.
    ///
    /// # Errors
    /// [`RejectedOp`] with the buffer.
    pub fn read(
        &mut self,
        place: Place,
        length: u32,
        buf: Buf,
        options: OpOptions,
    ) -> Result<OpId, RejectedOp> {
        self.operate_on(place, OpKind::Read, (length, buf), options)
    }

    /// Writes the bytes of a buffer to the peer's memory; the buffer comes back in
    /// [`Event::OpDone`]. Where the queue pair is lost it is written again, but only after the peer
    /// has shown that nothing of the first time can arrive any more.
    ///
    /// # Errors
    /// [`RejectedOp`] with the buffer.
    pub fn write(
        &mut self,
        place: Place,
        buf: Buf,
        options: OpOptions,
    ) -> Result<OpId, RejectedOp> {
        let length = buf.len() as u32;
        self.operate_on(place, OpKind::Write, (length, buf), options)
    }

    /// Writes a word of eight bytes, in the byte order of this host, at once. As for
    /// [`write`](Self::write) it may be written again: the latest value wins.
    ///
    /// # Errors
    /// [`LaneError`].
    pub fn write_word(
        &mut self,
        place: Place,
        value: u64,
        options: OpOptions,
    ) -> Result<OpId, LaneError> {
        self.operate_on_word(place, OpKind::WriteWord { value }, options)
    }

    /// Adds to a word, wrapping, and fetches what it was: [`Event::OpDone`] has it. Never repeated:
    /// where the queue pair is lost meanwhile the outcome is [`Unknown`](OpOutcome::Unknown).
    ///
    /// # Errors
    /// [`LaneError`].
    pub fn fetch_add(
        &mut self,
        place: Place,
        add: u64,
        options: OpOptions,
    ) -> Result<OpId, LaneError> {
        self.operate_on_word(place, OpKind::FetchAdd { add }, options)
    }

    /// Puts `swap` into a word if it equals `compare`, and fetches what it was. Never repeated, as
    /// [`fetch_add`](Self::fetch_add).
    ///
    /// # Errors
    /// [`LaneError`].
    pub fn cmp_swap(
        &mut self,
        place: Place,
        (compare, swap): (u64, u64),
        options: OpOptions,
    ) -> Result<OpId, LaneError> {
        self.operate_on_word(place, OpKind::CmpSwap { compare, swap }, options)
    }

    fn operate_on(
        &mut self,
        place: Place,
        kind: OpKind,
        (length, buf): (u32, Buf),
        options: OpOptions,
    ) -> Result<OpId, RejectedOp> {
        let (capacity, wanted) = (buf.capacity(), length as usize);
        if wanted > capacity {
            let error = LaneError::BufferTooShort { capacity, wanted };
            return Err(RejectedOp { buf, error });
        }
        let lkey = match self.lane_key(place.link, &buf.region()) {
            Ok(lkey) => lkey,
            Err(error) => return Err(RejectedOp { buf, error }),
        };
        match self.submit(place, (kind, length), options) {
            Ok((key, lane)) => {
                let berth = Berth::new(buf);
                lane.put(Landing { key, berth, is_word: false, lkey, is_posted: false });
                Ok(OpId { link: place.link, key })
            }
            Err(error) => Err(RejectedOp { buf, error }),
        }
    }

    fn operate_on_word(
        &mut self,
        place: Place,
        kind: OpKind,
        options: OpOptions,
    ) -> Result<OpId, LaneError> {
        self.lane_of(place.link)?;
        let (key, lane) = self.submit(place, (kind, WORD_BYTES), options)?;
        // As many as there may be operations.
        let mut buf = lane.words.take().expect("a word for each operation");
        let value = if let OpKind::WriteWord { value } = kind { value } else { 0 };
        buf.set_len(0)?;
        buf.extend(&value.to_ne_bytes())?;
        let (berth, lkey) = (Berth::new(buf), lane.words_lkey.unwrap_or(0));
        lane.put(Landing { key, berth, is_word: true, lkey, is_posted: false });
        Ok(OpId { link: place.link, key })
    }

    fn submit(
        &mut self,
        place: Place,
        (kind, length): (OpKind, u32),
        options: OpOptions,
    ) -> Result<(OpKey, &mut LaneQp), LaneError> {
        let now = self.device.now();
        self.links.touch(place.link.index);
        let conn = self.links.find_mut(place.link).filter(|conn| conn.phase == Phase::Up);
        let found = conn.and_then(|conn| conn.link.as_mut().zip(conn.lane.as_mut()));
        let (state, lane) = found.ok_or(LaneError::NoSuchLink)?;
        let request = OpRequest {
            kind,
            grant: place.grant,
            offset: place.offset,
            length,
            deadline: options.due(now),
            fence: options.fence,
            token: options.token,
        };
        let key = state.operate(&request)?;
        Ok((key, lane))
    }

    /// What an operation came to.
    pub(super) fn op_done(
        &mut self,
        link: LinkId,
        key: OpKey,
        token: u64,
        outcome: OpOutcome,
    ) -> Event {
        let lane = self.links.lane_mut(link);
        let (word, buf) = lane.map_or((None, None), |lane| lane.leave(key));
        let word = word.filter(|_| outcome == OpOutcome::Executed);
        Event::OpDone { op: OpId { link, key }, token, outcome, word, buf }
    }
}
