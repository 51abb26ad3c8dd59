//! The chunk header (docs/protocol.md section 3).

use super::{VERSION, field, header, is_sealed, seal};
use crate::limits::{FRAME_UNITS_MAX, HEADER_BYTES, NUMBER_MAX, NUMBER_WINDOW};
use crate::listed;

listed! {
    /// What a chunk is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Kind {
        /// Frames of messages.
        #[default]
        Data = 1,
        /// Opens a channel.
        Open = 2,
        /// Answers an opening.
        Opened = 3,
        /// Closes a channel.
        Close = 4,
        /// Gives a message up.
        Abandon = 5,
        /// Answers with what had become of it.
        Abandoned = 6,
        /// Asks for the credit of a channel.
        CreditProbe = 7,
        /// Asks for a sign of life.
        Ping = 8,
        /// The sender leaves in order.
        Goodbye = 9,
        /// Asks whether a path works; nothing but its number counts.
        Probe = 10,
        /// The queue pair of a path was made anew at this end.
        Renew = 11,
        /// The queue pair of the lane was made at this end.
        Lane = 12,
        /// The peer may reach memory of this end.
        Grant = 13,
        /// It may no longer.
        Revoke = 14,
    }
}

impl Kind {
    fn from_wire(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// The flag bits of a chunk header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkFlags(pub(super) u16);

impl ChunkFlags {
    /// The first frame carries less than its piece: the table begins with what part it is.
    pub const PART: Self = Self(1);
    /// `ack_largest` and `ack_hold` are valid.
    pub const ACK: Self = Self(1 << 1);
    /// `credit` is valid.
    pub const CREDIT: Self = Self(1 << 2);
    /// `body_crc` is valid.
    pub const BODY_CRC: Self = Self(1 << 3);
    const KNOWN: u16 = 0b1111 | 0xff << Self::UNITS_SHIFT;
    /// Where the units of the table lie.
    const UNITS_SHIFT: u32 = 4;
    /// Where the path lies that `ack_largest` is of.
    const ACK_PATH_SHIFT: u32 = 12;

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The path that `ack_largest` is of.
    #[must_use]
    pub const fn ack_path(self) -> usize {
        (self.0 >> Self::ACK_PATH_SHIFT) as usize
    }

    /// With `ack_largest` valid, for the path at `index`, 0 to 15.
    #[must_use]
    pub const fn with_ack_of(self, index: usize) -> Self {
        let path = (index as u16) << Self::ACK_PATH_SHIFT;
        Self(self.0 & !(0b1111 << Self::ACK_PATH_SHIFT) | path | Self::ACK.0)
    }

    /// How many units the table of frames has.
    #[must_use]
    pub const fn units(self) -> usize {
        (self.0 >> Self::UNITS_SHIFT & 0xff) as usize
    }

    /// With a table of so many units, 0 to [`FRAME_UNITS_MAX`].
    #[must_use]
    pub const fn with_units(self, units: usize) -> Self {
        debug_assert!(units <= FRAME_UNITS_MAX);
        Self(self.0 & !(0xff << Self::UNITS_SHIFT) | (units as u16) << Self::UNITS_SHIFT)
    }

    /// Whether it sets no reserved bit, tells a path only with an ack, and a part only with a
    /// table.
    const fn is_valid(self) -> bool {
        let path = if self.has(Self::ACK) { 0b1111 << Self::ACK_PATH_SHIFT } else { 0 };
        let has_table = self.units() > 0 || !self.has(Self::PART);
        self.0 & !(Self::KNOWN | path) == 0 && has_table
    }

    /// With the bits of `other` set when `on`.
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { Self(self.0 & !other.0) }
    }
}

header! {
    /// A valid chunk header. Field meanings: docs/protocol.md section 3. What it says of the first
    /// frame is checked by [`FrameTable`](super::FrameTable).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    ChunkHeader [
        /// What the chunk is.
        kind: Kind,
        /// Flag bits.
        flags: ChunkFlags,
    ] {
        /// Generation of the path, issued by the receiver.
        4 => generation: u32,
        /// Transmission number.
        8 => number: u64,
        /// Message id, of the first frame as all up to `length`.
        16 => message: u64,
        /// Channel id.
        24 => channel: u32,
        /// Index of the piece within the message.
        28 => index: u32,
        /// Byte offset of the frame within the message.
        32 => offset: u32,
        /// Bytes of the whole message.
        36 => message_len: u32,
        /// Bytes of the frame.
        40 => length: u32,
        /// `number` minus the oldest outstanding number.
        44 => floor_delta: u16,
        /// Cumulative credit, low bits.
        46 => credit: u16,
        /// Everything up to here was received on the reverse direction, low bits.
        48 => ack_largest: u32,
        /// Nanoseconds that the acknowledgement was held.
        52 => ack_hold: u32,
        /// CRC32C of all that follows the header.
        56 => body_crc: u32,
    }
}

