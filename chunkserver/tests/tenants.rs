//! Tenants of a running server: their requests need tokens, and some run their engine themselves.

mod common;

use std::path::{Path, PathBuf};

use common::{Client, LONG, Running, config, loopback_udp, pattern, refusal};
use towpath_chunkserver::daemon::{DaemonConfig, DaemonError, check};
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::qos::Tenancy;
use towpath_fastpath::qos::wire::JoinRequest;
use towpath_fastpath::qos::wire::{QosReply, TenantReport};
use towpath_fastpath::wire::ClearHeader;
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::wire::Sender;
use towpath_fastpath::{Clear, ErrorKind, ErrorReply, NewChunk, Output, StorageRequest, Terms};
use towpath_transport::{
    Class, Endpoint, EndpointConfig, Event, GrantId, Nanos, OpOptions, Place, RoceUdp,
};

const CHUNK: ChunkId = ChunkId(28);
/// More than the machine does: tokens are never what is missing, but where a test wants it.
const PLENTY: u32 = 10_000_000;

fn with_tenants(dir: &Path, iops: u32, text: &str) -> DaemonConfig {
    let file = tenants_file(dir);
    std::fs::write(&file, text).expect("room for a file");
    let store = dir.join("store");
    config(&store).with(|config| {
        config.qos.qos_iops = iops;
        config.qos.tenants_file = Some(file);
    })
}

fn tenants_file(dir: &Path) -> PathBuf {
    dir.join("tenants.toml")
}

fn join(client: &mut Client<RoceUdp>, tenant: &str) -> Result<(), ErrorKind> {
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Join(JoinRequest { tenant: tenant.into(), runs_engine: false }),
    );
    client.wait(op).map(drop)
}

fn qos(client: &mut Client<RoceUdp>) -> QosReply {
    let op = client.chunks.start_request(&mut client.endpoint, &StorageRequest::Qos);
    match client.wait(op) {
        Ok(Output::Qos(reply)) => reply,
        other => panic!("no report but {other:?}"),
    }
}

fn of(reply: &QosReply, name: &str) -> TenantReport {
    let found = reply.tenants.iter().find(|tenant| tenant.name == name);
    found.unwrap_or_else(|| panic!("no tenant {name} in {reply:?}")).clone()
}

#[test]
fn requests_are_counted_for_the_tenant_that_a_link_has_named() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let text = "[tenant.web]\nreserve = \"100K\"\n[tenant.batch]\nlimit = \"200K\"\nweight = 2\n";
    let server = Running::start(&with_tenants(dir.path(), PLENTY, text));
    let mut web = Client::connect(server.addr);
    let mut batch = Client::connect(server.addr);
    let mut other = Client::connect(server.addr);
    assert_eq!(join(&mut web, "web"), Ok(()));
    assert_eq!(join(&mut batch, "batch"), Ok(()));
    assert_eq!(refusal(join(&mut other, "nobody")), ErrorReply::NoSuchTenant);
    web.create(CHUNK, None).expect("a fresh name");
    web.write(CHUNK, 0, &pattern(40_000, 1)).expect("there is room");
    for _ in 0..3 {
        batch.read(CHUNK, 0, 8192).expect("it is there");
    }
    other.read(CHUNK, 0, 1).expect("it is there");
    let reply = qos(&mut other);
    let used = |name| {
        let TenantReport { used_reserved, used_pooled, requests, .. } = of(&reply, name);
        (used_reserved + used_pooled, requests)
    };
    assert_eq!(used("web"), (1 + 10, 2), "a create, and ten slices");
    assert_eq!(used("batch"), (6, 3));
    assert_eq!(used("others"), (1, 1));
    let batch = of(&reply, "batch");
    assert_eq!((batch.reserve, batch.limit, batch.weight), (0, Some(200_000), 2));
    assert_eq!((reply.reserved, reply.profiled), (100_000, PLENTY));
    let op = other
        .chunks
        .start_request(&mut other.endpoint, &StorageRequest::Scrub { budget_slices: 0 });
    assert!(matches!(other.wait(op), Ok(Output::Scrub(_))));
    let reply = qos(&mut other);
    assert!(of(&reply, "scrub").requests > 0 && used("others").1 == 1);
}

