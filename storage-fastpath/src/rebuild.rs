//! A range of a lost part, made anew on its way through the servers that have others
//! (docs/storage-protocol.md section 12).

use crate::change::Terms;
use crate::limits::IO_BYTES_MAX;
use crate::route::{NODE_BYTES, RouteError, STRIPE_MAX, node, plain_servers, server};
use crate::slice::{ChunkId, SLICE_BYTES, Span, writer_crcs};
use crate::wire::{Sender, WireError, WriteHeader, check_chain, emit_crcs};
use std::net::SocketAddr;
use towpath_base::crc::crc32c;

const HEAD_BYTES: usize = 56 + NODE_BYTES;
const HELPER_BYTES: usize = NODE_BYTES + 32;
const CRC_AT: usize = 4;
/// The target must have the expected version.
const HAS_VERSION: u16 = 1;

/// A server that has a part which helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helper {
    /// The server.
    pub server: SocketAddr,
    /// The chunk with its part.
    pub chunk: ChunkId,
    /// The version that the chunk must have: sums are of no other one.
    pub version: u64,
    /// What its part is multiplied by, in GF(2^8).
    pub coefficient: u8,
}

/// Where the sum is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The server.
    pub server: SocketAddr,
    /// The chunk.
    pub chunk: ChunkId,
    /// First byte: that of a slice. It is the same of all parts.
    pub offset: u64,
    /// Bytes: whole slices.
    pub length: u32,
    /// On what terms it is written.
    pub terms: Terms,
}

/// A range of a part that is made of the same range of others, server by server: each adds its
/// own, times its coefficient, to what the one before sends, and the last one writes the sum.
///
/// So each server sends and receives the range once at most, and nothing of it passes through who
/// asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// Of the server that gets it: one of the helpers, or behind the last of them the target.
    rank: u8,
    helpers: Vec<Helper>,
    target: Rebuilt,
}

impl Rebuild {
    /// Through these helpers, in this order. The first one is asked.
    ///
    /// # Errors
    /// [`RouteError`].
    pub fn new(helpers: &[Helper], target: Rebuilt) -> Result<Self, RouteError> {
        Self::at(0, helpers.to_vec(), target)
    }

    fn at(rank: u8, mut helpers: Vec<Helper>, mut target: Rebuilt) -> Result<Self, RouteError> {
        let servers = helpers.iter().map(|helper| helper.server).chain([target.server]);
        let servers = plain_servers(servers, STRIPE_MAX)?;
        let last = servers.len() - 1;
        if last == 0 || usize::from(rank) > last {
            return Err(RouteError::Rank(rank));
        }
        target.server = servers[last];
        helpers.iter_mut().zip(servers).for_each(|(helper, server)| helper.server = server);
        Ok(Self { rank, helpers, target })
    }

    /// The rank of the server that gets it, from 0; that of the target is the number of helpers.
    #[must_use]
    pub fn rank(&self) -> u8 {
        self.rank
    }

    /// The servers that it goes to from this one on, this one not counted.
    #[must_use]
    pub fn servers_left(&self) -> u64 {
        self.helpers.len() as u64 - u64::from(self.rank)
    }

    /// The helper that gets it; none where that is the target.
    #[must_use]
    pub fn helper(&self) -> Option<&Helper> {
        self.helpers.get(usize::from(self.rank))
    }

    /// Where the sum is written.
    #[must_use]
    pub fn target(&self) -> &Rebuilt {
        &self.target
    }

    /// As the next server gets it, and who that is; none at the target.
    #[must_use]
    pub fn onward(&self) -> Option<(Self, SocketAddr)> {
        let rank = self.rank + 1;
        let behind = self.helpers.get(usize::from(rank)).map(|helper| helper.server);
        let server = behind.or(self.helper().map(|_| self.target.server))?;
        Some((Self { rank, ..self.clone() }, server))
    }

    /// Bytes of data that come with it: the first helper begins the sum.
    #[must_use]
    pub fn data_len(&self) -> u32 {
        if self.rank == 0 { 0 } else { self.target.length }
    }

    /// The write at the target.
    #[must_use]
    pub fn write_header(&self) -> WriteHeader {
        let Rebuilt { chunk, offset, length, terms, .. } = self.target;
        WriteHeader { chunk, offset, length, sender: Sender::default(), terms }
    }

    /// The checksums with which the target gets the sum, as bytes.
    #[must_use]
    pub fn crcs_of(&self, sum: &[u8]) -> Vec<u8> {
        emit_crcs(&writer_crcs(self.target.chunk, self.target.offset, sum)).to_vec()
    }

