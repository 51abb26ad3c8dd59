//! The JSON object: what the table shows, under perftest's names where it has them.

use super::table::{Detail, details, device, title};
use super::{BwRow, LatRow, Row, RowCpu, bandwidth};
use crate::perftest::carrier::Counters;
use crate::perftest::settings::{Goal, Settings};
use serde_json::{Map, Value, json};
use towpath_status::PathStatus;
use towpath_transport::Mtu;

/// The whole object; its fields are documented in `docs/tools.md`.
pub(crate) fn object(
    settings: &Settings,
    (local, remote, mtu): (&str, &str, Option<Mtu>),
    rows: &[Row],
    paths: &[PathStatus],
) -> Value {
    let results: Vec<Value> = rows.iter().map(|row| result(settings, row)).collect();
    let info = test_info(settings, (local, remote), mtu);
    json!({ "test_info": info, "results": results, "paths": paths })
}

fn test_info(settings: &Settings, (local, remote): (&str, &str), mtu: Option<Mtu>) -> Value {
    let plan = &settings.plan;
    let mut info = Map::new();
    let mut put = |name: &str, value: Value| {
        info.insert(name.to_owned(), value);
    };
    put("test", title(settings).replace(' ', "_").into());
    put("tool", plan.tool.name().into());
    put("device", device(settings).into());
    put("raw", plan.raw.into());
    put("Connection_type", plan.connection.to_string().into());
    put("Number_of_qps", plan.qps.into());
    put("bidirectional", plan.bidirectional.into());
    put("data_validation", plan.validate.into());
    put("warm_up", plan.warm_up.into());
    if let Goal::Span { span, margin } = plan.goal {
        put("duration_s", span.as_secs_f64().into());
        put("margin_s", margin.as_secs_f64().into());
    }
    for (name, value) in details(settings, mtu) {
        let name = name.replace(". ", "_").replace(' ', "_");
        put(
            &name,
            match value {
                Detail::Count(number) | Detail::Bytes(number) => number.into(),
                Detail::Text(text) => text.into(),
            },
        );
    }
    put("loss", settings.ours.loss.into());
    put("seed", settings.ours.seed.into());
    put("local_address", local.replace('\n', "").into());
    put("remote_address", remote.replace('\n', "").into());
    Value::Object(info)
}

fn result(settings: &Settings, row: &Row) -> Value {
    match row {
        Row::Bw(row) => bw(settings, row),
        Row::Lat(row) => lat(row),
    }
}

fn bw(settings: &Settings, row: &BwRow) -> Value {
    let of = |per_second| bandwidth(settings, row.size, per_second);
    let gbps = row.per_second * f64::from(row.size) * 8.0 / 1e9;
    let mut value = json!({
        "MsgSize": row.size,
        "n_iterations": row.iterations,
        "BW_peak": of(row.peak_per_second),
        "BW_average": of(row.per_second),
        "BW_unit": if settings.show.gbits { "Gb/sec" } else { "MiB/sec" },
        "MsgRate": row.per_second / 1e6,
        "gbps": gbps,
    });
    value["messages_lost"] = row.messages_lost.into();
    ours(&mut value, row.counters, row.cpu);
    value
}

fn lat(row: &LatRow) -> Value {
    let of = &row.summary;
    let mut value = json!({
        "MsgSize": row.size,
        "n_iterations": row.iterations,
        "t_min": of.min,
        "t_max": of.max,
        "t_typical": of.typical,
        "t_avg": of.mean,
        "t_stdev": of.stdev,
        "t_99_percentile": of.p99,
        "t_99_9_percentile": of.p99_9,
        "tps_average": row.per_second,
    });
    ours(&mut value, row.counters, row.cpu);
    value
}

/// Counters are null where the carrier cannot know them, the CPU where it was not asked for.
fn ours(value: &mut Value, counters: Option<Counters>, cpu: RowCpu) {
    value["packets_lost"] = counters.and_then(|c| c.packets_lost).into();
    value["chunks_sent"] = counters.map(|c| c.chunks_sent).into();
    value["chunks_retransmitted"] = counters.map(|c| c.chunks_retransmitted).into();
    value["acks_sent"] = counters.map(|c| c.acks_sent).into();
    value["tail_probes"] = counters.map(|c| c.tail_probes).into();
    value["rtt_us"] = counters.and_then(|c| c.rtt).map(|rtt| rtt.0 as f64 / 1e3).into();
    value["window_bytes"] = counters.map(|c| c.window_bytes).into();
    value["rtos"] = counters.map(|c| c.rtos).into();
    value["chunks_duplicate"] = counters.map(|c| c.chunks_duplicate).into();
    value["reroutes"] = counters.map(|c| c.reroutes).into();
    value["CPU_util"] = cpu.util.into();
    value["serving_cpu_ms"] = cpu.serving_ns.map(|ns| ns as f64 / 1e6).into();
}