#[test]
fn a_server_without_reservations_says_so() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let mut client = Client::connect(server.addr);
    assert_eq!(refusal(join(&mut client, "web")), ErrorReply::NoReservations);
    assert_eq!(qos(&mut client), QosReply::default());
}

#[test]
fn what_cannot_be_kept_is_refused_at_the_start_with_what_is_left() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let text = "[tenant.a]\nreserve = 600\n[tenant.b]\nreserve = 500\n";
    let said = |config| check(&config).expect_err("it cannot be kept").to_string();
    let message = said(with_tenants(dir.path(), 1_000, text));
    assert!(message.contains("tenant b") && message.contains("leave 400 tokens"), "{message}");
    let one = with_tenants(dir.path(), 1_000, text).with(|config| config.qos.qos_iops_one = 300);
    assert!(said(one).contains("one client can use 300 tokens"));
    let none = with_tenants(dir.path(), 1_000, text).with(|config| config.qos.qos_iops = 0);
    assert!(matches!(check(&none), Err(DaemonError::TenantsWithoutIops)));
    let wrong = with_tenants(dir.path(), 1_000, "[tenant.a]\nreserv = 6\n");
    assert!(said(wrong).contains("reserv"));
}

#[test]
fn tenants_change_when_their_file_does() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_tenants(dir.path(), 1_000, "[tenant.a]\nreserve = 600\n"));
    let mut client = Client::connect(server.addr);
    let set = |text: &str| std::fs::write(tenants_file(dir.path()), text).expect("room for it");
    let mut until = |reached: &dyn Fn(&QosReply) -> bool| {
        let found = (0..1_000).map(|_| qos(&mut client)).find(|reply| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            reached(reply)
        });
        found.expect("the server looks at the file")
    };
    set("[tenant.a]\nreserve = 100\n[tenant.b]\nreserve = 700\n");
    let reply = until(&|reply| reply.tenants.len() == 4);
    assert_eq!((of(&reply, "a").reserve, of(&reply, "b").reserve), (100, 700));
    set("[tenant.a]\nreserve = 100\n[tenant.b]\nreserve = 950\n");
    let reply = until(&|reply| !reply.refused.is_empty());
    assert_eq!(of(&reply, "b").reserve, 700, "it keeps what it has");
    assert!(reply.refused[0].reason.contains("leave 900"), "{:?}", reply.refused);
}

/// Reads by the leave of an engine at the client, until so many are done.
fn read_by_engine(client: &mut Client<RoceUdp>, tenancy: &mut Tenancy, count: u64) {
    let mut done = 0;
    let mut under_way = None;
    while done < count {
        let Client { endpoint, chunks } = client;
        let now = endpoint.now();
        let busy = endpoint.turn(|endpoint, event| {
            if let Some(event) = tenancy.on_event(now, event) {
                chunks.on_event(endpoint, event);
            }
        });
        chunks.expire(endpoint);
        while let Some(ended) = chunks.poll(endpoint) {
            let Some(ended) = tenancy.on_done(now, ended) else { continue };
            assert!(matches!(ended.result, Ok(Output::Read(_))), "{:?}", ended.result);
            let ticket = under_way.take().expect("a read was under way");
            tenancy.engine_mut().expect("it is in").engine_mut().done(now, ticket);
            done += 1;
        }
        tenancy.drive(endpoint, chunks).expect("the link is up");
        if let Some(engine) = tenancy.engine_mut()
            && under_way.is_none()
            && done < count
        {
            let engine = engine.engine_mut();
            engine.arrived(now, 1, 1);
            match engine.admit(now, 1) {
                Ok(ticket) => {
                    under_way = Some(ticket);
                    chunks.start_read(endpoint, CHUNK, 0, 4096).expect("there is room for one");
                }
                Err(_) => engine.withdrawn(now, 1, 1),
            }
        }
        if !busy {
            endpoint.wait(Nanos::from_micros(200));
        }
    }
}

/// A client whose one-sided operations go by queue pair, or by messages.
fn connect(addr: std::net::SocketAddr, by_messages: bool) -> Client<RoceUdp> {
    let config = EndpointConfig::new()
        .app_protocol(PROTOCOL)
        .lanes_by_messages(by_messages)
        .connect_timeout(LONG);
    let endpoint = Endpoint::udp(loopback_udp(), config).expect("loopback UDP");
    Client::on(endpoint, addr)
}

