//! A transport that loses requests and replies, and its connection, by a seed.

use std::time::Duration;
use towpath_base::Prng;
use towpath_kv::client::{Sign, Transport, TransportError, Watched};

/// Around another transport.
#[derive(Debug)]
pub struct Lossy<T> {
    inner: T,
    prng: Prng,
    loss: f64,
    /// The next reply is lost: nothing comes within the time.
    loses_reply: bool,
}

impl<T> Lossy<T> {
    /// Loses this share of requests and of replies each, and a quarter as many connections.
    pub fn new(inner: T, loss: f64, seed: u64) -> Self {
        Self { inner, prng: Prng::new(seed), loss, loses_reply: false }
    }
}

impl<T: Transport> Transport for Lossy<T> {
    fn send(&mut self, request: &[u8]) -> Result<(), TransportError> {
        self.loses_reply = self.prng.chance(self.loss);
        if self.prng.chance(self.loss / 4.0) {
            // What was under way may have come.
            self.inner.send(request)?;
            return Err(TransportError::Gone(String::from("by the seed")));
        }
        if self.prng.chance(self.loss) { Ok(()) } else { self.inner.send(request) }
    }

    fn receive(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        if std::mem::take(&mut self.loses_reply) {
            self.inner.receive(timeout, &mut |_| ())?;
            return Ok(false);
        }
        self.inner.receive(timeout, take)
    }

    fn renew(&mut self, timeout: Duration) -> Result<(), TransportError> {
        self.inner.renew(timeout)
    }
}

impl<T: Watched> Watched for Lossy<T> {
    fn watch(&mut self, sign: &Sign) -> Result<bool, TransportError> {
        self.inner.watch(sign)
    }
}
