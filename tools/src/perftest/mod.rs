//! `tow_send_bw`, `tow_write_lat` and the others: perftest's look and feel, over Towpath, plain
//! verbs and kernel TCP.
//!
//! | file or folder | what |
//! |---|---|
//! | `tool`, `args`, `settings` | which tool, its flags, and what they ask for |
//! | `control` | the set-up connection: agreeing, starting rows together, comparing counts |
//! | `setup` | connecting what carries the messages |
//! | `carrier` | the trait; Towpath, plain verbs and kernel TCP behind it |
//! | `content` | what messages contain when that is checked |
//! | `session` | a run from the first words to the last row |
//! | `flow`, `quiet`, `measure` | one row: taking part, until no more comes, and the loops |
//! | `meter`, `summary`, `cpu`, `watch` | counting, statistics, CPU use, progress |
//! | `report` | table and JSON |
//! | `error`, `limits` | what can go wrong; what is bounded |
//!
//! How they are used, and the fields of the JSON: `docs/tools.md`.

mod args;
mod carrier;
mod content;
mod control;
mod cpu;
mod error;
mod flow;
mod limits;
mod measure;
mod meter;
mod patience;
mod quiet;
mod report;
mod session;
mod settings;
mod setup;
pub(crate) mod summary;
mod tool;
mod watch;

#[cfg(test)]
mod tests;

pub use tool::Tool;

use error::RunError;
use report::Report;
use settings::Settings;
use std::process::ExitCode;
use towpath_status::say;

/// The whole program: parses the command line, runs, and says how it ended.
///
/// 0 is done, 1 a run that failed, 2 a command line that is wrong, 3 ends that do not agree.
#[must_use]
pub fn main(tool: Tool) -> ExitCode {
    let parsed = match args::parse(tool, std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help goes to stdout and is no error; whether it could be printed changes nothing.
            let _printed = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let outcome = Settings::new(tool, parsed).map_err(RunError::from).and_then(|settings| {
        let mut out = std::io::stdout().lock();
        run(&settings, &mut out)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{}: {error}", tool.name()));
            error.exit_code()
        }
    }
}

fn run(settings: &Settings, out: &mut dyn std::io::Write) -> Result<(), RunError> {
    // A device that is not there is better known before anybody waits for the other end.
    session::check_device(settings)?;
    if let Some(host) = &settings.host {
        return session::join(host, settings, &mut Report::new(settings, out));
    }
    let listener = control::listen(settings.ours.bind, settings.port)?;
    let talks = !settings.show.json && settings.show.only.is_none();
    if talks {
        let waiting = "*".repeat(36);
        let text = format!("\n{waiting}\n* Waiting for client to connect... *\n{waiting}\n");
        let wrote = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        wrote.map_err(|source| RunError::Write { path: "stdout".to_owned(), source })?;
    }
    session::serve(&listener, settings, &mut Report::new(settings, out))
}
