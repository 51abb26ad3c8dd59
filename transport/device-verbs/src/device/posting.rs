//! Hands work requests to the driver.

use super::connect::ah_attr;
use super::{Shared, VerbsDevice};
use crate::caps::Port;
use crate::limits::AH_MAX;
use crate::qps::{PostedSend, Qp, Route};
use crate::queue::{Kind, PostedRecv, Ticket};
use crate::regions::Regions;
use crate::sys::{self, Refused, ibv_recv_wr};
use crate::{completions, wr};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use towpath_verbs::{
    BadWr, DeviceCaps, PdNum, QpNum, QpState, RecvWr, SendWr, SrqNum, Verb, VerbError,
};

/// The ways that datagrams took so far.
#[derive(Default)]
pub(super) struct Handles {
    entries: BTreeMap<(IpAddr, Route), sys::Ah>,
}

impl Handles {
    fn to(
        &mut self,
        pd: &Arc<sys::Pd>,
        port: &Port,
        dest: IpAddr,
        route: Route,
    ) -> Result<&sys::Ah, VerbError> {
        if !self.entries.contains_key(&(dest, route)) {
            if dest.is_ipv4() != port.ip.is_ipv4() {
                return Err(VerbError::BadArgument(Verb::PostSend));
            }
            if self.entries.len() == AH_MAX {
                return Err(VerbError::OutOfResources(Verb::PostSend));
            }
            let ah = sys::Ah::new(pd, ah_attr(port, dest, route))?;
            self.entries.insert((dest, route), ah);
        }
        self.entries.get(&(dest, route)).ok_or(VerbError::OutOfResources(Verb::PostSend))
    }
}

/// Whether the queue pair may post this send now.
fn check_send<const N: usize>(
    wr: &SendWr<N>,
    qp: &mut Qp,
    caps: &DeviceCaps,
    regions: &mut Regions,
) -> Result<(), VerbError> {
    wr::check(wr, &qp.init, caps)?;
    if qp.sends.room() == 0 {
        return Err(VerbError::QueueFull(Verb::PostSend));
    }
    let writes = wr::lands_here(&wr.op);
    if !regions.hold(qp.init.pd, &wr.sg_list, writes, &mut qp.send_holds) {
        return Err(VerbError::BadMemory(Verb::PostSend));
    }
    Ok(())
}

/// Takes back what the driver refused of the sends that were posted last, so many.
fn unpost(qp: &mut Qp, count: usize, regions: &mut Regions) {
    let holds: usize = qp.sends.unpush(count).map(|send| send.holds as usize).sum();
    let kept = qp.send_holds.len().saturating_sub(holds);
    regions.release(qp.send_holds.drain(kept..));
}

fn raw_recv(ticket: Ticket) -> ibv_recv_wr {
    let mut raw = sys::empty_recv_wr();
    raw.wr_id = ticket.pack();
    raw
}

/// What a batch came to: how many of its entries are posted, and why the next one is not.
type Batch = (usize, Option<VerbError>);

/// Posts batch by batch until all is posted or one entry is refused.
fn in_batches<W>(wrs: &[W], mut post: impl FnMut(&[W]) -> Batch) -> Result<(), BadWr> {
    let mut index = 0;
    while index < wrs.len() {
        let (posted, refused) = post(&wrs[index..]);
        index += posted;
        if let Some(error) = refused {
            return Err(BadWr { index, error });
        }
    }
    Ok(())
}

