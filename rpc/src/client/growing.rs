//! Sending requests, and supplying the data of those that are sent before it is there.

use super::{Call, Pending, RequestId, RpcClient};
use crate::error::{CallError, Refused};
use crate::parcel::{Fields, Outgoing};
use crate::wire::{Kind, Status};
use towpath_transport::{
    Device, Endpoint, PageCrcs, Region, Segment, SendOptions, SupplyError, SupplyRejected, Time,
};

impl RpcClient {
    /// Sends a request whose header and body are there, and whose data comes later, `later_bytes`:
    /// [`supply`](Self::supply) gives it, in any order. Its [`Completion`](super::Completion)
    /// follows whatever happens: as a response, which may come before all data was given, and then
    /// the rest is dropped; or at its deadline, when the request did not happen. Needs an unordered
    /// channel; see [`Endpoint::send_growing`] for what it holds meanwhile.
    ///
    /// # Errors
    /// [`Refused`]; nothing was sent. [`CallError::HasData`] when `outgoing` has data.
    pub fn call_growing<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        call: Call,
        outgoing: Outgoing,
        later_bytes: u32,
    ) -> Result<RequestId, Refused> {
        if outgoing.has_data() {
            return Err(Refused { error: CallError::HasData, outgoing: Some(outgoing) });
        }
        self.begin(endpoint, call, outgoing, later_bytes)
    }

    /// Gives data of a request that was sent [before it was there](Self::call_growing), from
    /// `offset` of the data on: a buffer, or what [`Piece::share`](crate::Piece::share) gives of a
    /// piece of another request, which is sent from where it lies. Credit and receive buffer of
    /// such a piece come back as soon as the server has it. [`Endpoint::supply`] says where pieces
    /// may begin and end.
    ///
    /// # Errors
    /// [`SupplyRejected`] with the buffer: [`SupplyError::Ended`] when the request has ended, which
    /// its completion tells; drop the buffer then.
    pub fn supply<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        request: RequestId,
        offset: usize,
        piece: impl Into<Segment>,
    ) -> Result<(), SupplyRejected> {
        self.supply_with_crcs(endpoint, request, offset, piece, PageCrcs::default())
    }

    /// As [`supply`](Self::supply), with the CRC32C of pages of the piece, from its first byte on
    /// ([`Piece::page_crcs`](crate::Piece::page_crcs)): chunks with them need no pass over the
    /// bytes.
    ///
    /// # Errors
    /// As [`supply`](Self::supply).
    pub fn supply_with_crcs<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        request: RequestId,
        offset: usize,
        piece: impl Into<Segment>,
        page_crcs: PageCrcs,
    ) -> Result<(), SupplyRejected> {
        let segment = piece.into();
        let key = self.find(request.0).filter(|&key| self.pending[key].given_up.is_none());
        let Some(key) = key else {
            return Err(SupplyRejected { segment, error: SupplyError::Ended.into() });
        };
        let pending = &mut self.pending[key];
        // What is further behind is out of range, whatever the request.
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        let length = segment.len() as u32;
        endpoint.supply_with_crcs(pending.send, offset, segment, page_crcs)?;
        pending.missing = pending.missing.saturating_sub(length);
        Ok(())
    }

    /// Sends a request, of whose data so many bytes come later.
    pub(super) fn begin<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        call: Call,
        outgoing: Outgoing,
        later_bytes: u32,
    ) -> Result<RequestId, Refused> {
        let now = endpoint.now();
        if let Err(error) =
            self.admit(endpoint, &call, now, outgoing.byte_len() + later_bytes as usize)
        {
            return Err(Refused { error, outgoing: Some(outgoing) });
        }
        let entry = self.pending.vacant_entry();
        let id = RequestId(self.sequence << 16 | entry.key() as u64);
        let us = call.deadline.since(now).0.div_ceil(1000);
        let timeout_us = if call.deadline == Time::NEVER { 0 } else { us.min(u32::MAX.into()) };
        let fields = Fields {
            kind: Kind::Request,
            method: call.method,
            status: Status::OK,
            request: id.0,
            timeout_us: timeout_us as u32,
        };
        let options = SendOptions::new().token(id.0).deadline(call.deadline);
        let (link, channel, payload) =
            (self.link, self.channel, outgoing.finish_before(fields, later_bytes));
        let sent = match later_bytes {
            0 => endpoint.send(link, channel, payload, options),
            later => endpoint.send_growing(link, channel, payload, later, options),
        };
        let send = match sent {
            Ok(send) => send,
            Err(rejected) => {
                return Err(Refused { error: rejected.error.into(), outgoing: None });
            }
        };
        let Call { method, token, deadline, ask_fate } = call;
        entry.insert(Pending {
            id,
            method,
            token,
            deadline,
            send,
            missing: later_bytes,
            outcome: None,
            given_up: None,
            ask_fate,
            asked: false,
            told: false,
            began: now,
            slow: false,
        });
        self.sequence += 1;
        self.next_deadline = self.next_deadline.min(deadline);
        self.stats.requests += 1;
        Ok(id)
    }
}
