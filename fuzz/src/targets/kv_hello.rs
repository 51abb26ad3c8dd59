//! What the ends of raw queue pairs of the key-value store tell each other.

use crate::class;
use std::mem::discriminant;
use towpath_kv::raw::{End, HELLO_BYTES, HelloError, RawKind};

/// What an end tells, in one piece.
pub(crate) fn run(input: &[u8]) -> u64 {
    let end = match End::parse(input) {
        Ok(end) => end,
        Err(error) => {
            if let HelloError::Short(needed) = error {
                assert!(needed > input.len() && needed <= HELLO_BYTES);
            }
            return class(&[crate::fnv1a(format!("{:?}", discriminant(&error)).into_bytes())]);
        }
    };
    let mut emitted = Vec::new();
    end.emit(&mut emitted);
    assert_eq!(emitted.len(), HELLO_BYTES);
    // An IPv4 address has two forms; what was granted has none where it has no bytes.
    assert_eq!(End::parse(&emitted), Ok(end));
    assert!(!end.addr.ip().is_unspecified() && end.addr.port() != 0 && end.under_way > 0);
    let kind = RawKind::ALL.iter().position(|&kind| kind == end.kind).unwrap_or_default();
    class(&[kind as u64, u64::from(end.addr.is_ipv4()), u64::from(end.grant.is_some())])
}

#[cfg(test)]
mod tests {
    use crate::seeds;
    use towpath_kv::raw::{End, Grant, RawKind, Refusal};
    use towpath_verbs::{Mtu, QpNum};

    #[test]
    fn seeds_are_those_committed() {
        let end = |kind, addr: &str, grant| {
            let end = End {
                kind,
                mtu: Mtu::Mtu4096,
                qp_num: QpNum(17),
                psn: towpath_base::serial::Psn::new(5),
                qkey: 3,
                message_bytes_max: 4096,
                under_way: 4,
                addr: addr.parse().expect("an address"),
                number: 1,
                grant,
            };
            let mut out = Vec::new();
            end.emit(&mut out);
            out
        };
        let grant = Grant { rkey: 7, addr: 1 << 40, bytes: 1 << 20 };
        let mut refusal = Vec::new();
        Refusal::Version.emit(&mut refusal);
        let made = [
            ("rc", end(RawKind::Rc, "10.0.0.2:4791", Some(grant))),
            ("uc", end(RawKind::Uc, "[fd00::2]:7", None)),
            ("ud", end(RawKind::Ud, "10.0.0.2:9", None)),
            ("refusal", refusal),
        ];
        seeds::check("kv_hello", &made);
    }
}