/// Why 64 bytes are no chunk header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HeaderError {
    /// Another protocol version.
    #[error("version {0}, expected {VERSION}")]
    Version(u8),
    /// The checksum over the header does not match.
    #[error("header_crc does not match")]
    Crc,
    /// An unknown kind.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// A reserved flag is set.
    #[error("reserved flags set: {0:#06x}")]
    Flags(u16),
    /// A length where there is no frame.
    #[error("a length where there is no frame")]
    Length,
    /// `number` is beyond what a path can reach.
    #[error("number out of range")]
    Number,
    /// `floor_delta` exceeds the number or the window.
    #[error("floor_delta out of range")]
    Floor,
}

impl ChunkHeader {
    /// Reads and checks a header.
    ///
    /// # Errors
    /// The first rule that is broken. The checksum is tested before any field is believed.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        if bytes[0] != VERSION {
            return Err(HeaderError::Version(bytes[0]));
        }
        if !is_sealed(bytes) {
            return Err(HeaderError::Crc);
        }
        let flags = field!(bytes, 2, u16);
        let kind = Kind::from_wire(bytes[1]).ok_or(HeaderError::Kind(bytes[1]))?;
        let header = Self::read(bytes, kind, ChunkFlags(flags));
        if !ChunkFlags(flags).is_valid() {
            return Err(HeaderError::Flags(flags));
        }
        header.check().map(|()| header)
    }

    fn check(&self) -> Result<(), HeaderError> {
        if self.number > NUMBER_MAX {
            return Err(HeaderError::Number);
        }
        let floor = u64::from(self.floor_delta);
        if floor > self.number || floor >= NUMBER_WINDOW {
            return Err(HeaderError::Floor);
        }
        // What frames say is checked with the body: `FrameTable`.
        let has_frames = self.length > 0 || self.flags.units() > 0;
        if has_frames && self.kind != Kind::Data {
            return Err(HeaderError::Length);
        }
        Ok(())
    }

    /// Writes the header with its checksum.
    pub fn emit(&self, bytes: &mut [u8; HEADER_BYTES]) {
        let mut words = self.words();
        words[0] |= u64::from(VERSION) | (self.kind as u64) << 8 | u64::from(self.flags.0) << 16;
        seal(bytes, words);
    }

    /// The checksum of the body, where headers tell it.
    pub(crate) fn checksum(&self) -> Option<u32> {
        self.flags.has(ChunkFlags::BODY_CRC).then_some(self.body_crc)
    }

    /// The sender's floor: the oldest transmission number that is still outstanding.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.number - u64::from(self.floor_delta)
    }
}

#[cfg(test)]
mod tests {
    use super::super::put;
    use super::*;
    use towpath_base::crc::crc32c;

