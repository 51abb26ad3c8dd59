//! What a transfer has under way, each with the number by which its end is told.

use towpath_fastpath::{ClientError, Driver, Ended, Output, Ticket};
use towpath_transport::{Buf, Device, Endpoint, Region};

/// What is under way, `T` being what the transfer knows of each.
pub(super) struct Window<T> {
    under_way: Vec<(Ticket, T)>,
    /// Writes whose bytes are wanted once more.
    unfilled: Vec<Ticket>,
}

impl<T> Window<T> {
    pub(super) fn new(depth: usize) -> Self {
        Self { under_way: Vec::with_capacity(depth), unfilled: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.under_way.iter().map(|(_, of)| of)
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = T> {
        self.under_way.into_iter().map(|(_, of)| of)
    }

    pub(super) fn push(&mut self, ticket: Ticket, of: T) {
        self.under_way.push((ticket, of));
    }

    /// The next that has ended, and how.
    pub(super) fn next_ended<D: Device<Memory = Region>>(
        &mut self,
        driver: &mut Driver<D>,
    ) -> Option<(T, Result<Output, ClientError>)> {
        loop {
            match driver.next_ended()? {
                Ended::Refill(ticket) => self.unfilled.push(ticket),
                Ended::Done(ticket, result) => {
                    // One of an earlier transfer, which stopped early, is nobody's.
                    let at = self.under_way.iter().position(|(of, _)| *of == ticket);
                    if let Some(at) = at {
                        return Some((self.under_way.swap_remove(at).1, result));
                    }
                }
            }
        }
    }

    /// Gives writes their bytes that are made again, as far as there are buffers.
    pub(super) fn refill<D: Device<Memory = Region>, E>(
        &mut self,
        driver: &mut Driver<D>,
        byte_len: impl Fn(&T) -> usize,
        mut fill: impl FnMut(&T, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&ticket) = self.unfilled.last() {
            if let Some((_, of)) = self.under_way.iter().find(|(of, _)| *of == ticket) {
                let Some(mut data) = take_buf(driver.endpoint(), byte_len(of)) else { break };
                fill(of, &mut data)?;
                driver.refill(ticket, data);
            }
            self.unfilled.pop();
        }
        Ok(())
    }
}

/// A buffer for so many bytes, where one is free.
pub(super) fn take_buf<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    byte_len: usize,
) -> Option<Buf> {
    let mut buf = endpoint.alloc(byte_len).ok()?;
    buf.set_len(byte_len).ok()?;
    Some(buf)
}
