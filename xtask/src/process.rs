//! Starting other programs, with the command line in every error.

use crate::failure::Failure;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

/// The profile of what is measured and of what is installed.
pub(crate) const DIST: &str = "dist";

/// The cargo that started us, so that no step changes the toolchain.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// The features that the gate tests with. Whoever names the whole workspace and these shares all
/// that the gate has built: of fewer packages, libraries have other features and are built again.
pub(crate) const GATE_FEATURES: &str = "towpath-tools/baseline";

/// Runs one of the test programs of the gate.
pub(crate) fn test(name: &str) -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace", "--features", GATE_FEATURES, "--test", name]);
    command
}

/// The same program, before it has arguments, with only the processors that nobody else wants.
pub(crate) fn yielding(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program());
    nice
}

/// A line for the shell.
pub(crate) fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    command
}

/// The command line as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value
            && name != "PATH"
        {
            words.push(format!("{}={}", name.display(), quote(&value.to_string_lossy())));
        }
    }
    let program = std::path::Path::new(command.get_program());
    words.push(program.file_name().unwrap_or_default().to_string_lossy().into_owned());
    words.extend(command.get_args().map(|arg| quote(&arg.to_string_lossy())));
    words.join(" ")
}

/// A word as a shell has to be given it.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Runs a command with our own standard streams.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let line = line(command);
    let status =
        command.status().map_err(|source| Failure::Start { command: line.clone(), source })?;
    if status.success() { Ok(()) } else { Err(Failure::Status { command: line, status }) }
}

/// Runs a command and returns what it wrote to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    quiet_output(command.stderr(Stdio::inherit()))
}

/// As [`output`], but what the command writes to its standard error is shown only if it fails.
pub(crate) fn quiet_output(command: &mut Command) -> Result<String, Failure> {
    let line = line(command);
    let output =
        command.output().map_err(|source| Failure::Start { command: line.clone(), source })?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::Status { command: line, status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> Result<u16, Failure> {
    let found = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    Ok(found.map_err(|source| Failure::Port { source })?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_can_be_pasted_into_a_shell() {
        let mut command = Command::new("/some/where/cargo");
        command.args(["test", "it's", "two words"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(line(&command), r"RUSTDOCFLAGS='-D warnings' cargo test 'it'\''s' 'two words'");
    }

    #[test]
    fn a_program_that_fails_is_a_failure_and_names_itself() {
        assert!(run(&mut Command::new("true")).is_ok());
        let failure = run(&mut Command::new("false")).unwrap_err();
        assert!(failure.to_string().contains("`false` failed"));
    }
}
