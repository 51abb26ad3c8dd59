//! Expiry and names of a certificate, read from its DER.
//!
//! The signature and the chain are checked before, by `webpki`, which does not tell these two.

use crate::clock::WallTime;
use crate::identity::PublicKeyError;
use crate::peers::PeerName;

/// What is wrong with a peer's certificate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CertificateError {
    /// No Ed25519 key.
    #[error(transparent)]
    Key(PublicKeyError),
    /// Not signed by the authority, not valid now, or not for this role.
    #[error(
        "the peer's certificate is not accepted ({0}): renew it at the authority, and set the \
         clock if it is wrong"
    )]
    Refused(rustls::Error),
    /// It cannot be read.
    #[error("the peer's certificate has no validity that can be read: make it anew")]
    Malformed,
    /// It names no host.
    #[error("the peer's certificate has no DNS name in its subjectAltName: make it anew with one")]
    NoName,
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OBJECT: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
/// id-ce-subjectAltName (RFC 5280 section 4.2.1.6).
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

/// Reads elements of DER one by one.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next element: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, first, rest @ ..] = self.0 else { return None };
        let (len, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
            }
            // 0x80 is of BER alone, and nothing here is longer than three bytes can say.
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// The content of the next element, which has that tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(of, _)| *of == tag).map(|(_, content)| content)
    }

    /// Passes over the next element where it has that tag.
    fn skip(&mut self, tag: u8) -> Option<()> {
        if self.0.first() == Some(&tag) { self.next().map(|_| ()) } else { Some(()) }
    }
}

/// The first moment at which a certificate is no longer valid, and its DNS names.
pub(super) fn read(der: &[u8]) -> Result<(WallTime, Vec<PeerName>), CertificateError> {
    let (not_after, extensions) = fields(der).ok_or(CertificateError::Malformed)?;
    // notAfter is the last second at which it is valid.
    let expires = WallTime(not_after.0.saturating_add(1_000));
    let names = names(extensions).unwrap_or_default();
    if names.is_empty() { Err(CertificateError::NoName) } else { Ok((expires, names)) }
}

/// RFC 5280 section 4.1: notAfter, and the list of extensions.
fn fields(der: &[u8]) -> Option<(WallTime, &[u8])> {
    let mut certificate = Reader(Reader(der).take(SEQUENCE)?);
    let mut body = Reader(certificate.take(SEQUENCE)?);
    body.skip(VERSION)?;
    body.take(INTEGER)?;
    body.take(SEQUENCE)?;
    body.take(SEQUENCE)?;
    let mut validity = Reader(body.take(SEQUENCE)?);
    validity.next()?;
    let (kind, not_after) = validity.next()?;
    let not_after = time(kind, not_after)?;
    while let Some((tag, content)) = body.next() {
        if tag == EXTENSIONS {
            return Some((not_after, Reader(content).take(SEQUENCE)?));
        }
    }
    Some((not_after, &[]))
}

/// RFC 5280 section 4.1.2.5: `YYMMDDHHMMSSZ` until 2049, `YYYYMMDDHHMMSSZ` from then on.
fn time(kind: u8, text: &[u8]) -> Option<WallTime> {
    let text = core::str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
    let full = match (kind, text.len()) {
        (UTC_TIME, 13) => {
            let century = if text < "50" { "20" } else { "19" };
            format!("{century}{text}")
        }
        (GENERALIZED_TIME, 15) => text.to_owned(),
        _ => return None,
    };
    let part = |at: usize, len: usize| &full[at..at + len];
    let (day, month, year) = (part(6, 2), part(4, 2), part(0, 4));
    let (hour, minute, second) = (part(8, 2), part(10, 2), part(12, 2));
    full.ends_with('Z').then_some(())?;
    WallTime::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

fn names(extensions: &[u8]) -> Option<Vec<PeerName>> {
    let mut extensions = Reader(extensions);
    while let Some(extension) = extensions.take(SEQUENCE) {
        let mut extension = Reader(extension);
        if extension.take(OBJECT)? != SUBJECT_ALT_NAME {
            continue;
        }
        extension.skip(BOOLEAN)?;
        let mut names = Reader(Reader(extension.take(OCTETS)?).take(SEQUENCE)?);
        let mut found = Vec::new();
        while let Some((tag, name)) = names.next() {
            let name = core::str::from_utf8(name).ok().filter(|_| tag == DNS_NAME);
            found.extend(name.and_then(PeerName::parse));
        }
        return Some(found);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    fn der() -> Vec<u8> {
        let pem = include_bytes!("../../tests/authority/a.pem");
        CertificateDer::from_pem_slice(pem).expect("a certificate").to_vec()
    }

    #[test]
    fn expiry_and_names_are_read() {
        let (expires, names) = read(&der()).expect("a certificate");
        assert_eq!(expires.to_string(), "2027-01-31");
        let names: Vec<&str> = names.iter().map(PeerName::as_str).collect();
        assert_eq!(names, ["a.rack4", "alias-a.rack4"]);
    }

    #[test]
    fn both_kinds_of_time_are_read_and_others_are_not() {
        let year = |kind, text: &str| time(kind, text.as_bytes()).map(|time| time.to_string());
        let of = |text: &str| Some(text.to_owned());
        assert_eq!(year(UTC_TIME, "491231235959Z"), of("2049-12-31T23:59:59Z"));
        assert_eq!(year(UTC_TIME, "700101000000Z"), of("1970-01-01"));
        assert_eq!(year(GENERALIZED_TIME, "20600101000000Z"), of("2060-01-01"));
        assert_eq!(year(GENERALIZED_TIME, "20601301000000Z"), None);
        assert_eq!(year(GENERALIZED_TIME, "491231235959Z"), None);
        assert_eq!(year(UTC_TIME, "4912312359590"), None);
        assert_eq!(year(UTC_TIME, "49123123595\u{e9}"), None);
        assert_eq!(year(INTEGER, "491231235959Z"), None);
    }

    #[test]
    fn damaged_certificates_are_errors() {
        let der = der();
        for at in 0..der.len() {
            assert!(read(&der[..at]).is_err(), "cut at {at}");
            for value in [0, 0x7f, 0x80, 0x81, 0x83, 0x84, 0xff, der[at] ^ 1] {
                let mut damaged = der.clone();
                damaged[at] = value;
                let _ = read(&damaged);
            }
        }
    }
}