#[test]
fn a_client_runs_the_engine_of_its_tenant_with_a_lane_and_without() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_tenants(dir.path(), PLENTY, "[tenant.web]\nreserve = 50\n"));
    let mut other = Client::connect(server.addr);
    other.create(CHUNK, None).expect("a fresh name");
    other.write(CHUNK, 0, &pattern(4096, 1)).expect("there is room");
    for by_messages in [false, true] {
        let mut client = connect(server.addr, by_messages);
        let link = client.chunks.rpc().link();
        let mut tenancy = Tenancy::new("web", link, 16);
        read_by_engine(&mut client, &mut tenancy, 2_000);
        let lane = client.endpoint.lane(link).expect("it was granted words");
        assert_eq!(lane.is_by_messages, by_messages);
        let engine = tenancy.engine().expect("it is in");
        assert!(engine.stats().fetches > 0, "fifty are reserved, and more were done");
        assert!(engine.stats().reports > 0);
        assert_eq!(refusal(join(&mut other, "web")), ErrorReply::TenantTaken);
        let web = of(&qos(&mut other), "web");
        assert!(web.has_client && web.requests >= 2_000, "{web:?}");
        assert_eq!((web.cut_off, web.overrun, web.missed_periods), (0, 0, 0), "{web:?}");
        // Its link goes without a word, and the tenant is free again.
        drop(client);
        let mut next = Client::connect(server.addr);
        let joined = (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            join(&mut next, "web").is_ok()
        });
        assert!(joined, "whoever is dead leaves");
    }
}

#[test]
fn a_client_that_stalls_over_the_end_of_a_period_goes_on_in_the_next() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_tenants(dir.path(), PLENTY, "[tenant.web]\nreserve = 50\n"));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    client.write(CHUNK, 0, &pattern(4096, 1)).expect("there is room");
    let mut tenancy = Tenancy::new("web", client.chunks.rpc().link(), 16);
    read_by_engine(&mut client, &mut tenancy, 200);
    let epoch = |tenancy: &Tenancy| tenancy.engine().and_then(|engine| engine.engine().epoch());
    let before = epoch(&tenancy);
    // It holds tokens of the pool, and hears nothing.
    std::thread::sleep(std::time::Duration::from_millis(1_300));
    read_by_engine(&mut client, &mut tenancy, 200);
    assert_ne!(epoch(&tenancy), before);
    assert_eq!(tenancy.engines(), 1);
    let web = of(&qos(&mut client), "web");
    assert_eq!((web.cut_off, web.overrun, web.misreports), (0, 0, 0), "{web:?}");
}

#[test]
fn clients_of_every_worker_hear_of_periods() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let text = "[tenant.gold]\nreserve = 50\n[tenant.copper]\nreserve = 50\n";
    let config = with_tenants(dir.path(), PLENTY, text);
    let server = Running::start(&config.with(|config| config.network.workers = Some(3)));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    client.write(CHUNK, 0, &pattern(4096, 1)).expect("there is room");
    for (class, tenant) in [(Class::Gold, "gold"), (Class::Copper, "copper")] {
        let mut client = Client::connect_as(server.addr, class);
        let mut tenancy = Tenancy::new(tenant, client.chunks.rpc().link(), 16);
        read_by_engine(&mut client, &mut tenancy, 500);
        let first = tenancy.engine().and_then(|engine| engine.engine().epoch());
        // Its reservation is used up in each period, and more comes with the next.
        let mut is_next = false;
        while !is_next {
            read_by_engine(&mut client, &mut tenancy, 50);
            is_next = tenancy.engine().and_then(|engine| engine.engine().epoch()) != first;
        }
        let found = of(&qos(&mut client), tenant);
        assert_eq!((found.missed_periods, found.cut_off, found.misreports), (0, 0, 0), "{found:?}");
    }
}

