//! Filler: bytes that mean nothing and make a probe as long as a packet (docs/protocol.md
//! section 9).

use crate::error::EndpointError;
use towpath_memory::{Lent, Pool, Region};
use towpath_verbs::{Access, Device, Mtu, PdNum, Sge};

/// Zeroes for the device to read, of a whole packet.
#[derive(Debug)]
pub(crate) struct Filler {
    /// For good: every work request that names it only reads.
    zeroes: Option<Lent>,
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
        let zeroes = pool.take().expect("a fresh pool has its buffer").lend();
        let sge = zeroes.sge(lkey, 0, mtu.bytes() as usize);
        Ok(Self { zeroes: Some(zeroes), sge })
    }

    /// So many bytes of it, at most a packet.
    pub(crate) fn zeroes(&self, bytes: u32) -> Sge {
        Sge { length: bytes.min(self.sge.length), ..self.sge }
    }
}

impl Drop for Filler {
    /// What the device holds still is leaked.
    fn drop(&mut self) {
        drop(self.zeroes.take().map(Lent::reclaim));
    }
}
