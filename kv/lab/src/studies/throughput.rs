//! Figures 4.1 and 4.2, and table 4.1: operations a second over the number of clients.

use super::setting::{
    CLIENTS, PROGRAM, TRANSPORTS, WAITING, params, plan, points, program, transports, waitings,
};
use super::shown::{claim, fitted_points, line, notes, outcomes, over_clients, plain, ratio};
use super::thesis::{self, Figure};
use crate::model::{Outcome, Program, Transport, Waiting};
use towpath_lab::studies::{
    Cell, Claim, Clock, Demand, Param, Params, Report, Runner, Study, StudyError, Table,
};

pub(super) const STUDY: Study = Study {
    name: "kv throughput",
    what: "operations a second of a key-value store over the number of clients, by transport",
    mirrors: "thesis, figures 4.1 and 4.2, table 4.1: UC 1.79, UD 1.73, RC 1.20 times TCP polling",
    clock: Clock::Virtual,
    params: params![
        Param {
            defaults: [
                "5,15,31,32,33,60",
                "1,2,3,4,5,6,7,8,9,10,15,20,25,31,32,33,40,50,60,70",
                "1,2,3,4,5,6,7,8,9,10,15,20,25,30,31,32,33,35,40,45,50,55,60,65,70"
            ],
            ..CLIENTS
        },
        Param { defaults: ["tcp,rc,uc,ud,towpath"; 3], ..TRANSPORTS },
        WAITING,
        PROGRAM
    ],
    run: ask,
};

/// Hardware threads of each machine of the thesis.
const THREADS: u32 = 32;

struct Row {
    waiting: Waiting,
    transport: Transport,
    clients: u32,
    outcome: Outcome,
}

/// What was asked.
struct Rows {
    rows: Vec<Row>,
    program: Program,
}

impl Rows {
    fn of(&self, waiting: Waiting, transport: Transport) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| (row.waiting, row.transport) == (waiting, transport))
    }

    fn per_s(&self, waiting: Waiting, transport: Transport, clients: u32) -> Option<f64> {
        let mut rows = self.of(waiting, transport);
        rows.find(|row| row.clients == clients).map(|row| row.outcome.per_s())
    }

    /// The most up to 33 clients, as the thesis has it; `None` where 32 were not asked.
    fn most(&self, waiting: Waiting, transport: Transport) -> Option<f64> {
        self.per_s(waiting, transport, THREADS)?;
        let rows = self.of(waiting, transport).filter(|row| row.clients <= THREADS + 1);
        rows.map(|row| row.outcome.per_s()).reduce(f64::max)
    }

    /// Whether the model was fitted to what this row says.
    fn is_fitted(&self, row: &Row) -> bool {
        let is = |figure| thesis::is_fitted(figure, row.transport, row.waiting);
        let is_most = || self.most(row.waiting, row.transport) == Some(row.outcome.per_s());
        let is_early = row.clients <= 15;
        self.program == Program::Thesis
            && (is(Figure::Change) && is_early || is(Figure::Most) && is_most())
    }

    /// What a client brings, from the fewest clients to 15.
    fn change(&self, waiting: Waiting, transport: Transport) -> Option<f64> {
        let upto = self.of(waiting, transport).filter(|row| row.clients <= 15);
        let (first, last) =
            (upto.min_by_key(|row| row.clients)?, self.per_s(waiting, transport, 15)?);
        let more = 15_u32.saturating_sub(first.clients);
        (more > 0).then(|| (last - first.outcome.per_s()) / f64::from(more))
    }
}

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let points = points(params, &CLIENTS);
    let program = program(params);
    let plans: Vec<_> = points.iter().map(|&point| plan(params, program, point)).collect();
    let seen = outcomes(&mut report, runner, &plans)?;
    let rows = points.into_iter().zip(seen).map(|((transport, waiting, clients), outcome)| Row {
        waiting,
        transport,
        clients,
        outcome,
    });
    let rows = Rows { rows: rows.collect(), program };
    let both: Vec<_> = waitings(params)
        .into_iter()
        .flat_map(|waiting| {
            transports(params).into_iter().map(move |transport| (waiting, transport))
        })
        .collect();
    report.tables = vec![table(&rows), published(&rows, &both)];
    if let Some(table) = changes(&rows, params) {
        report.tables.push(table);
    }
    for (waiting, figure) in [(Waiting::Polling, "4.1"), (Waiting::Blocking, "4.2")] {
        let lines = both.iter().filter(|both| both.0 == waiting).map(|&(_, transport)| {
            let points = rows.of(waiting, transport);
            let points = points.map(|row| (f64::from(row.clients), row.outcome.per_s() / 1e3));
            line(transport.word(), points)
        });
        let mut lines: Vec<_> = lines.collect();
        let of_figure =
            rows.rows.iter().filter(|row| row.waiting == waiting && rows.is_fitted(row));
        let fitted = of_figure.map(|row| (f64::from(row.clients), row.outcome.per_s() / 1e3));
        lines.extend(fitted_points(fitted.collect()));
        if !lines.is_empty() {
            let title = format!("{}, figure {figure}", waiting.word());
            report.plots.push(over_clients(title, "operations", "thousands/s", lines));
        }
    }
    report.claims = claims(&rows, &both);
    report.notes = notes();
    Ok(report)
}

