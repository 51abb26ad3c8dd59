//! Making queue pairs at both ends and joining them, as perftest does it: each end tells the
//! other its numbers on the set-up connection.

use super::Raw;
use super::memory::Memory;
use super::queue::Queue;
use crate::perftest::args::values::Connection;
use crate::perftest::control::{Control, Note};
use crate::perftest::error::{RunError, UsageError};
use crate::perftest::limits::{LATENCY_SIGNAL_EVERY, RAW_QP_TIMEOUT};
use crate::perftest::session::row_depth;
use crate::perftest::settings::Settings;
use crate::perftest::setup::Connected;
use crate::perftest::tool::Op;
use crate::random::random;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use towpath_base::serial::Psn;
use towpath_memory::Region;
use towpath_verbs::{
    Access, Connect, CqNum, Device, Mtu, QpInit, QpNum, QpType, RcAttr, RemoteAddr, UdAddress,
};

/// The queue key of raw datagrams: perftest's.
const QKEY: u32 = 0x1111_1111;

/// What an end tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RawEnd {
    /// Where its device takes packets.
    pub(crate) addr: SocketAddr,
    /// The longest packet that its port takes.
    pub(crate) mtu_bytes: u32,
    /// The number and first PSN of each queue pair.
    pub(crate) qps: Vec<(u32, u32)>,
    /// Its memory.
    pub(crate) rkey: u32,
    pub(crate) vaddr: u64,
}

impl RawEnd {
    /// As perftest prints it: the first queue pair, and the address as a GID.
    fn describe(&self) -> String {
        let (qpn, psn) = self.qps.first().copied().unwrap_or_default();
        let gid = match self.addr.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut text = format!(
            "LID 0000 QPN {qpn:#06x} PSN {psn:#08x} RKey {:#08x} VAddr {:#018x}\n GID: ",
            self.rkey, self.vaddr
        );
        for (at, byte) in gid.octets().into_iter().enumerate() {
            let colon = if at == 0 { "" } else { ":" };
            let _infallible = write!(text, "{colon}{byte:02}");
        }
        text
    }
}

/// Queue pairs on `device`, joined to those of the peer.
pub(crate) fn connect<D: Device<Memory = Region>>(
    settings: &Settings,
    mut device: D,
    control: &mut Control,
) -> Result<Connected<Raw<D>>, RunError> {
    let plan = &settings.plan;
    let memory = Memory::new(&mut device, settings)?;
    let depth_max = plan.sizes().into_iter().map(|size| row_depth(plan, size)).max().unwrap_or(1);
    let sends = depth_max.div_ceil(plan.qps) + LATENCY_SIGNAL_EVERY;
    let recvs = if plan.tool.op() == Op::Send { settings.rx_depth } else { 1 };
    let send_cq = device.create_cq(sends * plan.qps)?;
    let recv_cq = device.create_cq(recvs * plan.qps)?;
    let mut qps = Vec::new();
    for _ in 0..plan.qps {
        let init = QpInit {
            send_cq,
            recv_cq,
            ..QpInit::new(qp_type(plan.connection), CqNum(0)).access(Access::REMOTE_ALL)
        };
        let qp = device.create_qp(&init.depth(sends, recvs).qkey(QKEY))?;
        qps.push((qp.0, Psn::new(random() as u32).value()));
    }
    let ours = RawEnd {
        addr: device.local_addr(),
        mtu_bytes: mtu_to(&device, settings, control.addrs()?.1)?.bytes(),
        qps,
        rkey: memory.keys.rkey,
        vaddr: memory.addr(0),
    };
    control.send(&Note::Raw(ours.clone()))?;
    let theirs = control.expect("Raw", |note| match note {
        Note::Raw(end) => Some(end.clone()),
        _ => None,
    })?;
    let mtu = Mtu::at_most(ours.mtu_bytes.min(theirs.mtu_bytes)).unwrap_or(Mtu::Mtu256);
    let longest = plan.sizes().into_iter().max().unwrap_or(0);
    if plan.connection == Connection::Ud && longest > mtu.bytes() {
        return Err(UsageError::Datagram { size: longest, mtu: mtu.bytes() }.into());
    }
    let stride = memory.layout.target_stride;
    let queues = join(&mut device, settings, (&ours, &theirs), mtu, stride)?;
    let mut carrier = Raw::new(device, settings, memory, queues, (send_cq, recv_cq));
    carrier.watch(control);
    carrier.post_all_recvs(recvs)?;
    Ok(Connected { carrier, local: ours.describe(), remote: theirs.describe(), mtu: Some(mtu) })
}

/// What was asked for, or the largest MTU that the port and the way to `peer` carry.
fn mtu_to<D: Device<Memory = Region>>(
    device: &D,
    settings: &Settings,
    peer: IpAddr,
) -> Result<Mtu, RunError> {
    let way = device.path_mtu(Some(SocketAddr::new(peer, device.local_addr().port())));
    match settings.plan.mtu {
        None => Ok(way.mtu),
        Some(asked) if asked <= way.mtu => Ok(asked),
        Some(asked) => Err(RunError::Mtu { asked, way }),
    }
}

fn qp_type(connection: Connection) -> QpType {
    match connection {
        Connection::Uc => QpType::Uc,
        Connection::Ud => QpType::Ud,
        Connection::Rc | Connection::Tcp => QpType::Rc,
    }
}

fn join<D: Device<Memory = Region>>(
    device: &mut D,
    settings: &Settings,
    (ours, theirs): (&RawEnd, &RawEnd),
    path_mtu: Mtu,
    target_stride: usize,
) -> Result<Vec<Queue>, RunError> {
    if theirs.qps.len() != ours.qps.len() {
        let (ours, theirs) = (ours.qps.len(), theirs.qps.len());
        return Err(RunError::QueuePairs { ours, theirs });
    }
    let plan = &settings.plan;
    let rc = RcAttr {
        timeout: settings.qp_timeout.unwrap_or(RAW_QP_TIMEOUT),
        max_rd_atomic: plan.outs,
        max_dest_rd_atomic: plan.outs,
        ..RcAttr::default()
    };
    let mut queues = Vec::new();
    for (index, (&(qp_num, psn), &(peer_num, peer_psn))) in
        ours.qps.iter().zip(&theirs.qps).enumerate()
    {
        let dest_qp_num = QpNum(peer_num);
        let connect = Connect {
            dest: theirs.addr,
            dest_qp_num,
            rq_psn: Psn::new(peer_psn),
            sq_psn: Psn::new(psn),
            path_mtu,
            source_port: index as u16,
            tclass: settings.raw_tclass(),
            rc,
        };
        device.connect_qp(QpNum(qp_num), &connect)?;
        let ud = UdAddress { dest: theirs.addr, remote_qpn: dest_qp_num, remote_qkey: QKEY };
        let dest = (plan.connection == Connection::Ud).then_some(ud);
        let addr = theirs.vaddr.wrapping_add((index * target_stride) as u64);
        let remote = RemoteAddr { addr, rkey: theirs.rkey };
        queues.push(Queue::new(QpNum(qp_num), dest, remote));
    }
    Ok(queues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_described_as_perftest_does() {
        let end = RawEnd {
            addr: "10.0.0.2:4791".parse().unwrap(),
            mtu_bytes: 4096,
            qps: vec![(17, 0xabc)],
            rkey: 0x512,
            vaddr: 0x7f00_0000_1000,
        };
        let wanted = "LID 0000 QPN 0x0011 PSN 0x000abc RKey 0x000512 VAddr 0x00007f0000001000\n \
                      GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:02";
        assert_eq!(end.describe(), wanted);
    }
}
