//! Pieces of messages that are sent, and where their bytes are.

use crate::slots::Key;
use crate::wire::Frame;

/// A message being sent. Never reused for another one while anyone could still name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendKey(pub(crate) Key);

impl SendKey {
    /// A small dense index, for the driver's own tables; unique among the live sends of a link.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}

/// Which bytes of a message a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRef {
    /// The message.
    pub send: SendKey,
    /// The segment of its layout.
    pub segment: u8,
    /// Where in the segment.
    pub offset: u32,
    /// How many bytes.
    pub length: u32,
}

/// A frame to send, and where its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendFrame {
    /// Its bytes.
    pub source: PayloadRef,
    /// What the chunk says of it.
    pub frame: Frame,
}

impl SendFrame {
    /// Cuts it to its first `length` bytes; the rest.
    pub(crate) fn split_off(&mut self, length: u32) -> Self {
        let mut rest = *self;
        (self.source.length, self.frame.length) = (length, length);
        rest.source.offset += length;
        rest.source.length -= length;
        rest.frame.offset += length;
        rest.frame.part_start += length;
        rest.frame.length -= length;
        // Parts are copied by the receiver.
        (self.frame.at_page, rest.frame.at_page) = (false, false);
        rest
    }
}
