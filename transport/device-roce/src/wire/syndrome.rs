//! What the syndrome of an AETH says: acknowledgement, receiver not ready, or what is wrong.
//!
//! The specification is not at hand: kinds and codes are those of the Linux rxe driver
//! (`rxe_hdr.h`), the delays those that the kernel's verbs name (`enum ib_rnr_timeout`, after
//! table 45 of the InfiniBand Architecture).

use towpath_base::Nanos;

const KIND: u8 = 0xe0;
const VALUE: u8 = 0x1f;
const ACK: u8 = 0x00;
const RNR_NAK: u8 = 0x20;
const NAK: u8 = 0x60;

/// The credit code of a responder that does not count credits, as rxe sends it.
pub const CREDITS_UNLIMITED: u8 = 0x1f;

/// A valid syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Everything up to the packet's PSN has arrived.
    Ack {
        /// Five bits of credit code: [`CREDITS_UNLIMITED`], or how many receive work requests
        /// wait, which rxe ignores.
        credits: u8,
    },
    /// No receive work request for the message at the packet's PSN: ask again later.
    RnrNak(RnrTimer),
    /// The request at the packet's PSN was refused.
    Nak(NakCode),
}

impl Syndrome {
    /// The meaning of a syndrome, `None` where it is reserved.
    #[must_use]
    pub fn of(bits: u8) -> Option<Self> {
        let value = bits & VALUE;
        match bits & KIND {
            ACK => Some(Self::Ack { credits: value }),
            RNR_NAK => Some(Self::RnrNak(RnrTimer(value))),
            NAK => NakCode::of(value).map(Self::Nak),
            _ => None,
        }
    }

    /// Its bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::Ack { credits } => ACK | (credits & VALUE),
            Self::RnrNak(timer) => RNR_NAK | timer.code(),
            Self::Nak(code) => NAK | code as u8,
        }
    }
}

/// Why a responder refuses a request. The fifth code, of the reliable datagram, does not exist
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing: go back to the PSN of the NAK.
    PsnSequenceError = 0,
    /// Malformed, out of place, too long, or not offered by the queue pair.
    InvalidRequest = 1,
    /// The address or the key is not good for what was asked.
    RemoteAccessError = 2,
    /// The responder failed through no fault of the request.
    RemoteOperationalError = 3,
}

impl NakCode {
    /// Every code, in the order of its number.
    pub const ALL: [Self; 4] = [
        Self::PsnSequenceError,
        Self::InvalidRequest,
        Self::RemoteAccessError,
        Self::RemoteOperationalError,
    ];

    fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// How long a requester waits before it asks a responder again that was not ready: one of 32
/// delays, by its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The timer of a code (`min_rnr_timer`); `None` above 31.
    #[must_use]
    pub fn new(code: u8) -> Option<Self> {
        (code <= VALUE).then_some(Self(code))
    }

    /// The code, 0 to 31. Zero is the longest delay.
    #[must_use]
    pub fn code(self) -> u8 {
        self.0
    }

    /// The delay.
    #[must_use]
    pub fn delay(self) -> Nanos {
        Nanos::from_micros(RNR_DELAY_US[usize::from(self.0)])
    }
}

/// Delays by code. From code 4 on each is twice the one two before it.
#[rustfmt::skip]
const RNR_DELAY_US: [u64; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120,
    160, 240, 320, 480, 640, 960, 1_280, 1_920,
    2_560, 3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720,
    40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syndrome_is_reserved_or_keeps_its_bits() {
        let meanings: Vec<_> = (0..=255).map(Syndrome::of).collect();
        for (bits, meaning) in meanings.iter().enumerate() {
            assert!(meaning.is_none_or(|m| usize::from(m.bits()) == bits), "{bits:#x}");
        }
        let valid = meanings.iter().flatten().count();
        assert_eq!(valid, 32 + 32 + NakCode::ALL.len());
        assert_eq!(Syndrome::of(0x61), Some(Syndrome::Nak(NakCode::InvalidRequest)));
        assert_eq!(Syndrome::of(0x64), None, "a code of the reliable datagram");
        assert_eq!(Syndrome::of(0x40), None);
        assert_eq!(Syndrome::of(0x80), None);
    }

    #[test]
    fn rnr_delays_double_every_two_codes_and_the_longest_is_code_zero() {
        let delay = |code| RnrTimer::new(code).unwrap().delay().0;
        assert_eq!((delay(0), delay(1), delay(14)), (655_360_000, 10_000, 1_280_000));
        for code in 6..32 {
            assert_eq!(delay(code), 2 * delay(code - 2), "code {code}");
        }
        assert_eq!(delay(0), 2 * delay(30));
        assert_eq!(RnrTimer::new(32), None);
    }
}
