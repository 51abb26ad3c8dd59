//! What the monitor tells engines by messages: that a period begins, and what changes in it.

use crate::words::Epoch;
use core::fmt;
use towpath_base::Nanos;

/// Bytes of a [`PeriodStart`].
pub const START_BYTES: usize = 56;
/// Bytes of a [`Notice`].
pub const NOTICE_BYTES: usize = 8;

const KIND_START: u8 = 1;
const KIND_NOTICE: u8 = 2;
const REPORTS: u8 = 1;
const CAREFUL: u8 = 1 << 1;
const LIMITED: u8 = 1 << 2;

/// A period begins: reservation tokens are pushed, and replace what there was (step T1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodStart {
    /// Which.
    pub epoch: Epoch,
    /// How long it is.
    pub period: Nanos,
    /// How much of it had passed at the monitor when this was sent: clocks of hosts are not
    /// compared.
    pub elapsed: Nanos,
    /// Tokens of the client's reservation.
    pub reservation: u32,
    /// Tokens that it may use in the period altogether.
    pub limit: Option<u32>,
    /// Tokens that it takes from the pool at a time.
    pub batch: u32,
    /// Tokens that the period is to bring it.
    pub goal: u32,
    /// The same, if others leave as much of what they have reserved as in the last period.
    pub expected: u32,
    /// As long as it does not lag an even use of its goal, what part of its depth it has under way,
    /// in parts of [`WINDOW_ALL`](crate::WINDOW_ALL); not zero.
    pub window: u16,
    /// How often it reports.
    pub report_every: Nanos,
    /// What a unit of a report stands for ([`Report::unit_shift`](crate::Report::unit_shift)).
    pub unit_shift: u8,
    /// It reports from the beginning.
    pub reports: bool,
    /// It keeps to an even use of its reservation from the beginning.
    pub is_careful: bool,
}

/// Something changes within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Of which.
    pub epoch: Epoch,
    /// Report from now on (step S3).
    pub reports: bool,
    /// Somebody is behind: keep to an even use of the reservation.
    pub is_careful: bool,
}

/// What the monitor said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromMonitor {
    /// A period begins.
    Start(PeriodStart),
    /// Something changes.
    Notice(Notice),
}

/// Why bytes are nothing that a monitor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageError {
    /// Too few bytes, or too many.
    Length,
    /// An unknown kind.
    Kind(u8),
    /// A span of no time, a batch of no tokens, a window of nothing, or a unit that no report has.
    Range,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(f, "it has another length than its kind"),
            Self::Kind(kind) => write!(f, "unknown kind {kind}"),
            Self::Range => write!(f, "a period, interval, batch, window or unit out of range"),
        }
    }
}

impl core::error::Error for MessageError {}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl PeriodStart {
    /// The message as bytes, little-endian.
    #[must_use]
    pub fn emit(&self) -> [u8; START_BYTES] {
        let bit = |on, bit| if on { bit } else { 0 };
        let mut out = [0; START_BYTES];
        out[0] = KIND_START;
        out[1] = bit(self.reports, REPORTS)
            | bit(self.is_careful, CAREFUL)
            | bit(self.limit.is_some(), LIMITED);
        out[2..4].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[4] = self.unit_shift;
        out[6..8].copy_from_slice(&self.window.to_le_bytes());
        out[8..16].copy_from_slice(&self.period.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.elapsed.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.report_every.0.to_le_bytes());
        out[32..36].copy_from_slice(&self.reservation.to_le_bytes());
        out[36..40].copy_from_slice(&self.limit.unwrap_or(0).to_le_bytes());
        out[40..44].copy_from_slice(&self.batch.to_le_bytes());
        out[44..48].copy_from_slice(&self.goal.to_le_bytes());
        out[48..52].copy_from_slice(&self.expected.to_le_bytes());
        out
    }
}

impl Notice {
    /// The message as bytes, little-endian.
    #[must_use]
    pub fn emit(&self) -> [u8; NOTICE_BYTES] {
        let flags =
            if self.reports { REPORTS } else { 0 } | if self.is_careful { CAREFUL } else { 0 };
        let [low, high] = self.epoch.0.to_le_bytes();
        [KIND_NOTICE, flags, low, high, 0, 0, 0, 0]
    }
}

impl FromMonitor {
    /// Reads what a monitor said.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let [kind, flags, low, high, unit_shift, ..] = *bytes else {
            return Err(MessageError::Length);
        };
        let epoch = Epoch(u16::from_le_bytes([low, high]));
        let (reports, is_careful) = (flags & REPORTS != 0, flags & CAREFUL != 0);
        match (kind, bytes.len()) {
            (KIND_NOTICE, NOTICE_BYTES) => Ok(Self::Notice(Notice { epoch, reports, is_careful })),
            (KIND_START, START_BYTES) => {
                let short = |at| u32_at(bytes, at).ok_or(MessageError::Length);
                let long = |at| u64_at(bytes, at).map(Nanos).ok_or(MessageError::Length);
                let start = PeriodStart {
                    epoch,
                    period: long(8)?,
                    elapsed: long(16)?,
                    reservation: short(32)?,
                    limit: Some(short(36)?).filter(|_| flags & LIMITED != 0),
                    batch: short(40)?,
                    goal: short(44)?,
                    expected: short(48)?,
                    window: u16::from_le_bytes([bytes[6], bytes[7]]),
                    report_every: long(24)?,
                    unit_shift,
                    reports,
                    is_careful,
                };
                let is_span = start.period > Nanos::ZERO && start.report_every > Nanos::ZERO;
                let has_room = start.batch > 0 && start.window > 0;
                let fits = is_span && has_room && unit_shift <= 12;
                if fits { Ok(Self::Start(start)) } else { Err(MessageError::Range) }
            }
            (KIND_START | KIND_NOTICE, _) => Err(MessageError::Length),
            (kind, _) => Err(MessageError::Kind(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written_and_nothing_else_is() {
        let start = PeriodStart {
            epoch: Epoch(0x1234),
            period: Nanos::from_secs(1),
            elapsed: Nanos(77),
            reservation: 80_000,
            limit: Some(100_000),
            batch: 1_000,
            goal: 90_000,
            expected: 95_000,
            window: 40_000,
            report_every: Nanos::from_millis(1),
            unit_shift: 3,
            reports: true,
            is_careful: false,
        };
        for start in [start, PeriodStart { limit: None, is_careful: true, ..start }] {
            let bytes = start.emit();
            assert_eq!(FromMonitor::parse(&bytes), Ok(FromMonitor::Start(start)));
            assert_eq!(FromMonitor::parse(&bytes[..55]), Err(MessageError::Length));
        }
        let none = PeriodStart { batch: 0, ..start };
        assert_eq!(FromMonitor::parse(&none.emit()), Err(MessageError::Range));
        let notice = Notice { epoch: Epoch(9), reports: true, is_careful: true };
        assert_eq!(FromMonitor::parse(&notice.emit()), Ok(FromMonitor::Notice(notice)));
        assert_eq!(FromMonitor::parse(&[9; 8]), Err(MessageError::Kind(9)));
        assert_eq!(FromMonitor::parse(&[1]), Err(MessageError::Length));
    }
}
