//! Filler: bytes that mean nothing and make a probe as long as a packet (docs/protocol.md
//! section 9).

use crate::error::EndpointError;
use crate::held::Held;
use towpath_memory::{Pool, Region};
use towpath_verbs::{Access, Device, Mtu, PdNum, Sge};

/// Zeroes for the device to read, of a whole packet.
#[derive(Debug)]
pub(crate) struct Filler {
    _zeroes: Held,
    sge: Sge,
}

impl Filler {
    /// Of the longest packet.
    pub(crate) fn on<D>(device: &mut D, mtu: Mtu) -> Result<Self, EndpointError>
    where
        D: Device<Memory = Region>,
    {
        let pool = Pool::with_count(mtu.bytes() as usize, 1)?;
        let lkey = device.reg_mr(PdNum::DEFAULT, pool.region(), Access::LOCAL)?.lkey;
        let mut zeroes = Held::new(pool.take().expect("a fresh pool has its buffer"));
        // For good: every work request that names it only reads.
        zeroes.lend();
        let sge = zeroes.sge(lkey, mtu.bytes() as usize);
        Ok(Self { _zeroes: zeroes, sge })
    }

    /// So many bytes of it, at most a packet.
    pub(crate) fn zeroes(&self, bytes: u32) -> Sge {
        Sge { length: bytes.min(self.sge.length), ..self.sge }
    }
}
