//! Messages that are supplied while they are being sent, and books of what was.

use super::Host;
use towpath_base::Time;
use towpath_proto::{ChannelId, PayloadRef, SendKey, SupplyError};

/// What was supplied of a message: where each buffer begins and ends, and how much of it has not
/// come home.
#[derive(Debug, Default)]
pub(super) struct Grown {
    supplied: Vec<(u32, u32, u32)>,
}

impl Grown {
    /// Whether the bytes lie in one buffer that has not come home.
    pub(super) fn has(&self, part: &PayloadRef) -> bool {
        let (from, until) = (part.offset, part.offset + part.length);
        let mut supplied = self.supplied.iter();
        supplied.any(|&(start, end, left)| start <= from && until <= end && left > 0)
    }

    /// The first bytes that are missing of so many.
    fn first_gap(&self, whole: u32) -> Option<(u32, u32)> {
        let mut supplied: Vec<_> =
            self.supplied.iter().map(|&(start, end, _)| (start, end)).collect();
        supplied.sort_unstable();
        let mut at = 0;
        for (start, end) in supplied {
            if at < start {
                return Some((at, start));
            }
            at = end;
        }
        (at < whole).then_some((at, whole))
    }
}

impl Host {
    pub(crate) fn grow(&mut self, channel: ChannelId, [head, later]: [u32; 2], deadline: Time) {
        self.send_or_grow(channel, &[head, later], deadline, true);
    }

    /// Supplies bytes of a message; the link takes them if, and only if, it is to.
    pub(crate) fn supply(&mut self, nth: usize, (offset, length): (u32, u32)) {
        let count = self.sends.len().max(1);
        let Some(send) = self.sends.get_mut(nth % count) else { return };
        let taken = self.link.supply(send.key, offset, length);
        let Some(grown) = &mut send.grown else {
            let expected = [SupplyError::NotGrowing, SupplyError::Ended];
            return assert!(taken.is_err_and(|error| expected.contains(&error)));
        };
        let (whole, end) = (send.segments[1], offset.saturating_add(length));
        let overlaps = grown.supplied.iter().any(|&(from, until, _)| offset < until && from < end);
        let is_aligned = offset % 8 == 0 && (end % 8 == 0 || end == whole);
        match taken {
            Ok(()) => {
                assert!(send.outcome.is_none(), "it had ended");
                assert!(length > 0 && end <= whole && is_aligned && !overlaps);
                grown.supplied.push((offset, end, length));
            }
            Err(SupplyError::Ended) => {}
            Err(SupplyError::OutOfRange { len }) => {
                assert!(len == whole && (length == 0 || end > whole));
            }
            Err(SupplyError::Overlap) => assert!(overlaps),
            Err(SupplyError::Misaligned) => assert!(!is_aligned),
            Err(SupplyError::TooMany { max }) => assert_eq!(grown.supplied.len(), max as usize),
            Err(SupplyError::NotGrowing) => panic!("it grows"),
        }
    }

    /// No message waits for its bytes any more: they are supplied, or the message is given up.
    pub(crate) fn end_growing(&mut self) {
        for nth in 0..self.sends.len() {
            let send = &self.sends[nth];
            let Some(grown) = &send.grown else { continue };
            match grown.first_gap(send.segments[1]) {
                Some((from, until)) if nth % 2 == 0 => {
                    self.supply(nth, (from, until - from));
                    let send = &self.sends[nth];
                    let next = send.grown.as_ref().and_then(|g| g.first_gap(send.segments[1]));
                    if next.is_some_and(|next| next != (from, until)) {
                        return self.end_growing();
                    }
                    if next.is_some() {
                        self.cancel(nth);
                    }
                }
                Some(_) => self.cancel(nth),
                None => {}
            }
        }
    }

    pub(super) fn on_piece_sent(&mut self, send: SendKey, (offset, length): (u32, u32)) {
        let token = self.live[&send];
        let end = offset + length;
        let mut posted = self.posted.iter().flat_map(|(.., parts)| parts);
        let is_held = posted.any(|(of, part)| {
            *of == token
                && part.segment == 1
                && part.offset < end
                && offset < part.offset + part.length
        });
        assert!(!is_held, "the device holds none of its bytes");
        let grown = self.sends[token as usize].grown.as_mut().expect("it grows");
        let mut left = length;
        for (from, until, out) in &mut grown.supplied {
            let both = end.min(*until).saturating_sub(offset.max(*from));
            (*out, left) = (*out - both, left - both);
        }
        assert_eq!(left, 0, "all of it was supplied");
    }
}
