//! Programs in C and C++: compiled as their users do, run, and run under valgrind where it is.

#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// What a static library needs beside itself, as `rustc --print native-static-libs` tells.
const SYSTEM_LIBRARIES: [&str; 5] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm"];

/// Bytes that a program still holds when it ends, and that nothing points to, are an error.
const VALGRIND: [&str; 5] = [
    "-q",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect",
    "--fair-sched=yes",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo has put the library, beside this test.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("a folder").to_owned()
}

/// A folder with the library under the names that it has when it is installed.
struct Installed(TempDir);

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let library = built().join("libtowpath_capi.so");
        assert!(library.exists(), "{} is missing", library.display());
        for name in ["libtowpath.so", "libtowpath.so.0"] {
            symlink(&library, folder.path().join(name)).expect("a link to the library");
        }
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Compiles a source of this crate; without a warning.
    fn compile(&self, compiler: &str, standard: &str, source: &Path, is_static: bool) -> PathBuf {
        let name = source.file_name().expect("a file").to_string_lossy().replace('.', "_");
        let program = self.path().join(format!("{name}_{is_static}"));
        let mut command = Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1"]);
        command.arg("-I").arg(root().join("include")).arg(source).arg("-o").arg(&program);
        if is_static {
            command.arg(built().join("libtowpath_capi.a")).args(SYSTEM_LIBRARIES);
        } else {
            command.arg("-L").arg(self.path()).args(["-ltowpath", "-lpthread"]);
            command.arg(format!("-Wl,-rpath,{}", self.path().display()));
        }
        succeeds(&command.output().expect("the compiler can be started"), &program);
        program
    }

    fn c(&self, source: &str) -> PathBuf {
        self.compile("cc", "-std=c99", &root().join(source), false)
    }
}

/// Whether a tool is installed.
fn is_there(tool: &str) -> bool {
    let asked = Command::new(tool).arg("--version").output();
    let is_there = asked.is_ok_and(|output| output.status.success());
    if !is_there {
        println!("skipped: there is no {tool}");
    }
    is_there
}

/// A program as it is, and under valgrind where it is installed.
fn ways() -> Vec<bool> {
    if is_there("valgrind") { vec![false, true] } else { vec![false] }
}

fn command(program: &Path, checked: bool) -> Command {
    if !checked {
        return Command::new(program);
    }
    let mut command = Command::new("valgrind");
    command.args(VALGRIND).arg(program);
    command
}

fn succeeds(output: &Output, program: &Path) {
    assert!(
        output.status.success(),
        "{}: {}\n{}{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A server, and what it prints.
struct Server {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    addr: String,
}

impl Server {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server can be started");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("the server says where it listens");
        let port = line.trim().rsplit(' ').next().expect("a word").to_owned();
        assert!(port.parse::<u16>().is_ok(), "the server said {line:?}");
        Self { child, out, addr: format!("127.0.0.1:{port}") }
    }

    /// Waits for its end, which is a success, and returns what else it printed.
    fn end(mut self) -> String {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "the server ended with {status}: {rest}");
        rest
    }
}

