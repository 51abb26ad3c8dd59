//! What is answered on a connection: commands one by one, or as a transaction.

use super::command::Command;
use super::options::{ClientAsk, Hello};
use super::parse::{Parsed, Words, parse};
use super::reply::{Form, Replies};
use super::transaction::{Queue, Watch};
use super::{info, values};
use crate::limits::{
    OUTPUT_PAUSE_BYTES, REPLY_BYTES_MAX, SMALL_REPLY_BYTES, TRANSACTION_BYTES_MAX,
    TRANSACTION_COMMANDS_MAX, WATCHED_KEYS_MAX,
};
use crate::serve::{Counters, Dialogue, Next, Taken};
use crate::store::{Pass, Store};
use std::borrow::Cow;
use std::sync::Arc;
use towpath_base::Time;

/// What a client is told when there are as many connections as may be.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"-ERR max number of clients reached\r\n";

/// What a client is told whose reply would be longer than any.
pub(super) const REPLY_TOO_LONG: &str = "ERR the reply is too long, ask for fewer keys at a time";

/// One connection of RESP2 or RESP3.
#[derive(Debug)]
pub struct RespDialogue {
    served: Served,
    state: State,
}

/// What all connections have in common.
#[derive(Debug)]
struct Served {
    store: Arc<dyn Store>,
    counters: Arc<Counters>,
}

/// What a connection remembers between commands. Of most it has no memory elsewhere.
#[derive(Debug)]
struct State {
    id: u64,
    form: Form,
    /// As the client calls it.
    name: Box<[u8]>,
    /// Since MULTI.
    queue: Option<Box<Queue>>,
    watch: Option<Box<Watch>>,
}

impl State {
    fn new(id: u64) -> Self {
        Self { id, form: Form::Resp2, name: Box::default(), queue: None, watch: None }
    }
}

/// How it goes on after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Another,
    Close,
    /// What comes is not for this server.
    Stranger,
}

impl RespDialogue {
    /// Serves this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, counters: Arc<Counters>) -> Self {
        let state = State::new(counters.number_connection());
        Self { served: Served { store, counters }, state }
    }
}

impl Dialogue for RespDialogue {
    fn take(&mut self, input: &[u8], now: Time, out: &mut Vec<u8>) -> Taken {
        let Self { served, state } = self;
        let mut pass = served.store.gate().enter();
        let mut taken = Taken { used: 0, requests: 0, next: Next::Paused };
        while out.len() < OUTPUT_PAUSE_BYTES {
            let (words, len) = match parse(&input[taken.used..]) {
                Ok(Parsed::Words { words, len }) => (words, len),
                Ok(Parsed::More { needed }) => {
                    return Taken { next: Next::More { needed }, ..taken };
                }
                Err(error) => {
                    let mut replies = Replies { out, form: state.form };
                    replies.error(&format_args!("ERR Protocol error: {error}"));
                    return Taken { next: Next::Malformed, ..taken };
                }
            };
            let bytes = &input[taken.used..][..len];
            taken.used += len;
            if words.is_empty() {
                continue;
            }
            taken.requests += 1;
            match served.answer(&words, bytes, (state, &mut pass, now), out) {
                After::Another => {}
                After::Close => return Taken { next: Next::Close, ..taken },
                After::Stranger => return Taken { next: Next::Malformed, ..taken },
            }
        }
        taken
    }

    fn held_bytes(&self) -> usize {
        let queue = self.state.queue.as_ref().map_or(0, |queue| queue.bytes.capacity());
        let watch = self.state.watch.as_ref().map_or(0, |watch| watch.held_bytes());
        queue + watch + self.state.name.len()
    }

    fn is_begun(&self) -> bool {
        self.state.queue.is_some()
    }
}

