//! A capability from flags and a file of keys.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use towpath_fastpath::cap::{Capability, Rights, Scope};
use towpath_fastpath::proof::system_ms;
use towpath_fastpath::wire::tenant_number;

use super::super::error::{CliError, FileVerb};
use super::super::print_text;
use super::{random_bytes, read_keys};

/// Flags of `towpath cap mint`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct MintArgs {
    /// File of keys; the last one makes the capability
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// What it allows, with commas between: read, write, create, delete, one-sided, admin; or all
    #[arg(long, value_name = "RIGHTS", value_parser = parse_rights)]
    rights: Rights,
    /// The chunks that it is for: the 32 hexadecimal digits of a name, or the first ones of several
    /// names [default: all chunks]
    #[arg(long, value_name = "ID", value_parser = parse_scope)]
    chunk: Option<Scope>,
    /// The first byte of a chunk that it is for
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// How many bytes from there on [default: all that follow]
    #[arg(long, value_name = "N")]
    bytes: Option<u64>,
    /// For how long, as in 90s, 15m, 12h or 30d
    #[arg(long = "for", value_name = "TIME", default_value = "1d", value_parser = parse_ms)]
    lasts_ms: u64,
    /// The only tenant that may use it [default: any]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// File to make of it, which only its owner can read [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &MintArgs) -> Result<(), CliError> {
    let ring = read_keys(&args.keys)?;
    let capability = Capability {
        rights: args.rights,
        scope: args.chunk.unwrap_or(Scope::ALL),
        offset: args.offset,
        byte_len: args.bytes.unwrap_or(u64::MAX),
        expires_ms: system_ms().saturating_add(args.lasts_ms),
        serial: u64::from_le_bytes(random_bytes()?).max(1),
        tenant: args.tenant.as_deref().map_or(0, tenant_number),
        ..Capability::everything()
    };
    let text = format!("{}\n", ring.mint(capability).map_err(CliError::Mint)?.to_text());
    let Some(path) = &args.out else { return print_text(&text) };
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| CliError::file(FileVerb::Create, path, e))
}

fn parse_rights(text: &str) -> Result<Rights, String> {
    Rights::parse(text).map_err(|word| {
        format!("{word:?} is no right: read, write, create, delete, one-sided, admin or all")
    })
}

/// The digits that a name begins with.
fn parse_scope(text: &str) -> Result<Scope, String> {
    let digits = text.len();
    let is_name = (1..=32).contains(&digits) && text.bytes().all(|b| b.is_ascii_hexdigit());
    let name = u128::from_str_radix(text, 16).ok().filter(|_| is_name);
    let name = name.ok_or("1 to 32 hexadecimal digits are needed")?;
    let bits = 4 * digits as u8;
    Ok(Scope::prefix(name.checked_shl(u32::from(128 - bits)).unwrap_or(name), bits))
}

fn parse_ms(text: &str) -> Result<u64, String> {
    let wrong = || String::from("a number and s, m, h or d is needed, as in 90s or 12h");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds * 1_000).filter(|ms| *ms > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_given_whole_or_by_their_first_digits() {
        let whole = format!("{:032x}", 5);
        assert_eq!(parse_scope(&whole), Ok(Scope::chunk(5)));
        assert_eq!(parse_scope("a"), Ok(Scope::prefix(0xa << 124, 4)));
        for wrong in ["", "+1", "g", &format!("{whole}0")] {
            assert!(parse_scope(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_ms("90s"), Ok(90_000));
        assert_eq!(parse_ms("2d"), Ok(172_800_000));
        for wrong in ["", "s", "5", "0s", "-1s", "1y", "99999999999999999999d"] {
            assert!(parse_ms(wrong).is_err(), "{wrong}");
        }
    }
}
