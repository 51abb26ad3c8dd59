//! What a running server tells Prometheus.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Client, Running, config, pattern, refusal};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use towpath_chunkserver::daemon::{self, DaemonConfig, DaemonError, SecureMode};
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::qos::wire::JoinRequest;
use towpath_fastpath::{ErrorReply, StorageRequest};
use towpath_transport::Class;
use towpath_transport::keys::{HostKey, system_random};

const CHUNK: ChunkId = ChunkId(0xfeed_5eed);

fn with_metrics(dir: &Path) -> DaemonConfig {
    let tenants = dir.join("tenants.toml");
    std::fs::write(&tenants, "[tenant.web]\nreserve = \"1K\"\n").expect("room for a file");
    config(&dir.join("store")).with(|config| {
        config.telemetry.metrics = Some((Ipv4Addr::LOCALHOST, 0).into());
        config.qos.qos_iops = 1_000_000;
        // Never missed.
        config.qos.interference_p99_us = 60_000_000;
        config.qos.tenants_file = Some(tenants);
        config.network.workers = Some(2);
    })
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").expect("it is taken");
    let mut found = String::new();
    stream.read_to_string(&mut found).expect("an answer of text");
    found
}

/// Each line by its name and labels, and the type of each family.
struct Metrics {
    lines: BTreeMap<String, f64>,
    families: BTreeMap<String, String>,
}

impl Metrics {
    /// Reads the form strictly: a family has its help and type before its lines, which follow each
    /// other, and no line comes twice.
    fn of(address: SocketAddr) -> Self {
        let text = get(address, "/metrics");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
        assert!(body.ends_with('\n'));
        let (mut lines, mut families) = (BTreeMap::new(), BTreeMap::new());
        let mut family = String::new();
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and words");
                assert!(!help.is_empty() && !families.contains_key(name), "{line}");
                family = String::from(name);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                assert_eq!(name, family);
                families.insert(family.clone(), String::from(kind));
            } else {
                let (name, value) = line.rsplit_once(' ').expect("a name and a number");
                let plain = name.split('{').next().expect("there is one");
                let suffixes = match families[&family].as_str() {
                    "histogram" => &["_bucket", "_sum", "_count"][..],
                    _ => &[""],
                };
                let is_its = |suffix: &&str| plain == format!("{family}{suffix}");
                assert!(suffixes.iter().any(is_its), "{line} is in {family}");
                let value: f64 = value.parse().expect("a number");
                assert!(lines.insert(String::from(name), value).is_none(), "{line} comes twice");
            }
        }
        Self { lines, families }
    }

    fn value(&self, name: &str) -> f64 {
        *self.lines.get(name).unwrap_or_else(|| panic!("no {name} in {:#?}", self.lines.keys()))
    }

    /// All names that a query may use.
    fn names(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<_> = self.families.keys().cloned().collect();
        names.extend(
            self.lines
                .keys()
                .map(|line| String::from(line.split('{').next().expect("there is one"))),
        );
        names
    }

    /// How often each phase was recorded for a class and a tenant.
    fn phases(&self, class: &str, tenant: &str) -> Vec<f64> {
        ["receive", "check", "queue", "disk", "flush", "answer"]
            .map(|phase| {
                self.value(&format!(
                    "towpath_request_phase_seconds_count{{phase=\"{phase}\",class=\"{class}\",\
                     tenant=\"{tenant}\"}}"
                ))
            })
            .to_vec()
    }
}