/// What a command is carried out with, beside its words.
type Where<'a, 'p> = (&'a mut State, &'a mut Pass<'p>, Time);

impl Served {
    fn answer(
        &self,
        words: &Words<'_>,
        bytes: &[u8],
        (state, pass, now): Where<'_, '_>,
        out: &mut Vec<u8>,
    ) -> After {
        let mut replies = Replies { out, form: state.form };
        let command = match Command::of(words) {
            Ok(command) => command,
            Err(error) => {
                match &mut state.queue {
                    // The others tell of what is wrong with them when they are carried out.
                    Some(queue) if !error.aborts() => enqueue(queue, bytes, &mut replies),
                    Some(queue) => {
                        queue.abort();
                        replies.error(&error);
                    }
                    None => replies.error(&error),
                }
                return After::Another;
            }
        };
        match command {
            Command::Quit => {
                replies.ok();
                return After::Close;
            }
            Command::Http => {
                replies.error(&"ERR this is no HTTP server");
                return After::Stranger;
            }
            Command::Multi if state.queue.is_some() => {
                replies.error(&"ERR MULTI calls can not be nested");
            }
            Command::Watch(_) if state.queue.is_some() => {
                replies.error(&"ERR WATCH inside MULTI is not allowed");
            }
            Command::Multi => {
                state.queue = Some(Box::default());
                replies.ok();
            }
            Command::Exec => self.exec(state, pass, now, out),
            Command::Discard if state.queue.is_none() => {
                replies.error(&"ERR DISCARD without MULTI");
            }
            Command::Discard => {
                (state.queue, state.watch) = (None, None);
                replies.ok();
            }
            Command::Reset => {
                *state = State::new(state.id);
                replies.word("RESET");
            }
            ref other => match &mut state.queue {
                Some(queue) => enqueue(queue, bytes, &mut replies),
                None => self.carry_out(other, (state, pass, now), out),
            },
        }
        After::Another
    }

    /// Carries out a command that may be one of a transaction.
    fn carry_out(
        &self,
        command: &Command<'_>,
        (state, pass, now): Where<'_, '_>,
        out: &mut Vec<u8>,
    ) {
        let mut replies = Replies { out, form: state.form };
        match *command {
            Command::Hello(hello) => {
                greet(&hello, state);
                info::hello(&mut Replies { out, form: state.form }, state.id);
            }
            Command::Client(ClientAsk::SetName(name)) => {
                state.name = name.into();
                replies.ok();
            }
            Command::Client(ClientAsk::GetName) if state.name.is_empty() => replies.null(),
            Command::Client(ClientAsk::GetName) => replies.bulk(&state.name),
            Command::Client(ClientAsk::Id) => {
                replies.number(i64::try_from(state.id).unwrap_or(i64::MAX));
            }
            Command::Watch(keys) => {
                let watches = pass.alone(|_| self.watch(keys, state, now));
                match watches {
                    true => replies.ok(),
                    false => replies.error(&format_args!(
                        "ERR a connection watches at most {WATCHED_KEYS_MAX} keys"
                    )),
                }
            }
            Command::Unwatch => {
                state.watch = None;
                replies.ok();
            }
            Command::Ping(None) => replies.word("PONG"),
            Command::Ping(Some(text)) | Command::Echo(text) => replies.bulk(text),
            Command::Info => {
                replies.text(&info::text(&self.store.figures(), &self.counters.counted()));
            }
            Command::Commands => info::describe(info::COMMANDS.iter().map(Some), &mut replies),
            Command::CommandCount => replies.number(info::COMMANDS.len() as i64),
            Command::CommandList => info::list(&mut replies),
            Command::CommandInfo([]) => {
                info::describe(info::COMMANDS.iter().map(Some), &mut replies);
            }
            Command::CommandInfo(names) => {
                info::describe(names.iter().map(|name| info::find(name)), &mut replies);
            }
            Command::CommandDocs(names) => info::document(names, &mut replies),
            Command::ConfigGet(names) => {
                info::settings(names, &self.store.figures(), &mut replies);
            }
            Command::Select | Command::Client(ClientAsk::Hint) => replies.ok(),
            ref other => values::carry_out(&*self.store, other, (pass, now), &mut replies),
        }
    }

    fn watch(&self, keys: &[Cow<'_, [u8]>], state: &mut State, now: Time) -> bool {
        let watch = state.watch.get_or_insert_with(|| Box::new(Watch::new(&self.store)));
        keys.iter().all(|key| watch.add(key, now))
    }

    /// Carries out what was queued, and nothing else meanwhile.
    fn exec(&self, state: &mut State, pass: &mut Pass<'_>, now: Time, out: &mut Vec<u8>) {
        let mut replies = Replies { out, form: state.form };
        let Some(queue) = state.queue.take() else {
            return replies.error(&"ERR EXEC without MULTI");
        };
        let watch = state.watch.take();
        if queue.is_aborted {
            return replies.error(&"EXECABORT Transaction discarded because of previous errors.");
        }
        pass.alone(|pass| {
            if watch.as_ref().is_some_and(|watch| !watch.holds(now)) {
                return Replies { out, form: state.form }.null_list();
            }
            Replies { out, form: state.form }.list(queue.count);
            let (begin, mut at, mut read) = (out.len(), 0, 0);
            while let Ok(Parsed::Words { words, len }) = parse(&queue.bytes[at..]) {
                at += len;
                let before = out.len();
                match Command::of(&words) {
                    // All others wait: nothing is copied that is not sent.
                    Ok(command) if command.only_reads() && read > REPLY_BYTES_MAX => {
                        Replies { out, form: state.form }.error(&REPLY_TOO_LONG);
                    }
                    Ok(command) => self.carry_out(&command, (&mut *state, pass, now), out),
                    Err(error) => Replies { out, form: state.form }.error(&error),
                }
                // It was done. A short reply tells so as well as the error would.
                let len = out.len() - before;
                read += len;
                if len > SMALL_REPLY_BYTES && out.len() - begin > REPLY_BYTES_MAX {
                    out.truncate(before);
                    Replies { out, form: state.form }.error(&REPLY_TOO_LONG);
                }
            }
        });
    }
}

fn greet(hello: &Hello<'_>, state: &mut State) {
    state.form = match hello.resp3 {
        None => state.form,
        Some(true) => Form::Resp3,
        Some(false) => Form::Resp2,
    };
    if let Some(name) = hello.name {
        state.name = name.into();
    }
}

/// A command is carried out at EXEC.
fn enqueue(queue: &mut Queue, command: &[u8], replies: &mut Replies<'_>) {
    match queue.push(command) {
        true => replies.word("QUEUED"),
        false => replies.error(&format_args!(
            "ERR a transaction has at most {TRANSACTION_COMMANDS_MAX} commands of \
             {TRANSACTION_BYTES_MAX} bytes"
        )),
    }
}
