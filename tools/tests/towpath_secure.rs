//! Keys of hosts, and a chunk server whose links are encrypted.

mod towpath_common;

use std::path::Path;

use towpath_chunkserver::daemon::DaemonConfig;
use towpath_common::{Bench, Daemon, fails, json, pattern, succeeds};

const FILE_BYTES: usize = 3_000_000;

/// A folder with the keys of a server and a client that trust each other, and the server.
fn start(bench: &Bench) -> Daemon {
    let line = |file: &str, name: &str| {
        let made = json(&mut bench.run(&["keygen", file, "--name", name, "--json"]));
        made["line"].as_str().expect("a line").to_owned() + "\n"
    };
    let client = line("client_key", "alice");
    line("server_key", "rack4-a");
    bench.file("server_peers", client.as_bytes());
    Daemon::with(DaemonConfig::default().with(|config| {
        config.store.data_dir = bench.store();
        config.network.links_max = 4;
        config.secure.host_key = Some(bench.path("server_key"));
        config.secure.authorized_peers = Some(bench.path("server_peers"));
    }))
}

fn name_of(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_file_goes_to_a_server_and_back_over_encrypted_links_of_hosts_that_trust_each_other() {
    let mut bench = Bench::new();
    let daemon = start(&bench);
    bench.server = daemon.addr.to_string();
    let server = bench.server.clone();
    let bytes = pattern(FILE_BYTES, 1);
    bench.file("file", &bytes);
    let sealed = |args: &[&str]| {
        let mut command = bench.run(args);
        command.env("TOWPATH_KEY", bench.path("client_key"));
        command
    };
    // Nobody is trusted yet, and nothing is added without a word.
    fails(&mut sealed(&["put", "file"]), 7, &["towpath trust"]);
    fails(&mut sealed(&["trust", &server]), 2, &["SHA256:", "--yes"]);
    let trusted = json(&mut sealed(&["trust", &server, "--yes", "--name", "rack4-a", "--json"]));
    assert_eq!((&trusted["added"], &trusted["name"]), (&true.into(), &"rack4-a".into()));
    let again = succeeds(&mut sealed(&["trust", &server]));
    assert!(again.contains("trusted already as rack4-a"), "{again}");
    assert_eq!(trusted["peers"], name_of(&bench.path("authorized_peers")));

    let chunk = succeeds(&mut sealed(&["put", "file"]));
    let chunk = chunk.split_whitespace().next().expect("its name");
    succeeds(&mut sealed(&["get", chunk, "copy"]));
    assert!(bench.read("copy") == bytes, "what came back is another file");
    let health = succeeds(&mut sealed(&["health"]));
    assert!(health.contains("the link to the server is encrypted, AES-128-GCM"), "{health}");
    assert!(health.contains("peer rack4-a"), "{health}");

    let other = ["ls", "--server-name", "rack4-b"];
    fails(&mut sealed(&other), 3, &["rack4-b"]);

    // Without a key, and in another mode.
    fails(&mut bench.run(&["ls"]), 3, &["sealed (mode `encrypt`)", "towpath keygen"]);
    fails(&mut sealed(&["ls", "--secure-mode", "authenticate"]), 3, &["authenticate", "encrypt"]);
    daemon.stop();
}

#[test]
fn a_client_that_the_server_does_not_know_is_told_the_line_to_add() {
    let mut bench = Bench::new();
    let daemon = start(&bench);
    bench.server = daemon.addr.to_string();
    let server = bench.server.clone();
    succeeds(&mut bench.run(&["keygen", "stranger"]));
    let stranger = ["--key", "stranger", "--peers", "authorized_peers"];
    succeeds(&mut bench.run(&["trust", &server, "--yes", "--peers", "authorized_peers"]));
    fails(&mut bench.run(&[&["ls"][..], &stranger].concat()), 3, &["add this line", "ed25519:"]);
    // A key is made once, and for its owner alone.
    fails(&mut bench.run(&["keygen", "stranger"]), 7, &["stranger"]);
    daemon.stop();
}

#[test]
fn an_open_server_is_no_server_for_a_client_with_a_key() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    let server = bench.server.clone();
    succeeds(&mut bench.run(&["keygen", "host_key"]));
    bench.file("authorized_peers", b"");
    fails(&mut bench.run(&["ls", "--key", "host_key"]), 3, &["its links are open"]);
    fails(&mut bench.run(&["trust", &server, "--key", "host_key"]), 3, &["has shown no key"]);
    let health = succeeds(&mut bench.run(&["health"]));
    assert!(health.contains("the link to the server is open"), "{health}");
    let links = succeeds(&mut bench.run(&["links", &name_of(&bench.store())]));
    assert!(!links.contains("encrypted"), "{links}");
    daemon.stop();
}