#[test]
fn requests_are_told_by_phase_class_and_tenant_and_the_store_by_what_it_did() {
    let dir = tempfile::tempdir().expect("room for a folder");
    let server = Running::start(&with_metrics(dir.path()));
    let at = server.ready.metrics.expect("it is set");
    let disk = dir.path().join("store").display().to_string();
    let of_disk = |name: &str, label: &str| format!("{name}{{disk=\"{disk}\"{label}}}");
    let before = Metrics::of(at);
    let writes = of_disk("towpath_store_changes_total", ",change=\"write\"");
    assert_eq!(before.value(&writes), 0.0);
    let mut gold = Client::connect_as(server.addr, Class::Gold);
    let mut web = Client::connect(server.addr);
    let op = web.chunks.start_request(
        &mut web.endpoint,
        &StorageRequest::Join(JoinRequest { tenant: "web".into(), runs_engine: false }),
    );
    web.wait(op).expect("there is such a tenant");
    gold.create(CHUNK, None).expect("a fresh name");
    for index in 0..5 {
        web.write(CHUNK, index * 10_000, &pattern(10_000, index)).expect("there is room");
    }
    assert!(gold.read(CHUNK, 0, 10_000).expect("it is there") == pattern(10_000, 0));
    let missing = refusal(gold.read(ChunkId(9), 0, 10));
    assert_eq!(missing, ErrorReply::NoSuchChunk { chunk: ChunkId(9) });
    let found = Metrics::of(at);
    assert_eq!(found.phases("silver", "web"), [5.0; 6]);
    assert_eq!(found.phases("gold", "others"), [3.0; 6]);
    for (name, value) in [
        ("towpath_requests_total{method=\"write\",result=\"done\"}", 5.0),
        ("towpath_requests_total{method=\"read\",result=\"done\"}", 1.0),
        ("towpath_requests_total{method=\"read\",result=\"failed\"}", 1.0),
        ("towpath_requests_stopped_total{reason=\"client_gone\"}", 0.0),
        ("towpath_requests_slow_total", 0.0),
        ("towpath_write_bytes_total", 50_000.0),
        ("towpath_read_bytes_total", 10_000.0),
        (&*of_disk("towpath_store_changes_total", ",change=\"create\""), 1.0),
        (&*writes, 5.0),
        (&*of_disk("towpath_store_space_bytes", ",kind=\"used\""), 13.0 * 4096.0),
        (&*of_disk("towpath_store_read_only", ",reason=\"flush\""), 0.0),
        (&*of_disk("towpath_disk_state", ",state=\"serving\""), 1.0),
        (&*of_disk("towpath_scrub_rate_bytes", ""), f64::from(4 << 20)),
        ("towpath_crc_mismatches_total{where=\"disk\"}", 0.0),
        ("towpath_links", 2.0),
        ("towpath_qos_tenant_requests_total{tenant=\"web\"}", 5.0),
        (&*format!("towpath_collect_success{{part=\"disk {disk}\"}}"), 1.0),
        ("towpath_collect_success{part=\"worker 0\"}", 1.0),
        ("towpath_collect_success{part=\"worker 1\"}", 1.0),
        ("towpath_interference_on", 1.0),
        ("towpath_interference_target_seconds{of=\"p99\"}", 60.0),
        ("towpath_interference_bound{class=\"copper\"}", 0.0),
        ("towpath_interference_windows_total{reads=\"slow\"}", 0.0),
    ] {
        assert_eq!(found.value(name), value, "{name}");
    }
    // A flush takes time, and no phase of another kind of request has one.
    let flush = |class: &str, tenant: &str| {
        found.value(&format!(
            "towpath_request_phase_seconds_sum{{phase=\"flush\",class=\"{class}\",\
             tenant=\"{tenant}\"}}"
        ))
    };
    assert!(flush("silver", "web") > 0.0 && flush("gold", "others") > 0.0);
    assert!(found.lines.keys().all(|line| !line.contains("feed5eed")), "no chunk is named");
    for path in ["/", "/metrics/", "/metrics2"] {
        assert!(get(at, path).starts_with("HTTP/1.1 404 "), "{path}");
    }
    server.stop();
    assert!(TcpStream::connect(at).is_err(), "nobody listens any more");
}

#[test]
#[ignore = "needs promtool: `cargo xtask promtool`"]
fn promtool_finds_nothing_wrong_with_what_is_told() {
    let tool = std::env::var_os("TOWPATH_PROMTOOL").expect("the tool's path");
    let dir = tempfile::tempdir().expect("room for a folder");
    let server = Running::start(&with_metrics(dir.path()));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    let text = get(server.ready.metrics.expect("it is set"), "/metrics");
    let (_, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let mut command = Command::new(tool);
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(body.as_bytes()).expect("it is read");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success() && out.is_empty() && err.is_empty(), "{out}{err}");
    server.stop();
}

const CERTIFICATE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../transport/secure/tests/front/server.pem");
const KEY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../transport/secure/tests/front/server.key");
const OTHER_KEY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../transport/secure/tests/front/other.key");

/// The answer to a GET over TLS.
fn get_over_tls(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(CERTIFICATE).expect("PEM")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version that there is")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    let stream = TcpStream::connect(address).expect("somebody listens");
    let mut stream = StreamOwned::new(tls, stream);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n")?;
    let mut found = String::new();
    stream.read_to_string(&mut found)?;
    Ok(found)
}

