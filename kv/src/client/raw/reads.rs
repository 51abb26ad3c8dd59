//! READs of memory that the server grants, over the queue pair of RC.

use super::{READ, RawTransport, gone};
use crate::client::{Granted, Reads, TransportError};
use std::time::{Duration, Instant};
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, Device, MrKeys, PdNum, RemoteAddr, SendOp, SendWr, SgList, Sge, VerbError,
};

/// Where READs land.
pub(super) struct Landing {
    memory: SharedMemory,
    pub(super) keys: MrKeys,
}

impl<D: Device<Memory = Region>> RawTransport<D> {
    /// Memory for so many bytes to land in.
    fn landing(&mut self, bytes: usize) -> Result<Sge, TransportError> {
        let length = u32::try_from(bytes).map_err(|error| gone(&error))?;
        let is_short = |landing: &mut Landing| landing.memory.byte_len() < bytes;
        if let Some(old) = self.landing.take_if(is_short) {
            // It was registered there, or the device is gone with all that it had.
            let _ = self.device.dereg_mr(old.keys.lkey);
        }
        let landing = match self.landing.take() {
            Some(landing) => landing,
            None => {
                let memory = SharedMemory::new(bytes).map_err(|error| gone(&error))?;
                let whole = memory.whole();
                let pd = PdNum::DEFAULT;
                let keys = self.device.reg_shared_mr(pd, &memory, whole, Access::LOCAL);
                Landing { keys: keys.map_err(|error: VerbError| gone(&error))?, memory }
            }
        };
        let sge = Sge { addr: landing.memory.addr(), length, lkey: landing.keys.lkey };
        self.landing = Some(landing);
        Ok(sge)
    }
}

impl<D: Device<Memory = Region> + Send> Reads for RawTransport<D> {
    fn granted(&mut self) -> Option<Granted> {
        let grant = self.line.as_ref()?.grant?;
        Some(Granted { id: self.lines, bytes: grant.bytes })
    }

    fn read(
        &mut self,
        offset: u64,
        out: &mut [u8],
        timeout: Duration,
    ) -> Result<bool, TransportError> {
        let Some(grant) = self.line.as_ref().and_then(|line| line.grant) else { return Ok(false) };
        let end = offset.checked_add(out.len() as u64);
        if out.is_empty() || end.is_none_or(|end| end > grant.bytes) {
            return Ok(false);
        }
        let list = SgList::one(self.landing(out.len())?);
        let Some(line) = &mut self.line else { return Ok(false) };
        self.reads += 1;
        line.read = None;
        let remote = RemoteAddr { addr: grant.addr + offset, rkey: grant.rkey };
        let wr: SendWr = SendWr::new(READ | self.reads, SendOp::Read { remote }, list);
        self.device.post_send(line.qp, &[wr]).map_err(|bad| gone(&bad))?;
        self.device.progress(0);
        let until = Instant::now() + timeout;
        loop {
            if self.line.as_ref().is_some_and(|line| line.read.is_some()) {
                self.idle = 0;
                let landing = self.landing.as_ref().ok_or_else(|| gone(&"nothing landed"))?;
                landing.memory.read(0, out).map_err(|error| gone(&error))?;
                return Ok(true);
            }
            if self.turn()? {
                continue;
            }
            if Instant::now() >= until {
                // What it lands in is the device's for as long as the queue pair is there.
                self.leave();
                return Ok(false);
            }
            self.rest(until)?;
        }
    }
}
