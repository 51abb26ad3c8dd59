//! GETs that wake nobody at the server: the client reads published memory by itself.

use super::ClientConfig;
use super::calls::{Client, ClientError};
use super::{Transport, TransportError};
use crate::limits::{ONE_SIDED_TIME, ONE_SIDED_TRIES};
use crate::published::{Found, SHAPE_BYTES, Shape, find};
use std::time::Duration;

/// Memory of a server that a client may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Tells it from what was granted before, to this transport.
    pub id: u64,
    /// Its length.
    pub bytes: u64,
}

/// A transport by which a client also reads memory of the server.
pub trait Reads: Transport {
    /// What may be read now; none where nothing was granted, or there is no connection.
    fn granted(&mut self) -> Option<Granted>;

    /// Reads `out.len()` bytes of granted memory, `offset` bytes from its begin on; whether they
    /// came within `timeout`. They need not be of one moment.
    ///
    /// # Errors
    /// As of [`send`](Transport::send).
    fn read(
        &mut self,
        offset: u64,
        out: &mut [u8],
        timeout: Duration,
    ) -> Result<bool, TransportError>;
}

impl<T: Reads + ?Sized> Reads for Box<T> {
    fn granted(&mut self) -> Option<Granted> {
        (**self).granted()
    }

    fn read(
        &mut self,
        offset: u64,
        out: &mut [u8],
        timeout: Duration,
    ) -> Result<bool, TransportError> {
        (**self).read(offset, out, timeout)
    }
}

/// What became of GETs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneSidedStats {
    /// Those that were answered by reading alone.
    pub found: u64,
    /// Those that the server was asked for, because the key was not there.
    pub absent: u64,
    /// Those that it was asked for, because a bucket could not be read in as many tries as there
    /// may be, or reading failed.
    pub unread: u64,
    /// Those that it was asked for, because it has granted nothing that can be read.
    pub ungranted: u64,
    /// Buckets that were read while a key of theirs was changed.
    pub closed: u64,
    /// Buckets whose bytes were not of one moment.
    pub torn: u64,
}

/// A client that reads values by itself where it can, and asks for all else.
#[derive(Debug)]
pub struct OneSided<T> {
    client: Client<T>,
    map: Option<(u64, Shape)>,
    /// A grant whose memory has no shape.
    useless: Option<u64>,
    bucket: Vec<u8>,
    stats: OneSidedStats,
}

impl<T: Reads> OneSided<T> {
    /// A client with a number at random.
    #[must_use]
    pub fn new(transport: T, config: ClientConfig) -> Self {
        Self::over(Client::new(transport, config))
    }

    /// Reads for this client.
    #[must_use]
    pub fn over(client: Client<T>) -> Self {
        let stats = OneSidedStats::default();
        Self { client, map: None, useless: None, bucket: Vec::new(), stats }
    }

    /// The client, for all that is not GET.
    pub fn client(&mut self) -> &mut Client<T> {
        &mut self.client
    }

    /// What became of GETs.
    #[must_use]
    pub fn stats(&self) -> OneSidedStats {
        self.stats
    }

    /// Reads a value; none where there is none. It is what the key had at one moment between begin
    /// and end of this call.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        match self.look(key) {
            Some(value) => Ok(Some(value)),
            None => self.client.get(key),
        }
    }

    /// The value of a key, by reading alone.
    fn look(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let Some(shape) = self.shape() else {
            self.stats.ungranted += 1;
            return None;
        };
        self.bucket.resize(shape.bucket_bytes(), 0);
        let place = shape.place(shape.bucket_of(key)) as u64;
        for _ in 0..ONE_SIDED_TRIES {
            // A connection that is gone is made anew by the request that follows.
            let read = self.client.transport().read(place, &mut self.bucket, ONE_SIDED_TIME);
            if !read.unwrap_or(false) {
                break;
            }
            match find(&self.bucket, shape.slot_bytes, key) {
                Found::Value(value) => {
                    self.stats.found += 1;
                    return Some(value.to_vec());
                }
                Found::Absent => {
                    self.stats.absent += 1;
                    return None;
                }
                Found::Closed => self.stats.closed += 1,
                Found::Torn => self.stats.torn += 1,
            }
        }
        self.stats.unread += 1;
        None
    }

    /// How the memory that is granted now is laid out.
    fn shape(&mut self) -> Option<Shape> {
        let granted = self.client.transport().granted()?;
        if let Some((_, shape)) = self.map.filter(|(id, _)| *id == granted.id) {
            return Some(shape);
        }
        if self.useless == Some(granted.id) || granted.bytes < SHAPE_BYTES as u64 {
            return None;
        }
        let mut bytes = [0; SHAPE_BYTES];
        let read = self.client.transport().read(0, &mut bytes, ONE_SIDED_TIME);
        if !read.unwrap_or(false) {
            return None;
        }
        match Shape::parse(&bytes, granted.bytes) {
            Ok(shape) => {
                self.map = Some((granted.id, shape));
                Some(shape)
            }
            Err(_) => {
                // It does not change any more.
                self.useless = Some(granted.id);
                None
            }
        }
    }
}