    fn golden() -> (ChunkHeader, [u8; HEADER_BYTES]) {
        let header = ChunkHeader {
            kind: Kind::Data,
            flags: ChunkFlags::ACK.with(ChunkFlags::BODY_CRC, true).with_units(3),
            generation: 0x0403_0201,
            number: 0x1122_3344_5566_7788,
            message: 0x0102_0304_0506_0708,
            channel: 0x0a0b_0c0d,
            index: 2,
            offset: 0x0000_8000,
            message_len: 0x0000_8100,
            length: 0x0000_0100,
            floor_delta: 0x0fff,
            credit: 0xbeef,
            ack_largest: 0xdead_beef,
            ack_hold: 1_000,
            body_crc: 0x1234_5678,
        };
        let mut bytes = [
            4, 1, 0x3a, 0, 1, 2, 3, 4, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 8, 7, 6, 5,
            4, 3, 2, 1, 0x0d, 0x0c, 0x0b, 0x0a, 2, 0, 0, 0, 0, 0x80, 0, 0, 0, 0x81, 0, 0, 0, 1, 0,
            0, 0xff, 0x0f, 0xef, 0xbe, 0xef, 0xbe, 0xad, 0xde, 0xe8, 3, 0, 0, 0x78, 0x56, 0x34,
            0x12, 0, 0, 0, 0,
        ];
        let crc = crc32c(&bytes[..60]);
        put!(bytes, 60, crc);
        (header, bytes)
    }

    #[test]
    fn golden_bytes_both_ways() {
        let (header, bytes) = golden();
        assert_eq!(ChunkHeader::parse(&bytes), Ok(header));
        let mut emitted = [0xa5; HEADER_BYTES];
        header.emit(&mut emitted);
        assert_eq!(emitted, bytes);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (_, bytes) = golden();
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(ChunkHeader::parse(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn fields_that_do_not_fit_together_are_refused_even_with_a_good_checksum() {
        let (good, _) = golden();
        let refused = |change: &dyn Fn(&mut ChunkHeader), want| {
            let mut header = good;
            change(&mut header);
            let mut bytes = [0; HEADER_BYTES];
            header.emit(&mut bytes);
            assert_eq!(ChunkHeader::parse(&bytes), Err(want));
        };
        refused(&|h| h.floor_delta = 4096, HeaderError::Floor);
        refused(&|h| h.number = 0xffe, HeaderError::Floor);
        refused(&|h| h.number = NUMBER_MAX + 1, HeaderError::Number);
        refused(&|h| h.kind = Kind::Ping, HeaderError::Length);
        refused(&|h| (h.kind, h.length) = (Kind::Ping, 0), HeaderError::Length);
        refused(&|h| h.flags.0 = 0x0001, HeaderError::Flags(0x0001));
        refused(&|h| h.flags.0 = 0x3008, HeaderError::Flags(0x3008));
        let (mut header, mut bytes) = (good, [0; HEADER_BYTES]);
        (header.kind, header.length) = (Kind::Ping, 0);
        header.flags = header.flags.with_units(0);
        header.emit(&mut bytes);
        assert_eq!(ChunkHeader::parse(&bytes), Ok(header));
    }

    #[test]
    fn the_flags_tell_how_many_units_the_table_has() {
        for units in 0..=FRAME_UNITS_MAX {
            let flags = ChunkFlags::ACK.with_units(7).with_ack_of(9).with_units(units);
            assert_eq!((flags.units(), flags.ack_path()), (units, 9));
            assert!(flags.has(ChunkFlags::ACK) && flags.is_valid());
        }
    }

    #[test]
    fn a_piggybacked_ack_names_its_path() {
        let (mut header, _) = golden();
        for index in 0..crate::limits::PATHS_MAX {
            header.flags = header.flags.with_ack_of(index);
            let mut bytes = [0; HEADER_BYTES];
            header.emit(&mut bytes);
            assert_eq!(ChunkHeader::parse(&bytes).map(|h| h.flags.ack_path()), Ok(index));
        }
    }
}
