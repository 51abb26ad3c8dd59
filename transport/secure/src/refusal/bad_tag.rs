//! Packets whose tag is wrong: they were changed on their way, or made up.

pub(super) const MEANING: &str =
    "a packet was changed on its way or does not come from the peer: its tag is wrong";
