//! Packets that name another link, or a path that their link lacks.

use super::Refusal;
use crate::packet::Mark;
use crate::schedule::LinkTag;

pub(super) const MEANING: &str =
    "a packet names another link: it is late from an earlier one, or somebody guesses";

/// Whether a packet is of this link.
pub(crate) fn check(mark: &Mark, link: LinkTag, paths: u8) -> Result<(), Refusal> {
    let is_ours = mark.link == link && mark.stream.path() < paths;
    if is_ours { Ok(()) } else { Err(Refusal::WrongLink) }
}
