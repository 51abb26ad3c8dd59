//! The opcodes and their properties, in one table.

/// Bytes of a RETH.
pub const RETH_BYTES: usize = 16;
/// Bytes of a DETH.
pub const DETH_BYTES: usize = 8;
/// Bytes of an AETH.
pub const AETH_BYTES: usize = 4;
/// Bytes of an AtomicETH.
pub const ATOMIC_BYTES: usize = 28;
/// Bytes of an AtomicAckETH.
pub const ATOMIC_ACK_BYTES: usize = 8;
/// Bytes of immediate data.
pub const IMM_BYTES: usize = 4;
/// Bytes of an IETH.
pub const IETH_BYTES: usize = 4;

/// Numbers of the RC opcodes that are messages of their own.
pub mod number {
    /// READ request.
    pub const RC_READ_REQUEST: u8 = 0x0c;
    /// ACK or NAK.
    pub const RC_ACKNOWLEDGE: u8 = 0x11;
    /// Answer to an atomic.
    pub const RC_ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    /// Compare and swap.
    pub const RC_CMP_SWAP: u8 = 0x13;
    /// Fetch and add.
    pub const RC_FETCH_ADD: u8 = 0x14;
}

/// Which transport service an opcode belongs to: its upper three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Part of a SEND.
    Send,
    /// Part of a WRITE.
    Write,
    /// READ request.
    ReadRequest,
    /// Part of a READ response.
    ReadResponse,
    /// Acknowledgement.
    Acknowledge,
    /// Acknowledgement of an atomic, with what was there.
    AtomicAcknowledge,
    /// Compare and swap.
    CmpSwap,
    /// Fetch and add.
    FetchAdd,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The only one.
    Only,
}

impl Position {
    /// Whether a message starts with it.
    #[must_use]
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends with it.
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// Extended headers, as bits of a set; on the wire they follow in the order of these constants.
mod ext {
    pub(super) const NONE: u8 = 0;
    pub(super) const DETH: u8 = 1;
    pub(super) const RETH: u8 = 2;
    pub(super) const AETH: u8 = 4;
    pub(super) const ATOMIC: u8 = 8;
    pub(super) const ATOMIC_ACK: u8 = 16;
    pub(super) const IMM: u8 = 32;
    pub(super) const IETH: u8 = 64;
}

/// An opcode's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// The number in the BTH.
    pub number: u8,
    /// Transport service.
    pub service: Service,
    /// What it does.
    pub operation: Operation,
    /// Where in its message it stands.
    pub position: Position,
    ext: u8,
    ext_bytes: u8,
}

