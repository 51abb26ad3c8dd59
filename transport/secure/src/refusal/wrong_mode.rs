//! Packets that are protected otherwise than their link.

use super::Refusal;
use crate::mode::Sealing;
use crate::packet::Mark;

pub(super) const MEANING: &str =
    "a packet is not in the mode of its link: somebody tries to have less protected";

/// Whether a packet is in the mode of the link.
pub(crate) fn check(mark: &Mark, sealing: Sealing) -> Result<(), Refusal> {
    if mark.mode == sealing.mode().code() { Ok(()) } else { Err(Refusal::WrongMode) }
}
