//! What the driver says, as capabilities.

use crate::error::OpenError;
use crate::limits::{DELAY_NOISE, SOURCE_PORTS};
use crate::sys;
use crate::target::Target;
use crate::{gid, qps};
use std::net::IpAddr;
use std::sync::Arc;
use towpath_base::Nanos;
use towpath_verbs::{DeviceCaps, Mtu, QpType, SEND_SGE_MAX, VerbError, VerbSet};

/// The port that is used, and where it stands in the tables of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) number: u8,
    pub(crate) gid_index: u8,
    pub(crate) ip: IpAddr,
}

/// Looks the port of `target` up.
pub(crate) fn find_port(context: &sys::Context, target: &Target) -> Result<Port, OpenError> {
    let (name, port) = (|| context.name().to_owned(), target.port);
    let info = context.port_info(port).map_err(|errno| query(context, port, errno))?;
    if !info.ethernet {
        return Err(OpenError::NotEthernet { name: name(), port });
    }
    if !info.active {
        return Err(OpenError::PortDown { name: name(), port });
    }
    let usable = |index: u32| {
        let ip = gid::to_ip(context.gid(port, index)?)?;
        let fits = context.gid_type(port, index) == sys::GidType::RoceV2;
        Some((u8::try_from(index).ok()?, ip)).filter(|_| fits)
    };
    let found = match target.gid_index {
        Some(index) => usable(index),
        None => (0..info.gid_entries).filter_map(usable).min_by_key(|&(_, ip)| gid::rank(ip)),
    };
    match found {
        Some((gid_index, ip)) => Ok(Port { number: port, gid_index, ip }),
        None => Err(OpenError::NoAddress { name: name(), port, gid_index: target.gid_index }),
    }
}

/// A failed query.
pub(crate) fn query(context: &sys::Context, port: u8, errno: i32) -> OpenError {
    OpenError::Query { name: context.name().to_owned(), port, errno }
}

/// The capabilities of the device on that port, but for what needs a queue pair that runs: it is
/// not said to change source ports. Which queue pairs it has no driver tells: one of
/// each type is made and destroyed.
pub(crate) fn find(
    pd: &Arc<sys::Pd>,
    cq: &Arc<sys::Cq>,
    info: &sys::DeviceInfo,
    port: &sys::PortInfo,
    timestamps: bool,
) -> Result<DeviceCaps, VerbError> {
    let has = |qp_type| {
        let (send_cq, recv_cq) = (Arc::clone(cq), Arc::clone(cq));
        let parts = sys::QpParts { pd: Arc::clone(pd), send_cq, recv_cq, srq: None };
        is_there(sys::Qp::new(parts, qps::raw_type(qp_type), (1, 1), (1, 1), 0).map(drop))
    };
    let rc = has(QpType::Rc)?;
    let verbs = VerbSet {
        rc,
        uc: has(QpType::Uc)?,
        ud: has(QpType::Ud)?,
        read: rc && info.limits.max_qp_rd_atom > 0,
        atomics: rc && info.atomics,
        srq: info.limits.max_srq > 0,
        uc_srq_survives_loss: false,
    };
    Ok(DeviceCaps {
        verbs,
        mtu_max: mtu(port.active_mtu),
        message_bytes_max: port.max_msg_sz,
        send_sge_max: info.limits.max_sge.min(SEND_SGE_MAX as u32),
        qp_max: info.limits.max_qp,
        timestamps,
        source_ports: SOURCE_PORTS,
        source_port_live: false,
        rx_buffer_bytes: None,
        rx_charge_bytes: 0,
        delay_noise: if timestamps { Nanos::ZERO } else { DELAY_NOISE },
        delivers_intact: false,
        sends_at_once: false,
        arrives_in_progress: false,
        pins_memory: true,
        cuts_each_send: false,
        omits_icrc: false,
    })
}

/// Whether the device has what was tried; a refusal for another reason does not tell.
fn is_there(tried: Result<(), VerbError>) -> Result<bool, VerbError> {
    match tried {
        Ok(()) => Ok(true),
        Err(VerbError::Unsupported(_) | VerbError::BadArgument(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// `ibv_mtu` counts from 1, which is 256 bytes.
pub(crate) fn mtu(raw: u32) -> Mtu {
    let index = (raw as usize).saturating_sub(1).min(Mtu::ALL.len() - 1);
    Mtu::ALL[index]
}

/// The other way round.
pub(crate) fn raw_mtu(mtu: Mtu) -> u32 {
    Mtu::ALL.iter().zip(1..).find(|&(&each, _)| each == mtu).map_or(1, |(_, raw)| raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_verbs::Verb;

    #[test]
    fn a_device_without_room_is_not_taken_for_one_that_lacks_a_type() {
        let verb = Verb::CreateQp;
        assert_eq!(is_there(Ok(())), Ok(true));
        for refusal in [VerbError::Unsupported(verb), VerbError::BadArgument(verb)] {
            assert_eq!(is_there(Err(refusal)), Ok(false));
        }
        for refusal in [VerbError::OutOfResources(verb), VerbError::Os(verb, 5)] {
            assert_eq!(is_there(Err(refusal)), Err(refusal));
        }
    }

    #[test]
    fn an_mtu_comes_back_as_it_went() {
        for each in Mtu::ALL {
            assert_eq!(mtu(raw_mtu(each)), each);
        }
        assert_eq!((mtu(0), mtu(99)), (Mtu::Mtu256, Mtu::Mtu4096));
    }
}
