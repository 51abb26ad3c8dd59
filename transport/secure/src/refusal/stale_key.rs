//! Packets under a key that is no longer in use, or not yet.

use super::Refusal;

pub(super) const MEANING: &str =
    "a packet is under a key that is not in use: it is late, or somebody sends an old one again";

/// Which of the keys of an opener a packet is under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// The one before the current one.
    Old,
    /// The current one.
    Current,
    /// The next one, which the peer has begun to use.
    Next,
}

/// The age of the key that 16 bits of an epoch name.
pub(crate) fn check(named: u16, current: u64, has_old: bool) -> Result<Age, Refusal> {
    // The low 16 bits of `current`: the difference to an epoch beside it is exact.
    match named.wrapping_sub(current as u16) {
        0 => Ok(Age::Current),
        1 => Ok(Age::Next),
        u16::MAX if has_old => Ok(Age::Old),
        _ => Err(Refusal::StaleKey),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_epochs_beside_the_current_one_have_keys() {
        for current in [7_u64, 0xffff, 0x1_0000, 0x1_2345] {
            let name = |by: i64| current.wrapping_add_signed(by) as u16;
            assert_eq!(check(name(0), current, false), Ok(Age::Current));
            assert_eq!(check(name(1), current, false), Ok(Age::Next));
            assert_eq!(check(name(-1), current, true), Ok(Age::Old));
            assert_eq!(check(name(-1), current, false), Err(Refusal::StaleKey));
            for by in [2, -2, 300, -300, 0x7fff] {
                assert_eq!(check(name(by), current, true), Err(Refusal::StaleKey), "{by}");
            }
        }
    }
}