fn table(rows: &Rows) -> Table {
    let columns = vec![
        plain("waiting", "waiting", ""),
        plain("transport", "transport", ""),
        plain("clients", "clients", ""),
        plain("per_s", "operations", "1/s"),
        ratio("of_tcp", "of TCP", ""),
        plain("fitted", "fitted", ""),
    ];
    let row = |row: &Row| -> Vec<Cell> {
        let per_s = row.outcome.per_s();
        let tcp = rows.per_s(row.waiting, Transport::Tcp, row.clients);
        vec![
            row.waiting.word().into(),
            row.transport.word().into(),
            u64::from(row.clients).into(),
            (per_s.round() as u64).into(),
            tcp.map(|tcp| per_s / tcp).into(),
            if rows.is_fitted(row) { "fitted".into() } else { Cell::Absent },
        ]
    };
    let title = "Operations a second, until the last client is done".to_owned();
    Table { name: "throughput", title, columns, rows: rows.rows.iter().map(row).collect() }
}

fn published(rows: &Rows, both: &[(Waiting, Transport)]) -> Table {
    let columns = vec![
        plain("waiting", "waiting", ""),
        plain("transport", "transport", ""),
        plain("most_per_s", "the most", "1/s"),
        plain("thesis_most_per_s", "thesis", "1/s"),
        ratio("most_of_tcp", "of TCP", ""),
        ratio("thesis_most_of_tcp", "thesis", ""),
        plain("change_per_s", "for a client", "1/s"),
        plain("thesis_change_per_s", "thesis", "1/s"),
        plain("fitted", "fitted", ""),
    ];
    let whole = |number: Option<f64>| -> Cell { number.map(|number| number.round() as u64).into() };
    let row = |&(waiting, transport): &(Waiting, Transport)| -> Vec<Cell> {
        let most = rows.most(waiting, transport);
        let thesis = thesis::per_s(transport, waiting);
        let of_tcp = most.zip(rows.most(waiting, Transport::Tcp)).map(|(most, tcp)| most / tcp);
        vec![
            waiting.word().into(),
            transport.word().into(),
            whole(most),
            whole(thesis),
            of_tcp.into(),
            ratio_of_thesis(waiting, transport).into(),
            whole(rows.change(waiting, transport)),
            whole(thesis::change(transport, waiting)),
            fitted(rows.program, transport, waiting),
        ]
    };
    let title = "The most up to 33 clients, and what each client brings up to 15".to_owned();
    Table { name: "published", title, columns, rows: both.iter().map(row).collect() }
}

/// What of a row the model was fitted to.
fn fitted(program: Program, transport: Transport, waiting: Waiting) -> Cell {
    let is = |figure| program == Program::Thesis && thesis::is_fitted(figure, transport, waiting);
    match [is(Figure::Most), is(Figure::Change)] {
        [true, true] => "the most, for a client".into(),
        [true, false] => "the most".into(),
        [false, true] => "for a client".into(),
        [false, false] => Cell::Absent,
    }
}

fn ratio_of_thesis(waiting: Waiting, transport: Transport) -> Option<f64> {
    let tcp = thesis::per_s(Transport::Tcp, waiting)?;
    thesis::per_s(transport, waiting).map(|per_s| per_s / tcp)
}

/// Table 4.1.
fn changes(rows: &Rows, params: &Params) -> Option<Table> {
    let all = [Transport::Tcp, Transport::Rc, Transport::Uc, Transport::Ud];
    let mut columns = vec![plain("clients", "clients", "")];
    let heads = [
        ("tcp_change_per_s", "TCP", "thesis_tcp_change_per_s"),
        ("rc_change_per_s", "RC", "thesis_rc_change_per_s"),
        ("uc_change_per_s", "UC", "thesis_uc_change_per_s"),
        ("ud_change_per_s", "UD", "thesis_ud_change_per_s"),
    ];
    for (name, head, thesis) in heads {
        columns.extend([plain(name, head, "1/s"), plain(thesis, "thesis", "1/s")]);
    }
    let asked: Vec<u32> = params.counts(CLIENTS.name).iter().map(|&count| count as u32).collect();
    let row = |&(clients, thesis): &(u32, [f64; 4])| -> Option<Vec<Cell>> {
        let before = asked.iter().copied().filter(|&count| count < clients).max()?;
        if !asked.contains(&clients) {
            return None;
        }
        let mut cells: Vec<Cell> = vec![u64::from(clients).into()];
        for (transport, thesis) in all.into_iter().zip(thesis) {
            let at = |clients| rows.per_s(Waiting::Polling, transport, clients);
            let change = at(clients).zip(at(before)).map(|(now, then)| now - then);
            let each = change.map(|change| change / f64::from(clients - before));
            cells.push(each.map_or(Cell::Absent, |each| Cell::Number(each.round())));
            cells.push(Cell::Number(thesis.round()));
        }
        Some(cells)
    };
    let found: Vec<_> = thesis::CHANGES.iter().filter_map(row).collect();
    let title = "Table 4.1, polling: operations a second more for each further client".to_owned();
    (!found.is_empty()).then_some(Table { name: "changes", title, columns, rows: found })
}

/// None of what is fitted, nor of the most of any transport: each is where a fitted cost bounds it
/// (the clients' lock, the card, interrupts), and so is the fall beyond 32 clients that poll.
fn claims(rows: &Rows, both: &[(Waiting, Transport)]) -> Vec<Claim> {
    let each = both.iter().filter_map(|&(waiting, transport)| {
        let full =
            rows.per_s(waiting, transport, THREADS).filter(|_| waiting == Waiting::Blocking)?;
        let beyond = rows.of(waiting, transport).filter(|row| row.clients > THREADS);
        let least = beyond.map(|row| row.outcome.per_s()).reduce(f64::min)?;
        let word = transport.word();
        let what = format!("{word}, blocking, the least beyond 32 clients, of 32");
        let measured = (least / full * 100.0, "%", 1);
        Some(claim(format!("kept_{word}"), what, Demand::AtLeast(90.0), measured))
    });
    each.collect()
}