impl Opcode {
    /// The properties of an opcode number, if it exists.
    #[must_use]
    #[inline]
    pub fn of(number: u8) -> Option<&'static Self> {
        TABLE[usize::from(number)].as_ref()
    }

    /// The number of a SEND or WRITE packet.
    #[must_use]
    #[inline]
    pub fn request(service: Service, write: bool, position: Position, imm: bool) -> u8 {
        let base = match service {
            Service::Rc => 0x00,
            Service::Uc => 0x20,
            Service::Ud => 0x60,
        };
        let imm = u8::from(imm);
        let place = match position {
            Position::First => 0,
            Position::Middle => 1,
            Position::Last => 2 + imm,
            Position::Only => 4 + imm,
        };
        base + if write { 6 } else { 0 } + place
    }

    /// The number of a packet of the response to a READ.
    #[must_use]
    pub fn read_response(position: Position) -> u8 {
        match position {
            Position::First => 0x0d,
            Position::Middle => 0x0e,
            Position::Last => 0x0f,
            Position::Only => 0x10,
        }
    }

    /// Whether it answers a request rather than being one (RC).
    #[must_use]
    #[inline]
    pub const fn is_answer(&self) -> bool {
        matches!(
            self.operation,
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// Bytes of its extended headers.
    #[must_use]
    #[inline]
    pub const fn ext_bytes(&self) -> usize {
        self.ext_bytes as usize
    }

    /// Carries a RETH.
    #[must_use]
    pub const fn has_reth(&self) -> bool {
        self.ext & ext::RETH != 0
    }

    /// Carries a DETH.
    #[must_use]
    pub const fn has_deth(&self) -> bool {
        self.ext & ext::DETH != 0
    }

    /// Carries an AETH.
    #[must_use]
    pub const fn has_aeth(&self) -> bool {
        self.ext & ext::AETH != 0
    }

    /// Carries an AtomicETH.
    #[must_use]
    pub const fn has_atomic(&self) -> bool {
        self.ext & ext::ATOMIC != 0
    }

    /// Carries an AtomicAckETH.
    #[must_use]
    pub const fn has_atomic_ack(&self) -> bool {
        self.ext & ext::ATOMIC_ACK != 0
    }

    /// Carries immediate data.
    #[must_use]
    pub const fn has_imm(&self) -> bool {
        self.ext & ext::IMM != 0
    }

    /// Carries an IETH.
    #[must_use]
    pub const fn has_ieth(&self) -> bool {
        self.ext & ext::IETH != 0
    }
}

const fn ext_bytes(ext: u8) -> u8 {
    let sizes: [(u8, usize); 7] = [
        (ext::DETH, DETH_BYTES),
        (ext::RETH, RETH_BYTES),
        (ext::AETH, AETH_BYTES),
        (ext::ATOMIC, ATOMIC_BYTES),
        (ext::ATOMIC_ACK, ATOMIC_ACK_BYTES),
        (ext::IMM, IMM_BYTES),
        (ext::IETH, IETH_BYTES),
    ];
    let (mut sum, mut i) = (0, 0);
    while i < sizes.len() {
        if ext & sizes[i].0 != 0 {
            sum += sizes[i].1 as u8;
        }
        i += 1;
    }
    sum
}

const fn entry(
    number: u8,
    service: Service,
    operation: Operation,
    position: Position,
    ext: u8,
) -> Opcode {
    Opcode { number, service, operation, position, ext, ext_bytes: ext_bytes(ext) }
}

/// Every opcode that exists here, RC's included (InfiniBand Architecture, volume 1, 9.2.1).
#[rustfmt::skip]
pub const OPCODES: [Opcode; 37] = {
    use ext::{AETH, ATOMIC, ATOMIC_ACK, DETH, IETH, IMM, NONE, RETH};
    use Operation::*;
    use Position::*;
    use Service::*;
    [
        entry(0x00, Rc, Send, First, NONE),
        entry(0x01, Rc, Send, Middle, NONE),
        entry(0x02, Rc, Send, Last, NONE),
        entry(0x03, Rc, Send, Last, IMM),
        entry(0x04, Rc, Send, Only, NONE),
        entry(0x05, Rc, Send, Only, IMM),
        entry(0x06, Rc, Write, First, RETH),
        entry(0x07, Rc, Write, Middle, NONE),
        entry(0x08, Rc, Write, Last, NONE),
        entry(0x09, Rc, Write, Last, IMM),
        entry(0x0a, Rc, Write, Only, RETH),
        entry(0x0b, Rc, Write, Only, RETH | IMM),
        entry(0x0c, Rc, ReadRequest, Only, RETH),
        entry(0x0d, Rc, ReadResponse, First, AETH),
        entry(0x0e, Rc, ReadResponse, Middle, NONE),
        entry(0x0f, Rc, ReadResponse, Last, AETH),
        entry(0x10, Rc, ReadResponse, Only, AETH),
        entry(0x11, Rc, Acknowledge, Only, AETH),
        entry(0x12, Rc, AtomicAcknowledge, Only, AETH | ATOMIC_ACK),
        entry(0x13, Rc, CmpSwap, Only, ATOMIC),
        entry(0x14, Rc, FetchAdd, Only, ATOMIC),
        entry(0x16, Rc, Send, Last, IETH),
        entry(0x17, Rc, Send, Only, IETH),
        entry(0x20, Uc, Send, First, NONE),
        entry(0x21, Uc, Send, Middle, NONE),
        entry(0x22, Uc, Send, Last, NONE),
        entry(0x23, Uc, Send, Last, IMM),
        entry(0x24, Uc, Send, Only, NONE),
        entry(0x25, Uc, Send, Only, IMM),
        entry(0x26, Uc, Write, First, RETH),
        entry(0x27, Uc, Write, Middle, NONE),
        entry(0x28, Uc, Write, Last, NONE),
        entry(0x29, Uc, Write, Last, IMM),
        entry(0x2a, Uc, Write, Only, RETH),
        entry(0x2b, Uc, Write, Only, RETH | IMM),
        entry(0x64, Ud, Send, Only, DETH),
        entry(0x65, Ud, Send, Only, DETH | IMM),
    ]
};

static TABLE: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut i = 0;
    while i < OPCODES.len() {
        table[OPCODES[i].number as usize] = Some(OPCODES[i]);
        i += 1;
    }
    table
};
