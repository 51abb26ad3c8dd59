//! The words of a command into what it asks for.

use super::parse::Words;
use crate::store::When;
use std::borrow::Cow;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// GET key.
    Get(&'a [u8]),
    /// SET key value, with a condition and the milliseconds after which it expires.
    Set {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// NX or XX.
        when: When,
        /// EX or PX.
        expire_ms: Option<u64>,
    },
    /// DEL key and more.
    Del(&'a [Cow<'a, [u8]>]),
    /// EXISTS key and more.
    Exists(&'a [Cow<'a, [u8]>]),
    /// MGET key and more.
    MGet(&'a [Cow<'a, [u8]>]),
    /// INCR key.
    Incr(&'a [u8]),
    /// PING, and perhaps what is to come back.
    Ping(Option<&'a [u8]>),
    /// ECHO: what is to come back.
    Echo(&'a [u8]),
    /// INFO; which section is not looked at.
    Info,
    /// COMMAND: which commands there are.
    Commands,
    /// COMMAND COUNT: how many.
    CommandCount,
    /// COMMAND DOCS: what is told of each.
    CommandDocs,
    /// CONFIG GET name.
    ConfigGet(&'a [u8]),
    /// SELECT 0.
    Select,
    /// QUIT.
    Quit,
}

/// Why words are no command that is carried out. The connection goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is none of this name.
    #[error("ERR unknown command '{0}'")]
    Unknown(String),
    /// Too many words, or too few.
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    /// A word that has no meaning there.
    #[error("ERR syntax error")]
    Syntax,
    /// A number that is none.
    #[error("ERR value is not an integer or out of range")]
    NotANumber,
    /// A time that is none.
    #[error("ERR invalid expire time in 'set' command")]
    ExpireTime,
    /// There is one database.
    #[error("ERR DB index is out of range")]
    Database,
}

/// Bytes of a name that are shown to whoever sent it.
const SHOWN_MAX: usize = 64;

/// The longest expiry: as others have it, what fits in a signed number of milliseconds; here also
/// in nanoseconds, some 290 years.
const EXPIRE_MS_MAX: u64 = i64::MAX as u64 / 1_000_000;

fn shown(name: &[u8]) -> String {
    name[..name.len().min(SHOWN_MAX)].escape_ascii().to_string()
}

impl<'a> Command<'a> {
    /// Reads the words of a command, of which there is one at least.
    ///
    /// # Errors
    /// [`CommandError`], of which the text is what the client is told.
    pub fn of(words: &'a Words<'_>) -> Result<Self, CommandError> {
        let Some((name, rest)) = words.split_first() else { return Err(CommandError::Syntax) };
        let mut upper = [0; 8];
        let known =
            upper.get_mut(..name.len()).ok_or_else(|| CommandError::Unknown(shown(name)))?;
        known.copy_from_slice(name);
        known.make_ascii_uppercase();
        let arity = || CommandError::Arity(shown(&name.to_ascii_lowercase()));
        match (&*known, rest) {
            (b"GET", [key]) => Ok(Self::Get(key)),
            (b"SET", [key, value, options @ ..]) => Self::set(key, value, options),
            (b"DEL", [_, ..]) => Ok(Self::Del(rest)),
            (b"EXISTS", [_, ..]) => Ok(Self::Exists(rest)),
            (b"MGET", [_, ..]) => Ok(Self::MGet(rest)),
            (b"INCR", [key]) => Ok(Self::Incr(key)),
            (b"PING", []) => Ok(Self::Ping(None)),
            (b"PING", [text]) => Ok(Self::Ping(Some(text))),
            (b"ECHO", [text]) => Ok(Self::Echo(text)),
            (b"INFO", _) => Ok(Self::Info),
            (b"COMMAND", []) => Ok(Self::Commands),
            (b"COMMAND", [what]) if what.eq_ignore_ascii_case(b"COUNT") => Ok(Self::CommandCount),
            (b"COMMAND", [what, ..]) if what.eq_ignore_ascii_case(b"DOCS") => Ok(Self::CommandDocs),
            (b"COMMAND", _) => Err(CommandError::Syntax),
            (b"CONFIG", [get, name]) if get.eq_ignore_ascii_case(b"GET") => {
                Ok(Self::ConfigGet(name))
            }
            (b"CONFIG", [_, ..]) => Err(CommandError::Syntax),
            (b"SELECT", [number]) if **number == *b"0" => Ok(Self::Select),
            (b"SELECT", [number]) => Err(match decimal(number) {
                Some(_) => CommandError::Database,
                None => CommandError::NotANumber,
            }),
            (b"QUIT", _) => Ok(Self::Quit),
            (
                b"GET" | b"SET" | b"DEL" | b"EXISTS" | b"MGET" | b"INCR" | b"PING" | b"ECHO"
                | b"CONFIG" | b"SELECT",
                _,
            ) => Err(arity()),
            _ => Err(CommandError::Unknown(shown(name))),
        }
    }

    fn set(
        key: &'a [u8],
        value: &'a [u8],
        options: &[Cow<'_, [u8]>],
    ) -> Result<Self, CommandError> {
        let (mut when, mut expire_ms, mut rest) = (When::Always, None, options);
        while let [option, after @ ..] = rest {
            let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
            rest = match after {
                _ if is(b"NX") && when != When::Present => {
                    when = When::Absent;
                    after
                }
                _ if is(b"XX") && when != When::Absent => {
                    when = When::Present;
                    after
                }
                [time, after @ ..] if (is(b"EX") || is(b"PX")) && expire_ms.is_none() => {
                    let time = decimal(time).ok_or(CommandError::NotANumber)?;
                    let ms = if is(b"EX") { time.checked_mul(1_000) } else { Some(time) };
                    let ms = ms.filter(|ms| (1..=EXPIRE_MS_MAX).contains(ms));
                    expire_ms = Some(ms.ok_or(CommandError::ExpireTime)?);
                    after
                }
                _ => return Err(CommandError::Syntax),
            };
        }
        Ok(Self::Set { key, value, when, expire_ms })
    }
}

/// A whole number. A negative one is as wrong as 0 where it is used, and becomes it.
fn decimal(text: &[u8]) -> Option<u64> {
    let number: i64 = str::from_utf8(text).ok()?.parse().ok()?;
    Some(u64::try_from(number).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> String {
        let words: Words<'_> = line.split(' ').map(|word| word.as_bytes().into()).collect();
        match Command::of(&words) {
            Ok(command) => format!("{command:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn set_takes_its_options_in_any_order_and_case() {
        let whole = "Set { key: [107], value: [118], when: Present, expire_ms: Some(5000) }";
        assert_eq!(said("set k v ex 5 XX"), whole);
        assert_eq!(said("SET k v xx PX 5000"), whole);
        assert!(said("SET k v NX").contains("Absent, expire_ms: None"));
        for wrong in ["NX XX", "XX NX", "EX", "EX 5 PX 5", "KEEPTTL"] {
            assert_eq!(said(&format!("SET k v {wrong}")), "ERR syntax error", "{wrong}");
        }
        for wrong in ["0", "-1", "9223372036854775807"] {
            let said = said(&format!("SET k v EX {wrong}"));
            assert_eq!(said, "ERR invalid expire time in 'set' command", "{wrong}");
        }
        assert!(said("SET k v EX five").starts_with("ERR value is not an integer"));
    }

    #[test]
    fn what_is_no_command_is_told_as_other_servers_tell_it() {
        assert_eq!(said("get"), "ERR wrong number of arguments for 'get' command");
        assert_eq!(said("GET a b"), "ERR wrong number of arguments for 'get' command");
        assert_eq!(said("HGETALL a"), "ERR unknown command 'HGETALL'");
        assert_eq!(said("UNSUBSCRIBE a"), "ERR unknown command 'UNSUBSCRIBE'");
        assert_eq!(said("select 1"), "ERR DB index is out of range");
        assert_eq!(said("select x"), "ERR value is not an integer or out of range");
        assert_eq!(said("select 0"), "Select");
        let long = said(&"x".repeat(1_000));
        assert!(long.len() < 100, "{long}");
    }
}