    /// It as bytes; checksums follow it to the target.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let Rebuilt { server, chunk, offset, length, terms } = self.target;
        let flags = if terms.version.is_some() { HAS_VERSION } else { 0 };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + HELPER_BYTES * self.helpers.len());
        bytes.extend_from_slice(&[self.rank, self.helpers.len() as u8]);
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&chunk.0.to_le_bytes());
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&terms.chain.to_le_bytes());
        bytes.extend_from_slice(&terms.version.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&terms.stamp.to_le_bytes());
        bytes.extend_from_slice(&node(server));
        for Helper { server, chunk, version, coefficient } in &self.helpers {
            bytes.extend_from_slice(&node(*server));
            bytes.extend_from_slice(&chunk.0.to_le_bytes());
            bytes.extend_from_slice(&version.to_le_bytes());
            bytes.extend_from_slice(&[*coefficient, 0, 0, 0, 0, 0, 0, 0]);
        }
        let crc = crc32c(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// From bytes, with the checksums of the slices where the target gets it.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<(Self, Vec<u32>), WireError> {
        let short = |needed| WireError::Short { found: body.len(), needed };
        let head = body.first_chunk::<HEAD_BYTES>().ok_or(short(HEAD_BYTES))?;
        let (rank, count) = (head[0], usize::from(head[1]));
        let byte_len = HEAD_BYTES + HELPER_BYTES * count;
        let (plan, rest) = body.split_at_checked(byte_len).ok_or(short(byte_len))?;
        let mut zeroed = plan.to_vec();
        zeroed[CRC_AT..CRC_AT + 4].fill(0);
        if u32::from_le_bytes(at(plan, CRC_AT)) != crc32c(&zeroed) {
            return Err(WireError::HeaderCrc);
        }
        let target = target(head)?;
        let helpers = plan[HEAD_BYTES..].chunks_exact(HELPER_BYTES).map(helper);
        let helpers = helpers.collect::<Result<Vec<Helper>, WireError>>()?;
        let plan = Self::at(rank, helpers, target).map_err(|_| WireError::Route)?;
        let is_target = plan.helper().is_none();
        let slices = plan.target.span().count();
        let expected = if is_target { slices } else { 0 };
        if rest.len() as u64 != 4 * expected {
            let found = (rest.len() / 4) as u32;
            return Err(WireError::CrcCount { expected, found });
        }
        let crcs = rest.chunks_exact(4).map(|crc| u32::from_le_bytes(at(crc, 0)));
        Ok((plan, crcs.collect()))
    }
}

impl Rebuilt {
    /// The range.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.offset, self.length.into())
    }
}