#[test]
fn who_asks_without_tokens_waits_and_is_named() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let text = "[tenant.greedy]\nreserve = 20\n[tenant.web]\nreserve = 500\n";
    let server = Running::start(&with_tenants(dir.path(), 1_000, text));
    let mut greedy = Client::connect(server.addr);
    let mut web = Client::connect(server.addr);
    web.create(CHUNK, None).expect("a fresh name");
    web.write(CHUNK, 0, &pattern(4096, 1)).expect("there is room");
    join(&mut web, "web").expect("it is there");
    let op = greedy.chunks.start_request(
        &mut greedy.endpoint,
        &StorageRequest::Join(JoinRequest { tenant: "greedy".into(), runs_engine: true }),
    );
    assert!(matches!(greedy.wait(op), Ok(Output::Joined(_))));
    // It asks for more in a period than it has, whatever its engine would say.
    for _ in 0..200 {
        greedy.chunks.start_read(&mut greedy.endpoint, CHUNK, 0, 4096).expect("there is room");
    }
    let mut is_named = false;
    while greedy.chunks.under_way() > 0 {
        greedy.turn();
        if !is_named {
            web.read(CHUNK, 0, 4096).expect("it is there");
            let found = of(&qos(&mut web), "greedy");
            is_named = found.overrun_periods > 0;
        }
    }
    assert!(is_named, "somebody waited");
}

#[test]
fn who_reads_one_sided_without_tokens_is_cut_off_and_may_join_again() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let text = "[tenant.greedy]\nreserve = 20\n";
    let server = Running::start(&with_tenants(dir.path(), 1_000, text));
    let mut greedy = Client::connect(server.addr);
    let link = greedy.chunks.rpc().link();
    let join = |greedy: &mut Client<RoceUdp>| {
        let op = greedy.chunks.start_request(
            &mut greedy.endpoint,
            &StorageRequest::Join(JoinRequest { tenant: "greedy".into(), runs_engine: true }),
        );
        match greedy.wait(op) {
            Ok(Output::Joined(reply)) => Ok(GrantId(reply.words.expect("it runs one").pool)),
            other => Err(refusal(other)),
        }
    };
    let pool = join(&mut greedy).expect("nobody has it");
    let place = Place { link, grant: pool, offset: 0 };
    let (mut is_revoked, mut under_way, mut reads) = (false, 0, 0);
    while !is_revoked {
        let Client { endpoint, chunks } = &mut greedy;
        let busy = endpoint.turn(|endpoint, event| match event {
            Event::OpDone { .. } => (under_way, reads) = (under_way - 1, reads + 1),
            Event::Revoked { grant, .. } => is_revoked |= grant == pool,
            event => drop(chunks.on_event(endpoint, event)),
        });
        // It is refused until the grant is known.
        while under_way < 16 {
            let buf = endpoint.alloc(8).expect("a buffer for each");
            if endpoint.read(place, 8, buf, OpOptions::new()).is_err() {
                break;
            }
            under_way += 1;
        }
        if !busy {
            endpoint.wait(Nanos::from_micros(100));
        }
    }
    assert!(reads > 20, "it had some");
    let mut other = Client::connect(server.addr);
    let found = of(&qos(&mut other), "greedy");
    assert_eq!((found.cut_off, found.has_client), (1, false), "{found:?}");
    assert!(found.overrun > 0 && found.used_one_sided > 20, "{found:?}");
    let again = (0..10_000).find_map(|_| match join(&mut greedy) {
        Ok(grant) => Some(grant),
        Err(ErrorReply::TenantBarred { wait_us }) => {
            std::thread::sleep(std::time::Duration::from_micros(wait_us.min(10_000)));
            None
        }
        Err(other) => panic!("{other}"),
    });
    assert!(again.is_some_and(|grant| grant != pool));
}