impl VerbsDevice {
    pub(super) fn post_sends<const N: usize>(
        &mut self,
        num: QpNum,
        wrs: &[SendWr<N>],
    ) -> Result<(), BadWr> {
        let verb = Verb::PostSend;
        let refuse = |error| Err(BadWr { index: 0, error });
        let slot = self.qps.slot_of(num);
        let Some((slot, qp)) = slot.and_then(|slot| Some((slot, self.qps.at_mut(slot)?))) else {
            return refuse(VerbError::NoSuchObject(verb));
        };
        if qp.state != QpState::Rts {
            return refuse(VerbError::WrongState(verb));
        }
        let chain = &mut self.sends;
        in_batches(wrs, |wrs| {
            chain.clear();
            let mut bad = None;
            for wr in wrs {
                if chain.is_full() {
                    break;
                }
                let handle = match &wr.ud {
                    None => Ok(None),
                    Some(address) => {
                        let dest = address.dest.ip();
                        self.handles.to(&self.pd, &self.port, dest, qp.route).map(Some)
                    }
                };
                let checked = handle
                    .and_then(|ah| check_send(wr, qp, &self.caps, &mut self.regions).map(|()| ah));
                match checked {
                    Ok(ah) => {
                        let place = qp.sends.tail();
                        let ticket = Ticket { kind: Kind::Send, owner: slot, place };
                        let inline = qp.raw.inline_bytes_max();
                        chain.push(wr::raw(wr, ticket.pack(), ah, inline), &wr.sg_list);
                        let opcode = completions::send_opcode(&wr.op);
                        let holds = wr.sg_list.len() as u32;
                        qp.sends.push(PostedSend { wr_id: wr.wr_id, opcode, holds });
                    }
                    Err(error) => {
                        bad = Some(error);
                        break;
                    }
                }
            }
            let count = chain.len();
            let posted = if count == 0 { Ok(()) } else { qp.raw.post_send(chain) };
            match posted {
                Ok(()) => (count, bad),
                Err(Refused { taken, error }) => {
                    unpost(qp, count - taken.min(count), &mut self.regions);
                    (taken, Some(error))
                }
            }
        })
    }

    pub(super) fn post_receives(&mut self, num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        let verb = Verb::PostRecv;
        let refuse = |error| Err(BadWr { index: 0, error });
        let slot = self.qps.slot_of(num);
        let Some((slot, qp)) = slot.and_then(|slot| Some((slot, self.qps.at_mut(slot)?))) else {
            return refuse(VerbError::NoSuchObject(verb));
        };
        let open = matches!(qp.state, QpState::Init | QpState::Rtr | QpState::Rts);
        if !open || qp.init.srq.is_some() {
            return refuse(VerbError::WrongState(verb));
        }
        let (chain, regions) = (&mut self.recvs, &mut self.regions);
        in_batches(wrs, |wrs| {
            chain.clear();
            let mut bad = None;
            for wr in wrs {
                if chain.is_full() {
                    break;
                }
                if qp.recvs.room() == 0 {
                    bad = Some(VerbError::QueueFull(verb));
                    break;
                }
                let Some(list) = regions.hold_list(qp.init.pd, &wr.sg_list) else {
                    bad = Some(VerbError::BadMemory(verb));
                    break;
                };
                let ticket = Ticket { kind: Kind::Recv, owner: slot, place: qp.recvs.tail() };
                chain.push(raw_recv(ticket), &wr.sg_list);
                qp.recvs.push(PostedRecv { wr_id: wr.wr_id, list });
            }
            let count = chain.len();
            let posted = if count == 0 { Ok(()) } else { qp.raw.post_recv(chain) };
            match posted {
                Ok(()) => (count, bad),
                Err(Refused { taken, error }) => {
                    let refused = qp.recvs.unpush(count - taken.min(count));
                    refused.for_each(|recv| regions.release_all(recv.list));
                    (taken, Some(error))
                }
            }
        })
    }

    pub(super) fn post_shared(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        let verb = Verb::PostSrqRecv;
        let owner = srq.0 as usize;
        let Some(Shared { raw, posted }) = self.srqs.get_mut(owner) else {
            return Err(BadWr { index: 0, error: VerbError::NoSuchObject(verb) });
        };
        let (chain, regions) = (&mut self.recvs, &mut self.regions);
        // One by one: which places a refused rest of a batch took would have to be remembered.
        in_batches(wrs, |wrs| {
            let wr = &wrs[0];
            if posted.is_full() {
                return (0, Some(VerbError::QueueFull(verb)));
            }
            let Some(list) = regions.hold_list(PdNum::DEFAULT, &wr.sg_list) else {
                return (0, Some(VerbError::BadMemory(verb)));
            };
            let entry = PostedRecv { wr_id: wr.wr_id, list };
            let Some(place) = posted.put(entry) else {
                return (0, Some(VerbError::QueueFull(verb)));
            };
            chain.clear();
            chain.push(raw_recv(Ticket { kind: Kind::Srq, owner, place }), &wr.sg_list);
            match raw.post(chain) {
                Ok(()) => (1, None),
                Err(Refused { error, .. }) => {
                    if let Some(refused) = posted.take(place) {
                        regions.release_all(refused.list);
                    }
                    (0, Some(error))
                }
            }
        })
    }
}