/// Runs a server and its client; what each printed.
fn pair(program: &Path, checked: bool, serve: &[&str], ask: &[&str]) -> (String, String) {
    let mut server = command(program, checked);
    server.args(["serve", "127.0.0.1:0"]).args(serve);
    let server = Server::start(server);
    let mut client = command(program, checked);
    client.args([ask[0], &server.addr]).args(&ask[1..]);
    let output = client.output().expect("the client can be started");
    succeeds(&output, program);
    (server.end(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn an_echo_in_c_answers_a_client_in_c() {
    let installed = Installed::new();
    let program = installed.c("examples/c/echo.c");
    for checked in ways() {
        let (server, client) = pair(&program, checked, &["1"], &["ask", "some words"]);
        assert_eq!(client, "some words\n");
        assert!(server.starts_with("127.0.0.1:") && server.ends_with("is here\n"), "{server}");
    }
}

#[test]
fn a_reader_in_c_reads_writes_and_counts_in_the_memory_of_a_server_in_c() {
    let installed = Installed::new();
    let program = installed.c("examples/c/reader.c");
    for checked in ways() {
        let (server, client) = pair(&program, checked, &[], &["visit"]);
        let mut lines = client.lines();
        let read = lines.next().expect("what was read").trim_end_matches('\0');
        assert_eq!(read, "read: what lies in the memory of the server");
        let numbers = |text: &str| -> Vec<u64> {
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        let counted = numbers(lines.next().expect("how often it counted"));
        let [done, perhaps] = counted[..] else { panic!("{client}") };
        let [visits, 42] = numbers(&server)[..] else { panic!("{server}") };
        assert!((done..=done + perhaps).contains(&visits), "{client}{server}");
    }
}

#[test]
fn what_c_gets_wrong_is_an_error_and_nothing_else() {
    let installed = Installed::new();
    let program = installed.c("tests/c/hostile.c");
    for checked in ways() {
        let output = command(&program, checked).output().expect("it can be started");
        succeeds(&output, &program);
    }
}

#[test]
fn messages_and_operations_of_c_end_as_they_should() {
    let installed = Installed::new();
    let program = installed.c("tests/c/works.c");
    for checked in ways() {
        let output = command(&program, checked).output().expect("it can be started");
        succeeds(&output, &program);
    }
}

#[test]
fn the_stream_in_c_says_how_much_went() {
    let installed = Installed::new();
    let program = installed.c("examples/c/stream.c");
    let output =
        Command::new(&program).args(["both", "127.0.0.1:0", "65536", "32", "0.05"]).output();
    let output = output.expect("it can be started");
    succeeds(&output, &program);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.starts_with("{\"messages\": ") && told.contains("\"gbps\": "), "{told}");
}

#[test]
fn the_static_library_is_enough() {
    let installed = Installed::new();
    let source = root().join("examples/c/echo.c");
    let program = installed.compile("cc", "-std=c99", &source, true);
    let (_, client) = pair(&program, false, &["1"], &["ask", "some words"]);
    assert_eq!(client, "some words\n");
}

#[test]
fn owners_in_cpp_free_what_they_have() {
    if !is_there("c++") {
        return;
    }
    let installed = Installed::new();
    let source = root().join("examples/cpp/echo.cpp");
    let program = installed.compile("c++", "-std=c++17", &source, false);
    for checked in ways() {
        let output = command(&program, checked).output().expect("it can be started");
        succeeds(&output, &program);
        assert!(String::from_utf8_lossy(&output.stdout).ends_with("hello, 5\n"));
    }
}

/// The first program of docs/c.md.
fn ten_lines() -> String {
    let document = fs::read_to_string(root().join("../../docs/c.md")).expect("docs/c.md");
    let (_, rest) = document.split_once("```c\n").expect("a program");
    let (program, _) = rest.split_once("```").expect("its end");
    assert!(program.lines().count() <= 12, "it is not so short any more");
    program.to_owned()
}

#[test]
fn the_program_of_the_documentation_answers_a_client_in_c() {
    let installed = Installed::new();
    let source = installed.path().join("ten_lines.c");
    // A port of its own, so that tests can run side by side: the system's choice, which it prints.
    let text = ten_lines();
    let port = "\"127.0.0.1:7471\", NULL";
    assert!(text.contains(port), "{text}");
    let telling = "static int told(uint16_t *port) { printf(\"port %u\\n\", *port); return 0; }\n";
    let listens = format!("tow_listen(ep, {port})");
    let (before, after) = text.split_once(&listens).expect("it listens");
    let (includes, before) = before.split_once("int main").expect("a main function");
    let text = format!(
        "#include <stdio.h>\n{includes}{telling}static uint16_t port;\nint main{before}\
         tow_listen(ep, \"127.0.0.1:0\", &port) || told(&port) || fflush(stdout){after}"
    );
    fs::write(&source, text).expect("the program can be written");
    let program = installed.compile("cc", "-std=c99", &source, false);
    let server = Server::start(Command::new(&program));
    let client = installed.c("examples/c/echo.c");
    let output = Command::new(&client).args(["ask", &server.addr, "ten lines"]).output();
    let Server { mut child, .. } = server;
    let output = output.expect("the client can be started");
    child.kill().expect("it runs for ever");
    child.wait().expect("it was killed");
    succeeds(&output, &client);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ten lines\n");
}

/// `towpath-lossy`, where it is built and can make namespaces.
fn lossy() -> Option<PathBuf> {
    let tool = built().parent().expect("a folder").join("towpath-lossy");
    let tried = Command::new(&tool).args(["--quiet", "--", "true"]).output();
    let why = match tried {
        Ok(tried) if tried.status.success() => return Some(tool),
        Ok(tried) => String::from_utf8_lossy(&tried.stderr).into_owned(),
        Err(error) => format!("{}: {error}", tool.display()),
    };
    let is_required = std::env::var("TOWPATH_NETWORK").is_ok_and(|value| value == "required");
    assert!(!is_required, "TOWPATH_NETWORK=required: {why}");
    println!("skipped: {why}");
    None
}

/// Sends so many messages of 64 KiB over a wire with these faults; what both sides said.
fn carry(installed: &Installed, messages: u32, faults: &[&str]) -> Option<String> {
    let tool = lossy()?;
    let program = installed.c("tests/c/carry.c");
    let program = program.display();
    let server = format!("'{program}' serve 10.0.0.1:7600");
    let client = format!("'{program}' send 10.0.0.1:7600 10.0.0.2 {messages}");
    let mut command = Command::new(tool);
    command.args(["--for", "120s", "--wait-port", "7600", "--in-a", &server, "--in-b", &client]);
    let output = command.args(faults).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, table) = (text(&output.stdout), text(&output.stderr));
    println!("{faults:?}:\n{said}{table}");
    assert!(output.status.success(), "{}", output.status);
    assert!(said.contains(&format!("received {messages}, ")), "{said}");
    assert!(said.contains(&format!("delivered {messages}\n")), "{said}");
    Some(said)
}

#[test]
fn messages_of_c_go_on_over_tcp_where_udp_is_blocked_and_it_is_told_why() {
    let installed = Installed::new();
    for faults in [["--udp-down", "60min@0s"], ["--udp-down", "60min@10MiB"]] {
        let Some(said) = carry(&installed, 400, &faults) else { return };
        assert!(said.contains("the link rides on TCP: no packet over UDP"), "{said}");
    }
}

#[test]
#[ignore = "minutes"]
fn messages_of_c_go_on_whichever_way_udp_is_blocked_and_come_back() {
    let installed = Installed::new();
    for way in ["--udp-down-ab", "--udp-down-ba"] {
        let Some(said) = carry(&installed, 400, &[way, "60min@10MiB"]) else { return };
        assert!(said.contains("the link rides on TCP"), "{said}");
    }
    let back = ["--udp-down", "20s@10MiB", "--rate", "20Mbit"];
    let Some(said) = carry(&installed, 1_600, &back) else { return };
    assert!(said.contains("the link rides on TCP: no packet over UDP"), "{said}");
    assert!(said.contains("the link rides on UC: packets over UDP arrive again"), "{said}");
}
