//! The two parts of a traffic class: the DSCP above (RFC 2474), ECN below (RFC 3168).

/// Bits of ECN.
const ECN_BITS: u32 = 2;

/// The DSCP of an IPv4 ToS or IPv6 traffic class, whatever its ECN.
///
/// ```
/// assert_eq!(towpath_verbs::dscp_of(towpath_verbs::tclass_of(46) | 3), 46);
/// ```
#[inline]
#[must_use]
pub const fn dscp_of(tclass: u8) -> u8 {
    tclass >> ECN_BITS
}

/// The IPv4 ToS or IPv6 traffic class with a DSCP of six bits, and no ECN.
#[inline]
#[must_use]
pub const fn tclass_of(dscp: u8) -> u8 {
    dscp << ECN_BITS
}
