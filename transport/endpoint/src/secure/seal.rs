//! The seal of one link: each chunk and ack that leaves is sealed here, and each that comes is
//! opened here, on every carrier.

use super::{Secure, check_hello};
use crate::error::LinkError;
use crate::sends::Sends;
use crate::tx::write_body;
use towpath_base::Time;
use towpath_proto::limits::{ACK_BYTES_MAX, HEADER_BYTES};
use towpath_proto::wire::{Hello, put_checksums};
use towpath_proto::{Side, Transmit};
use towpath_secure::limits::TAG_BYTES;
use towpath_secure::{
    KnownSecret, LinkState, PeerIdentity, Refusals, Role, SealError, SealedLink, Stream,
};

/// Where an ack names the path that it is of (docs/protocol.md section 4).
const ACK_PATH: usize = 2;

/// What a chunk has behind its body on the links of such endpoints.
pub(crate) fn sealed_bytes(secure: Option<&Secure>) -> u32 {
    if secure.is_some() { TAG_BYTES as u32 } else { 0 }
}

/// The seal of a link.
pub(crate) struct LinkSeal {
    link: SealedLink,
    peer: PeerIdentity,
    peer_role: Role,
    failed: Option<SealError>,
}

impl LinkSeal {
    /// The seal of a link whose HELLOs were exchanged, or none where both are of an open one.
    /// `is_vouched` says that they travelled in another way than over TCP.
    pub(crate) fn of_link(
        known: Option<&KnownSecret>,
        (ours, theirs): (&Hello, &Hello),
        (side, is_vouched): (Side, bool),
        (secure, now): (Option<&Secure>, Time),
    ) -> Result<Option<Self>, LinkError> {
        let (Some(known), Some(secure)) = (known, secure) else {
            return if theirs.seal.is_some() { Err(LinkError::Sealed) } else { Ok(None) };
        };
        let role = match side {
            Side::Client => Role::Client,
            Side::Server => Role::Server,
        };
        check_hello(known, if is_vouched { Role::Client } else { role.other() }, theirs)?;
        let hellos = [ours.emit(), theirs.emit()];
        let [client, server] = match side {
            Side::Client => hellos,
            Side::Server => {
                let [ours, theirs] = hellos;
                [theirs, ours]
            }
        };
        let keys = known.secret.link(&client, &server);
        let (paths, rule) = (ours.paths.len(), secure.roll_over());
        let link = SealedLink::new(&keys, role, known.sealing, paths, rule, now);
        let peer = known.peer.clone();
        Ok(Some(Self { link, peer, peer_role: role.other(), failed: None }))
    }

    /// Writes the body of a chunk to the front of `to`, seals it with its header, and puts the tag
    /// behind it: the header, and how many bytes follow it. `None` when its bytes are not there, or
    /// find no room, or it cannot be sealed.
    pub(crate) fn write_chunk(
        &mut self,
        now: Time,
        to: &mut [u8],
        sends: &Sends,
        transmit: &Transmit,
    ) -> Option<([u8; HEADER_BYTES], usize)> {
        let length = write_body(to, sends, transmit)?;
        let (body, behind) = to.split_at_mut(length);
        let mut header = [0; HEADER_BYTES];
        transmit.header.emit(&mut header);
        let stream = Stream::Chunks(transmit.path.0);
        let tag = self.seal(now, stream, &mut header, body)?;
        *behind.first_chunk_mut()? = tag;
        Some((header, length + TAG_BYTES))
    }

    /// Seals an ack of `len` bytes, and returns how many it has with its tag.
    pub(crate) fn seal_ack(&mut self, now: Time, ack: &mut [u8], len: usize) -> Option<usize> {
        let (body, behind) = ack.split_at_mut_checked(len)?;
        let (header, body) = body.split_first_chunk_mut()?;
        let stream = Stream::Acks(header[ACK_PATH]);
        let tag = self.seal(now, stream, header, body)?;
        *behind.first_chunk_mut()? = tag;
        Some(len + TAG_BYTES)
    }

    fn seal(
        &mut self,
        now: Time,
        stream: Stream,
        header: &mut [u8; HEADER_BYTES],
        body: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        let tag = self.link.seal(now, stream, header, body);
        tag.inspect_err(|error| self.failed = Some(*error)).ok()
    }

    /// Opens a chunk or an ack in place: how many bytes its body has. Its header has the checksums
    /// then that it has without a seal. `None` when it is refused, which is counted.
    pub(crate) fn open(
        &mut self,
        now: Time,
        header: &mut [u8; HEADER_BYTES],
        body: &mut [u8],
    ) -> Option<usize> {
        let opened = self.link.open(now, header, body).ok()?;
        put_checksums(header, opened.body);
        Some(opened.body.len())
    }

    /// The same of an ack: without its tag, and with nothing at all where it is refused.
    pub(crate) fn open_ack<'a>(&mut self, now: Time, ack: &'a mut [u8]) -> &'a mut [u8] {
        let mut header = [0; HEADER_BYTES];
        let (head, body) = ack.split_at_mut(ack.len().min(HEADER_BYTES));
        header[..head.len()].copy_from_slice(head);
        // What is shorter than a header has no body, and so no tag.
        let Some(length) = self.open(now, &mut header, body) else { return &mut [] };
        head.copy_from_slice(&header);
        &mut ack[..HEADER_BYTES + length]
    }

    /// Why the link has to end, if something could not be sealed.
    pub(crate) fn failed(&self) -> Option<SealError> {
        self.failed
    }

    pub(crate) fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    pub(crate) fn peer_mut(&mut self) -> &mut PeerIdentity {
        &mut self.peer
    }

    /// What the peer is on this link.
    pub(crate) fn peer_role(&self) -> Role {
        self.peer_role
    }

    pub(crate) fn state(&self, now: Time) -> LinkState {
        self.link.state(now)
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        self.link.refusals()
    }
}

const _: () = assert!(ACK_BYTES_MAX + TAG_BYTES <= crate::limits::CONTROL_SLOT_BYTES);
