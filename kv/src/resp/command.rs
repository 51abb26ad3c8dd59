//! The words of a command into what it asks for.

use super::info;
use super::options::{self, ClientAsk, ExpireIf, Expiry, Hello};
use super::parse::Words;
use crate::store::When;
use std::borrow::Cow;

/// Keys, or keys and values in turn.
type List<'a> = &'a [Cow<'a, [u8]>];

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// GET key.
    Get(&'a [u8]),
    /// SET key value with its options, SETEX, PSETEX, GETSET.
    Set {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// NX or XX.
        when: When,
        /// EX, PX or KEEPTTL.
        expiry: Expiry,
        /// The value before is the reply.
        gets: bool,
    },
    /// SETNX key value: SET with NX, answered by a number.
    SetAbsent(&'a [u8], &'a [u8]),
    /// GETDEL key.
    GetDel(&'a [u8]),
    /// GETEX key, and what becomes of its time.
    GetEx(&'a [u8], Expiry),
    /// APPEND key value.
    Append(&'a [u8], &'a [u8]),
    /// STRLEN key.
    Length(&'a [u8]),
    /// GETRANGE key from to.
    Range(&'a [u8], i64, i64),
    /// DEL key and more, UNLINK.
    Del(List<'a>),
    /// EXISTS key and more, TOUCH.
    Exists(List<'a>),
    /// MGET key and more.
    MGet(List<'a>),
    /// MSET key value and more.
    MSet(List<'a>),
    /// MSETNX key value and more: all of them, or none where a key is there.
    MSetAbsent(List<'a>),
    /// INCR, DECR, INCRBY, DECRBY.
    Incr(&'a [u8], i64),
    /// EXPIRE and PEXPIRE: milliseconds, and on which condition.
    Expire(&'a [u8], i64, ExpireIf),
    /// PERSIST key.
    Persist(&'a [u8]),
    /// TTL and PTTL: of a key, in units of so many milliseconds.
    TimeLeft(&'a [u8], u64),
    /// TYPE key.
    Type(&'a [u8]),
    /// DBSIZE.
    Size,
    /// FLUSHALL, FLUSHDB.
    Clear,
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
    /// COMMAND LIST: their names.
    CommandList,
    /// COMMAND INFO: these of them, or all.
    CommandInfo(List<'a>),
    /// COMMAND DOCS: what is told of these, or of all.
    CommandDocs(List<'a>),
    /// CONFIG GET name and more.
    ConfigGet(List<'a>),
    /// HELLO.
    Hello(Hello<'a>),
    /// CLIENT.
    Client(ClientAsk<'a>),
    /// SELECT 0.
    Select,
    /// MULTI: what follows is carried out at EXEC.
    Multi,
    /// EXEC.
    Exec,
    /// DISCARD: what followed MULTI is forgotten.
    Discard,
    /// WATCH key and more: EXEC does nothing where one of them changes.
    Watch(List<'a>),
    /// UNWATCH.
    Unwatch,
    /// RESET: the connection is as at its begin.
    Reset,
    /// QUIT.
    Quit,
    /// `POST` or `Host:`, as a line: whoever sends it means another server.
    Http,
}

/// Why words are no command that is carried out. The connection goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is none of this name.
    #[error("ERR unknown command '{0}'")]
    Unknown(String),
    /// There are no scripts.
    #[error("ERR unknown command '{0}': this server runs no scripts")]
    Script(String),
    /// There is no second word of this name.
    #[error("ERR unknown subcommand '{0}'")]
    Subcommand(String),
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
    #[error("ERR invalid expire time in '{0}' command")]
    ExpireTime(&'static str),
    /// There is one database.
    #[error("ERR DB index is out of range")]
    Database,
    /// Neither RESP2 nor RESP3.
    #[error("NOPROTO unsupported protocol version")]
    Protocol,
    /// There are no passwords.
    #[error("ERR AUTH called without any password configured: this server has none, leave it out")]
    Password,
    /// What no connection is called.
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    ClientName,
}

impl CommandError {
    /// Whether a transaction that has it is not carried out, as with others: they tell of what is
    /// wrong with the other words when they carry it out.
    #[must_use]
    pub fn aborts(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Script(_) | Self::Arity(_) | Self::Subcommand(_))
    }
}

/// Bytes of a name that are shown to whoever sent it.
const SHOWN_MAX: usize = 64;

/// The longest name of a command, and more.
const NAME_MAX: usize = 16;

pub(super) fn shown(name: &[u8]) -> String {
    name[..name.len().min(SHOWN_MAX)].escape_ascii().to_string()
}

impl<'a> Command<'a> {
    /// Whether it tells of values and changes none.
    pub(super) fn only_reads(&self) -> bool {
        matches!(self, Self::Get(_) | Self::MGet(_) | Self::Range(..) | Self::Echo(_))
    }

    /// Reads the words of a command, of which there is one at least.
    ///
    /// # Errors
    /// [`CommandError`], of which the text is what the client is told.
    pub fn of(words: &'a Words<'_>) -> Result<Self, CommandError> {
        let Some((name, rest)) = words.split_first() else { return Err(CommandError::Syntax) };
        let mut upper = [0; NAME_MAX];
        let known =
            upper.get_mut(..name.len()).ok_or_else(|| CommandError::Unknown(shown(name)))?;
        known.copy_from_slice(name);
        known.make_ascii_uppercase();
        let known = &*known;
        let found = Self::of_value(known, rest)
            .or_else(|| Self::of_time(known, rest))
            .or_else(|| Self::of_connection(known, rest));
        found.unwrap_or_else(|| Err(no_command(name)))
    }

    /// Those about values; none where it is another one.
    fn of_value(name: &[u8], rest: List<'a>) -> Option<Result<Self, CommandError>> {
        Some(Ok(match (name, rest) {
            (b"GET", [key]) => Self::Get(key),
            (b"SET", [key, value, words @ ..]) => return Some(options::set(key, value, words)),
            (b"DEL" | b"UNLINK", [_, ..]) => Self::Del(rest),
            (b"EXISTS" | b"TOUCH", [_, ..]) => Self::Exists(rest),
            (b"MGET", [_, ..]) => Self::MGet(rest),
            (b"MSET", [_, _, ..]) if rest.len().is_multiple_of(2) => Self::MSet(rest),
            (b"MSETNX", [_, _, ..]) if rest.len().is_multiple_of(2) => Self::MSetAbsent(rest),
            (b"INCR", [key]) => Self::Incr(key, 1),
            (b"DECR", [key]) => Self::Incr(key, -1),
            (b"INCRBY", [key, by]) => {
                return Some(options::number(by).map(|by| Self::Incr(key, by)));
            }
            (b"DECRBY", [key, by]) => {
                let by = options::number(by)
                    .and_then(|by| by.checked_neg().ok_or(CommandError::NotANumber));
                return Some(by.map(|by| Self::Incr(key, by)));
            }
            (b"SETNX", [key, value]) => Self::SetAbsent(key, value),
            (b"GETSET", [key, value]) => {
                let (when, expiry, gets) = (When::Always, Expiry::Never, true);
                Self::Set { key, value, when, expiry, gets }
            }
            (b"GETDEL", [key]) => Self::GetDel(key),
            (b"APPEND", [key, value]) => Self::Append(key, value),
            (b"STRLEN", [key]) => Self::Length(key),
            (b"GETRANGE" | b"SUBSTR", [key, from, to]) => {
                let range = options::number(from).and_then(|from| Ok((from, options::number(to)?)));
                return Some(range.map(|(from, to)| Self::Range(key, from, to)));
            }
            (b"TYPE", [key]) => Self::Type(key),
            _ => return None,
        }))
    }

    /// Those about when values expire; none where it is another one.
    fn of_time(name: &[u8], rest: List<'a>) -> Option<Result<Self, CommandError>> {
        let put = |key: &'a [u8], value: &'a [u8], expiry| {
            let (when, gets) = (When::Always, false);
            Self::Set { key, value, when, expiry, gets }
        };
        Some(match (name, rest) {
            (b"SETEX", [key, time, value]) => {
                options::after(time, 1_000, "setex").map(|expiry| put(key, value, expiry))
            }
            (b"PSETEX", [key, time, value]) => {
                options::after(time, 1, "psetex").map(|expiry| put(key, value, expiry))
            }
            (b"GETEX", [key, words @ ..]) => {
                options::get_ex(words).map(|expiry| Self::GetEx(key, expiry))
            }
            (b"EXPIRE", [key, time, words @ ..]) => {
                options::expire(key, time, words, (1_000, "expire"))
            }
            (b"PEXPIRE", [key, time, words @ ..]) => {
                options::expire(key, time, words, (1, "pexpire"))
            }
            (b"PERSIST", [key]) => Ok(Self::Persist(key)),
            (b"TTL", [key]) => Ok(Self::TimeLeft(key, 1_000)),
            (b"PTTL", [key]) => Ok(Self::TimeLeft(key, 1)),
            _ => return None,
        })
    }

    /// Those about the connection, the server and transactions; none where it is another one.
    fn of_connection(name: &[u8], rest: List<'a>) -> Option<Result<Self, CommandError>> {
        Some(Ok(match (name, rest) {
            (b"PING", []) => Self::Ping(None),
            (b"PING", [text]) => Self::Ping(Some(text)),
            (b"ECHO", [text]) => Self::Echo(text),
            (b"MULTI", []) => Self::Multi,
            (b"EXEC", []) => Self::Exec,
            (b"DISCARD", []) => Self::Discard,
            (b"WATCH", [_, ..]) => Self::Watch(rest),
            (b"UNWATCH", []) => Self::Unwatch,
            (b"HELLO", _) => return Some(options::hello(rest).map(Self::Hello)),
            (b"AUTH", [_] | [_, _]) => return Some(Err(CommandError::Password)),
            (b"CLIENT", [what, words @ ..]) => {
                return Some(options::client(what, words).map(Self::Client));
            }
            (b"SELECT", [number]) => {
                return Some(match options::number(number) {
                    Ok(0) => Ok(Self::Select),
                    Ok(_) => Err(CommandError::Database),
                    Err(error) => Err(error),
                });
            }
            (b"INFO", _) => Self::Info,
            (b"COMMAND", []) => Self::Commands,
            (b"COMMAND", [what, words @ ..]) => match () {
                () if what.eq_ignore_ascii_case(b"COUNT") => Self::CommandCount,
                () if what.eq_ignore_ascii_case(b"DOCS") => Self::CommandDocs(words),
                () if what.eq_ignore_ascii_case(b"INFO") => Self::CommandInfo(words),
                () if what.eq_ignore_ascii_case(b"LIST") => Self::CommandList,
                () => return Some(Err(CommandError::Subcommand(shown(what)))),
            },
            (b"CONFIG", [what, words @ ..]) => match words {
                [_, ..] if what.eq_ignore_ascii_case(b"GET") => Self::ConfigGet(words),
                _ => return Some(Err(CommandError::Subcommand(shown(what)))),
            },
            (b"DBSIZE", []) => Self::Size,
            (b"FLUSHALL" | b"FLUSHDB", []) => Self::Clear,
            (b"FLUSHALL" | b"FLUSHDB", [how])
                if how.eq_ignore_ascii_case(b"SYNC") || how.eq_ignore_ascii_case(b"ASYNC") =>
            {
                Self::Clear
            }
            (b"RESET", []) => Self::Reset,
            (b"QUIT", _) => Self::Quit,
            (b"POST" | b"HOST:", _) => Self::Http,
            _ => return None,
        }))
    }
}

/// Why it is none.
fn no_command(name: &[u8]) -> CommandError {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    match () {
        () if info::COMMANDS.iter().any(|command| is(command.name)) => {
            CommandError::Arity(shown(&name.to_ascii_lowercase()))
        }
        () if ["eval", "eval_ro", "evalsha", "evalsha_ro", "script", "fcall", "function"]
            .into_iter()
            .any(is) =>
        {
            CommandError::Script(shown(name))
        }
        () => CommandError::Unknown(shown(name)),
    }
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
        let whole = "Set { key: [107], value: [118], when: Present, expiry: AfterMs(5000), \
                     gets: true }";
        assert_eq!(said("set k v get ex 5 XX"), whole);
        assert_eq!(said("SET k v xx PX 5000 GET"), whole);
        assert!(said("SET k v NX").contains("Absent, expiry: Never"));
        assert!(said("SET k v KEEPTTL").contains("expiry: Keep"));
        for wrong in ["NX XX", "XX NX", "EX", "EX 5 PX 5", "EX 5 KEEPTTL", "EXAT 5"] {
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
        assert_eq!(said("MSET a b c"), "ERR wrong number of arguments for 'mset' command");
        assert_eq!(said("HGETALL a"), "ERR unknown command 'HGETALL'");
        assert_eq!(said("UNSUBSCRIBE a"), "ERR unknown command 'UNSUBSCRIBE'");
        let script = "ERR unknown command 'EVALSHA': this server runs no scripts";
        assert_eq!(said("EVALSHA 0123 0"), script);
        assert_eq!(said("select 1"), "ERR DB index is out of range");
        assert_eq!(said("select x"), "ERR value is not an integer or out of range");
        assert_eq!(said("select 0"), "Select");
        assert_eq!(said("CLIENT TRACKING ON"), "ERR unknown subcommand 'TRACKING'");
        assert_eq!(said("DECRBY k -9223372036854775808"), CommandError::NotANumber.to_string());
        let long = said(&"x".repeat(1_000));
        assert!(long.len() < 100, "{long}");
    }

    #[test]
    fn hello_takes_two_versions_and_no_password() {
        assert_eq!(said("HELLO"), "Hello(Hello { resp3: None, name: None })");
        assert_eq!(said("hello 2"), "Hello(Hello { resp3: Some(false), name: None })");
        let named = "Hello(Hello { resp3: Some(true), name: Some([109, 101]) })";
        assert_eq!(said("HELLO 3 SETNAME me"), named);
        assert_eq!(said("HELLO 4"), "NOPROTO unsupported protocol version");
        assert_eq!(said("HELLO 3 SETNAME"), "ERR syntax error");
        for line in ["HELLO 3 AUTH default secret SETNAME me", "AUTH secret", "AUTH me secret"] {
            assert_eq!(said(line), CommandError::Password.to_string(), "{line}");
        }
    }

    #[test]
    fn each_command_of_the_list_is_one_and_has_as_many_words_as_told() {
        for command in &info::COMMANDS {
            let name = command.name;
            let known = [name, " 1 2 3"].concat();
            assert!(!said(&known).starts_with("ERR unknown command"), "{known}");
            let words = command.arity.unsigned_abs() as usize;
            let fewest = [&[name], &["1"; 8][..words - 1]].concat().join(" ");
            let arity = "ERR wrong number of arguments";
            assert!(!said(&fewest).starts_with(arity), "{fewest}");
            if words > 1 {
                let fewer = fewest.rsplit_once(' ').expect("two words").0;
                assert!(said(fewer).starts_with(arity), "{fewer}");
            }
        }
    }
}
