//! How a client joins: its queue pair is made, and it is told of it.

use super::super::counters::add;
use super::super::hello::{End, Refusal};
use super::super::slots::Slots;
use super::datagrams::Datagrams;
use super::{Id, Joined, Line, Peer, Port};
use crate::execute::Caller;
use crate::limits::RAW_SLOTS_PER_REQUEST;
use crate::raw::RawKind;
use crate::raw::hello::HELLO_BYTES;
use std::io::Write as _;
use towpath_base::serial::Psn;
use towpath_memory::Region;
use towpath_verbs::{Access, Connect, Device, Mtu, QpInit, QpNum, RcAttr, RecvWr, UdAddress};

/// The shortest message that an end must take: a reply with a short value, in the shortest packet.
const MESSAGE_BYTES_MIN: u32 = Mtu::Mtu256.bytes();

/// How often a reply is sent again to a client that has no receive for it, before its queue pair
/// fails: a client that keeps to the rules always has one.
const RNR_RETRY: u8 = 6;

impl<D: Device<Memory = Region>> Port<D> {
    /// Begins to serve a client, or tells it why not.
    pub(super) fn join(&mut self, joined: Joined) {
        let Joined { mut stream, hello } = joined;
        let (mut out, place) = (Vec::with_capacity(HELLO_BYTES), self.peers.vacant_key());
        let (line, end) = match self.line(&hello, place) {
            Ok(made) => made,
            Err(refusal) => {
                refusal.emit(&mut out);
                // Who is gone does not hear it.
                let _ = stream.write(&out);
                add(&self.raw.refused, 1);
                self.counters.disconnect();
                return self.doors.inbox.left();
            }
        };
        end.emit(&mut out);
        // The socket is new and has room for so little.
        let is_told = stream.write(&out).is_ok_and(|count| count == out.len());
        let reply_bytes_max = end.message_bytes_max;
        let watched = self.doors.watch(&stream, place);
        let peer = Peer { stream, line, caller: Caller::default(), reply_bytes_max };
        self.peers.insert(peer);
        if !is_told || watched.is_err() {
            self.close(place);
        }
    }

    /// The line of a client that gets this place, and what it is told of it.
    fn line(&mut self, hello: &End, place: usize) -> Result<(Line, End), Refusal> {
        let number = u32::try_from(place).map_err(|_| Refusal::TooManyClients)?;
        if hello.kind != self.kind {
            return Err(Refusal::Kind);
        }
        if self.peers.len() >= self.peers_max {
            return Err(Refusal::TooManyClients);
        }
        if self.is_cq_broken {
            return Err(Refusal::NoRoom);
        }
        let addr = self.device.local_addr();
        if hello.message_bytes_max < MESSAGE_BYTES_MIN || hello.addr.is_ipv4() != addr.is_ipv4() {
            return Err(Refusal::Malformed);
        }
        let mtu = self.device.path_mtu(Some(hello.addr)).mtu.min(hello.mtu);
        let end = End {
            kind: self.kind,
            mtu,
            qp_num: QpNum(0),
            psn: Psn::new(self.prng.next_u32()),
            qkey: 0,
            message_bytes_max: self.message_bytes_max.min(hello.message_bytes_max),
            under_way: self.under_way.min(hello.under_way),
            addr,
            number,
            grant: self.grant,
        };
        if let Some(datagrams) = &self.datagrams {
            let (remote_qpn, remote_qkey) = (hello.qp_num, hello.qkey);
            let remote = UdAddress { dest: hello.addr, remote_qpn, remote_qkey };
            let line = Line::Datagrams { remote, ip: hello.addr.ip() };
            let message_bytes_max = mtu.bytes().min(hello.message_bytes_max);
            let (qp_num, qkey) = (datagrams.qp, datagrams.qkey);
            return Ok((line, End { qp_num, qkey, message_bytes_max, ..end }));
        }
        let (qp, slots) = self.connect(hello, &end, place)?;
        Ok((Line::Connected { qp, slots }, End { qp_num: qp, ..end }))
    }

    /// A queue pair for one client, joined to its own.
    fn connect(&mut self, hello: &End, end: &End, place: usize) -> Result<(QpNum, Slots), Refusal> {
        let (count, qp_type) =
            (RAW_SLOTS_PER_REQUEST * u32::from(end.under_way), end.kind.qp_type());
        let longest = end.message_bytes_max;
        let slots = Slots::new(&mut self.device, (count, qp_type), longest, longest);
        let slots = slots.map_err(|_| Refusal::NoRoom)?;
        let reading = Access { remote_read: self.grant.is_some(), ..Access::LOCAL };
        let init = QpInit::new(qp_type, self.cq).depth(count, count).access(reading);
        let Ok(qp) = self.device.create_qp(&init) else {
            slots.free(&mut self.device);
            return Err(Refusal::NoRoom);
        };
        let recvs: Vec<RecvWr> =
            (0..count).map(|slot| slots.recv(Id::recv(place, slot), slot)).collect();
        let rc = match end.kind {
            RawKind::Rc => RcAttr { rnr_retry: RNR_RETRY, ..RcAttr::default() },
            RawKind::Uc | RawKind::Ud => RcAttr::default(),
        };
        let connect = Connect {
            dest: hello.addr,
            dest_qp_num: hello.qp_num,
            rq_psn: hello.psn,
            sq_psn: end.psn,
            path_mtu: end.mtu,
            source_port: place as u16,
            tclass: 0,
            rc,
        };
        let posted = self.device.post_recv(qp, &recvs).map_err(|bad| bad.error);
        if posted.and_then(|()| self.device.connect_qp(qp, &connect)).is_err() {
            let _ = self.device.destroy_qp(qp);
            slots.free(&mut self.device);
            return Err(Refusal::Malformed);
        }
        Ok((qp, slots))
    }

    /// Makes the queue pair for datagrams anew after it failed; its clients have to join again.
    pub(super) fn mend(&mut self) {
        if !self.datagrams.as_ref().is_some_and(|datagrams| datagrams.is_broken) {
            return;
        }
        add(&self.raw.failed, self.peers.len() as u64);
        self.close_all();
        if let Ok(made) = Datagrams::new(&mut self.device, self.cq, self.prng.next_u32())
            && let Some(old) = self.datagrams.replace(made)
        {
            let _ = self.device.destroy_qp(old.qp);
            old.slots.free(&mut self.device);
            self.has_remains = true;
        }
    }
}