#[test]
fn who_was_cut_off_reads_one_sided_again_after_joining_again() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let text = "[tenant.greedy]\nreserve = \"100K\"\n";
    let config =
        with_tenants(dir.path(), 200_000, text).with(|config| config.store.resident_bytes = 4096);
    let server = Running::start(&config);
    let mut writer = Client::connect(server.addr);
    let kind = NewChunk { resident: true, ..NewChunk::default() };
    let op = writer.chunks.start_request(
        &mut writer.endpoint,
        &StorageRequest::Create { chunk: CHUNK, limit_bytes: None, kind, stamp: 0 },
    );
    writer.wait(op).expect("a fresh name");
    writer.write(CHUNK, 0, &pattern(4096, 1)).expect("there is room");
    let mut greedy = Client::connect(server.addr);
    let read = |greedy: &mut Client<RoceUdp>| {
        let op = greedy.chunks.start_resident_read(&mut greedy.endpoint, CHUNK, 0, 4096);
        match greedy.wait(op) {
            Ok(Output::Read(data)) => data.is_resident(),
            other => panic!("a read gave {other:?}"),
        }
    };
    let join_as_engine = |greedy: &mut Client<RoceUdp>| {
        let op = greedy.chunks.start_request(
            &mut greedy.endpoint,
            &StorageRequest::Join(JoinRequest { tenant: "greedy".into(), runs_engine: true }),
        );
        greedy.wait(op).is_ok()
    };
    assert!(join_as_engine(&mut greedy) && read(&mut greedy));
    std::fs::write(tenants_file(dir.path()), "[tenant.greedy]\nreserve = 1\nlimit = 1\n")
        .expect("room for a file");
    while of(&qos(&mut writer), "greedy").cut_off == 0 {
        read(&mut greedy);
    }
    std::fs::write(tenants_file(dir.path()), text).expect("room for a file");
    while of(&qos(&mut writer), "greedy").reserve < 100_000 || !join_as_engine(&mut greedy) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let began = std::time::Instant::now();
    while !read(&mut greedy) {
        assert!(began.elapsed() < LONG.into(), "{:?}", greedy.chunks.resident_stats());
    }
}

#[test]
fn what_costs_more_than_a_period_has_is_refused_and_a_scrub_takes_smaller_steps() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let text = "[tenant.web]\nlimit = 4\n[tenant.scrub]\nlimit = 3\n";
    let server = Running::start(&with_tenants(dir.path(), PLENTY, text));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    client.write(CHUNK, 0, &pattern(5 * 4096, 1)).expect("others have no limit");
    join(&mut client, "web").expect("it is there");
    let refused = client.read(CHUNK, 0, 5 * 4096);
    assert_eq!(refusal(refused), ErrorReply::TenantLimit { max: 4 * 4096 });
    client.read(CHUNK, 0, 4 * 4096).expect("that is in a period");
    let op = client
        .chunks
        .start_request(&mut client.endpoint, &StorageRequest::Scrub { budget_slices: 0 });
    let Ok(Output::Scrub(found)) = client.wait(op) else { panic!("a scrub was due") };
    assert_eq!((found.slices, found.pass_done), (5, true));
    assert_eq!(of(&qos(&mut client), "scrub").requests, 2, "three slices, and two");
}

#[test]
fn what_a_delete_leaves_to_be_freed_is_paid_by_who_deletes() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let text = "[tenant.web]\nreserve = \"100K\"\n";
    let server = Running::start(&with_tenants(dir.path(), PLENTY, text));
    let (mut web, mut other) = (Client::connect(server.addr), Client::connect(server.addr));
    assert_eq!(join(&mut web, "web"), Ok(()));
    other.create(CHUNK, None).expect("a fresh name");
    // A slice in each of forty blocks of 64.
    for at in 0..40 {
        other.write(CHUNK, at << 18, &pattern(4096, at)).expect("there is room");
    }
    let used = |client: &mut Client<RoceUdp>, name| {
        let found = of(&qos(client), name);
        found.used_reserved + found.used_pooled
    };
    assert_eq!((used(&mut other, "others"), used(&mut other, "web")), (1 + 40, 0));
    let trim = Clear::Trim { offset: 0, byte_len: 10 << 18 };
    let op = web.chunks.start_request(
        &mut web.endpoint,
        &StorageRequest::Clear(ClearHeader {
            chunk: CHUNK,
            clear: trim,
            sender: Sender::default(),
            terms: Terms::default(),
        }),
    );
    web.wait(op).expect("it is there");
    assert_eq!(used(&mut web, "web"), 10);
    web.delete(CHUNK).expect("it is there");
    assert_eq!(used(&mut web, "web"), 10 + 30);
    assert_eq!(used(&mut web, "others"), 41);
    server.stop();
}
