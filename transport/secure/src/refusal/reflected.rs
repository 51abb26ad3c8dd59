//! Packets that this end has sent itself.

use super::Refusal;
use crate::packet::Mark;
use crate::peers::Role;

pub(super) const MEANING: &str =
    "a packet of this host came back to it: somebody sends what passes by back to its sender";

/// Whether the other end sent a packet.
pub(crate) fn check(mark: &Mark, peer: Role) -> Result<(), Refusal> {
    if mark.sender == peer { Ok(()) } else { Err(Refusal::Reflected) }
}