/// So many bytes of others, which are there.
fn at<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    bytes.get(from..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn target(head: &[u8; HEAD_BYTES]) -> Result<Rebuilt, WireError> {
    let flags = u16::from_le_bytes(at(head, 2));
    let (offset, length) = (u64::from_le_bytes(at(head, 24)), u32::from_le_bytes(at(head, 32)));
    let chain = check_chain(u32::from_le_bytes(at(head, 36)).into())?;
    let (version, stamp) = (u64::from_le_bytes(at(head, 40)), u64::from_le_bytes(at(head, 48)));
    let has_version = flags & HAS_VERSION != 0;
    if flags & !HAS_VERSION != 0 || (!has_version && version != 0) {
        return Err(WireError::Reserved("a bit or word of a rebuild"));
    }
    let slice = SLICE_BYTES as u64;
    if length == 0 || length as usize > IO_BYTES_MAX || length % SLICE_BYTES as u32 != 0 {
        return Err(WireError::Length(length));
    }
    if !offset.is_multiple_of(slice) {
        return Err(WireError::Unaligned(offset));
    }
    if offset.checked_add(length.into()).is_none() {
        return Err(WireError::Range { offset, length });
    }
    let server = server(&head[56..]).ok_or(WireError::Reserved("a byte of an address"))?;
    let terms = Terms { version: has_version.then_some(version), stamp, chain };
    Ok(Rebuilt { server, chunk: ChunkId(u128::from_le_bytes(at(head, 8))), offset, length, terms })
}

fn helper(bytes: &[u8]) -> Result<Helper, WireError> {
    let server = server(&bytes[..NODE_BYTES]);
    let server = server.ok_or(WireError::Reserved("a byte of an address"))?;
    let [coefficient, zeros @ ..] = at::<8>(bytes, NODE_BYTES + 24);
    if zeros != [0; 7] {
        return Err(WireError::Reserved("a byte of a helper"));
    }
    let chunk = ChunkId(u128::from_le_bytes(at(bytes, NODE_BYTES)));
    let version = u64::from_le_bytes(at(bytes, NODE_BYTES + 16));
    Ok(Helper { server, chunk, version, coefficient })
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    fn place(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 7400))
    }

    fn plan(helpers: u8, version: Option<u64>) -> Rebuild {
        let helper = |number: u8| Helper {
            server: place(number),
            chunk: ChunkId(number.into()),
            version: 70 + u64::from(number),
            coefficient: 3 * number,
        };
        let helpers: Vec<Helper> = (1..=helpers).map(helper).collect();
        let terms = Terms { version, stamp: 5, chain: 6 };
        let (chunk, offset, length) = (ChunkId(99), 8_192, 12_288);
        let target = Rebuilt { server: place(200), chunk, offset, length, terms };
        Rebuild::new(&helpers, target).expect("a plan")
    }

    #[test]
    fn a_rebuild_is_read_at_each_server_as_it_was_sent_on_and_ends_at_its_target() {
        for helpers in [1, 2, 6, 31] {
            for version in [None, Some(0), Some(9)] {
                let (mut at, mut reached) = (plan(helpers, version), Vec::new());
                assert_eq!(at.data_len(), 0);
                while let Some((next, server)) = at.onward() {
                    assert_eq!(Rebuild::parse(&at.emit()), Ok((at.clone(), Vec::new())));
                    reached.push(server);
                    at = next;
                    assert_eq!(at.data_len(), 12_288);
                }
                let expected = (2..=helpers).chain([200]).map(place);
                assert_eq!(reached, expected.collect::<Vec<_>>());
                assert_eq!((at.helper(), at.servers_left()), (None, 0));
                let crcs = at.crcs_of(&[1; 12_288]);
                let body = [at.emit(), crcs].concat();
                let crcs = writer_crcs(ChunkId(99), 8_192, &[1; 12_288]);
                assert_eq!(Rebuild::parse(&body), Ok((at.clone(), crcs)));
                let bare = Rebuild::parse(&at.emit());
                assert_eq!(bare, Err(WireError::CrcCount { expected: 3, found: 0 }));
            }
        }
    }

    #[test]
    fn no_byte_of_a_rebuild_can_be_changed_or_be_missing() {
        let seed = 71;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let bytes = plan(5, Some(9)).emit();
        for _ in 0..2_000 {
            let mut other = bytes.clone();
            let at = prng.below(other.len() as u64) as usize;
            other[at] ^= 1 << prng.below(8);
            assert!(Rebuild::parse(&other).is_err());
            let cut = prng.below(bytes.len() as u64) as usize;
            assert!(Rebuild::parse(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn what_has_a_right_checksum_and_is_no_rebuild_is_refused() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = plan(3, None).emit();
            change(&mut bytes);
            bytes[CRC_AT..CRC_AT + 4].fill(0);
            let crc = crc32c(&bytes);
            bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
            Rebuild::parse(&bytes)
        };
        assert!(with(&|_| {}).is_ok());
        assert_eq!(with(&|bytes| bytes[0] = 4), Err(WireError::Route), "a rank beyond the target");
        assert_eq!(with(&|bytes| bytes[32] = 1), Err(WireError::Length(12_289)));
        assert_eq!(with(&|bytes| bytes[32..36].fill(0)), Err(WireError::Length(0)));
        assert_eq!(with(&|bytes| bytes[24] = 1), Err(WireError::Unaligned(8_193)));
        let range = WireError::Range { offset: u64::MAX - 4_095, length: 12_288 };
        let last = (u64::MAX - 4_095).to_le_bytes();
        assert_eq!(with(&|bytes| bytes[24..32].copy_from_slice(&last)), Err(range));
        assert!(matches!(with(&|bytes| bytes[2] = 2), Err(WireError::Reserved(_))));
        assert!(matches!(with(&|bytes| bytes[40] = 2), Err(WireError::Reserved(_))), "no version");
        let last = HEAD_BYTES + HELPER_BYTES - 1;
        assert!(matches!(with(&|bytes| bytes[last] = 1), Err(WireError::Reserved(_))));
        // The target as a helper.
        let target = plan(3, None).emit()[56..HEAD_BYTES].to_vec();
        let twice = |bytes: &mut Vec<u8>| {
            bytes[HEAD_BYTES..HEAD_BYTES + NODE_BYTES].copy_from_slice(&target);
        };
        assert_eq!(with(&twice), Err(WireError::Route));
        let none = Rebuild::new(&[], *plan(1, None).target());
        assert_eq!(none, Err(RouteError::Rank(0)));
    }
}