#[test]
fn metrics_are_told_over_tls_alone_and_beside_clients_that_only_begin() {
    let dir = tempfile::tempdir().expect("room for a folder");
    let config = with_metrics(dir.path()).with(|config| {
        config.telemetry.metrics_tls_cert = Some(CERTIFICATE.into());
        config.telemetry.metrics_tls_key = Some(KEY.into());
    });
    let server = Running::start(&config);
    let at = server.ready.metrics.expect("it is set");
    // More of them than one address may have half through.
    let silent: Vec<_> =
        (0..6).map(|_| TcpStream::connect(at).expect("somebody listens")).collect();
    // This one comes from the same address: its turn comes when those have had their time.
    let began = Instant::now();
    let told = loop {
        match get_over_tls(at, "/metrics") {
            Ok(told) => break told,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(100), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(told.starts_with("HTTP/1.1 200 OK\r\n") && told.contains("towpath_links "), "{told}");
    let found = get_over_tls(at, "/").expect("an answer, and an end in order");
    assert!(found.starts_with("HTTP/1.1 404 "), "{found}");
    drop(silent);
    let mut plain = TcpStream::connect(at).expect("somebody listens");
    plain.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is taken");
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard);
    assert!(!heard.starts_with(b"HTTP/"), "nothing is told without TLS");
    server.stop();
}

#[test]
fn a_certificate_that_does_not_serve_is_found_before_the_server_starts() {
    let dir = tempfile::tempdir().expect("room for a folder");
    let said = |chain: Option<&str>, key: Option<&str>| {
        let config = with_metrics(dir.path()).with(|config| {
            config.telemetry.metrics_tls_cert = chain.map(Into::into);
            config.telemetry.metrics_tls_key = key.map(Into::into);
        });
        let error = daemon::check(&config).expect_err("it cannot serve");
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    assert!(said(Some(CERTIFICATE), Some(OTHER_KEY)).contains("other.key: the key is not that"));
    assert!(said(Some("/gone.pem"), Some(KEY)).contains("/gone.pem: it cannot be read"));
    assert!(said(Some(CERTIFICATE), None).contains("go together"));
    assert!(said(None, Some(KEY)).contains("go together"));
}

/// What stands in a text like the name of a metric of ours.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_part(letter)).filter(|word| word.starts_with("towpath_"));
    words.map(String::from).collect()
}

#[test]
fn alerts_and_the_dashboard_use_metrics_that_there_are_and_each_alert_has_its_line_in_the_docs() {
    let dir = tempfile::tempdir().expect("room for a folder");
    let server = Running::start(&with_metrics(dir.path()));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    let there = Metrics::of(server.ready.metrics.expect("it is set")).names();
    server.stop();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("it is there");
    let (alerts, dashboard) = (read("operations/alerts.yml"), read("operations/dashboard.json"));
    for (file, text) in [("alerts.yml", &alerts), ("dashboard.json", &dashboard)] {
        let used = names_in(text);
        assert!(used.len() >= 10, "{file} uses {used:?}");
        let missing: Vec<_> = used.difference(&there).collect();
        assert!(missing.is_empty(), "{file} uses {missing:?}, which there are not");
    }
    let _: serde_json::Value = serde_json::from_str(&dashboard).expect("one JSON object");
    let docs = read("../docs/operations.md");
    let names: Vec<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        assert!(
            docs.contains(&format!("| `{name}` |")),
            "docs/operations.md says nothing of {name}"
        );
    }
}

#[test]
fn whether_links_are_open_is_told_and_what_seals_have_refused() {
    let dir = tempfile::tempdir().expect("room");
    let key = dir.path().join("host_key");
    HostKey::create(&key, system_random()).expect("a key");
    std::fs::write(dir.path().join("authorized_peers"), "").expect("room for a file");
    for (host_key, mode) in [(None, "open"), (Some(key), "encrypt")] {
        let is_sealed = host_key.is_some();
        let config = config(&dir.path().join(mode)).with(|config| {
            config.telemetry.metrics = Some((Ipv4Addr::LOCALHOST, 0).into());
            config.secure.host_key = host_key;
        });
        let server = Running::start(&config);
        let Metrics { lines, .. } = Metrics::of(server.ready.metrics.expect("it tells metrics"));
        let info = format!("towpath_protection_info{{mode=\"{mode}\"}}");
        assert_eq!(lines.get(&info), Some(&1.0), "{lines:?}");
        for line in [
            "towpath_seal_refusals_total{kind=\"replay\"}",
            "towpath_seal_refusals_total{kind=\"bad_tag\"}",
            "towpath_handshakes_total{outcome=\"made\"}",
            "towpath_links_revoked_total",
        ] {
            assert_eq!(lines.get(line), is_sealed.then_some(&0.0), "{line}");
        }
        server.stop();
    }
}

#[test]
fn a_mode_without_a_key_and_a_file_that_is_no_key_are_refused_before_anything_is_served() {
    let dir = tempfile::tempdir().expect("room");
    let asked = config(&dir.path().join("store")).with(|config| {
        config.secure.secure_mode = Some(SecureMode::Encrypt);
    });
    let error = daemon::check(&asked).expect_err("there is no key");
    assert!(matches!(error, DaemonError::NoHostKey), "{error}");
    assert_eq!(error.exit_code(), 2);
    let key = dir.path().join("host_key");
    std::fs::write(&key, "no key").expect("room for a file");
    let asked = config(&dir.path().join("store")).with(|config| {
        config.secure.host_key = Some(key);
    });
    let error = daemon::check(&asked).expect_err("it is no key");
    assert!(matches!(error, DaemonError::Secure(_)), "{error}");
}
