//! What programs read; docs/studies.md says what each field means.

use serde::Serialize;
use serde_json::{Map, Value, json};
use towpath_lab::studies::{Cell, Claim, Demand, Report, Study, Table};

/// The JSON object of a study.
#[derive(Debug, Serialize)]
pub(super) struct ReportJson {
    study: &'static str,
    clock: &'static str,
    /// Null where no runs replay: measurements are the machine's.
    seed: Option<u64>,
    parameters: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_hash: Option<String>,
    tables: Map<String, Value>,
    units: Map<String, Value>,
    claims: Vec<ClaimJson>,
    all_met: bool,
    notes: Vec<String>,
    runs: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct ClaimJson {
    name: String,
    what: String,
    at_least: Option<f64>,
    at_most: Option<f64>,
    measured: f64,
    unit: &'static str,
    met: bool,
    missed_by: f64,
}

impl ReportJson {
    pub(super) fn of(study: &Study, report: &Report) -> Self {
        let hash = |hash: u64| format!("{hash:016x}");
        let tables = report.tables.iter().map(|table| (table.name.to_owned(), rows(table)));
        let columns = report.tables.iter().flat_map(|table| &table.columns);
        let units = columns.filter(|column| !column.unit.is_empty()).map(|column| {
            // A share is a share for programs, and only shown in percent.
            let unit = if column.unit == "%" { "share" } else { column.unit };
            (column.name.to_owned(), unit.into())
        });
        let params = report.params.iter();
        let runs = report.runs.iter();
        Self {
            study: report.study,
            clock: study.clock.name(),
            seed: (!report.runs.is_empty()).then_some(report.seed),
            parameters: params.map(|(name, text)| ((*name).into(), text.clone().into())).collect(),
            trace_hash: (!report.runs.is_empty()).then(|| hash(report.trace_hash())),
            tables: tables.collect(),
            units: units.collect(),
            claims: report.claims.iter().map(claim).collect(),
            all_met: report.is_all_met(),
            notes: report.notes.clone(),
            runs: runs
                .map(|run| json!({"run": run.run, "trace_hash": hash(run.trace_hash)}))
                .collect(),
        }
    }
}

fn claim(claim: &Claim) -> ClaimJson {
    let (at_least, at_most) = match claim.demand {
        Demand::AtLeast(target) => (Some(target), None),
        Demand::AtMost(target) => (None, Some(target)),
    };
    ClaimJson {
        name: claim.name.clone(),
        what: claim.what.clone(),
        at_least,
        at_most,
        measured: claim.measured,
        unit: claim.unit,
        met: claim.is_met(),
        missed_by: claim.missed_by(),
    }
}

fn rows(table: &Table) -> Value {
    let cell = |cell: &Cell| match cell {
        Cell::Count(count) => (*count).into(),
        // What is no number becomes null.
        Cell::Number(number) => (*number).into(),
        Cell::Text(text) => text.clone().into(),
        Cell::Absent => Value::Null,
    };
    let row = |row: &Vec<Cell>| -> Value {
        let names = table.columns.iter().map(|column| column.name.to_owned());
        Value::Object(names.zip(row.iter().map(cell)).collect())
    };
    table.rows.iter().map(row).collect()
}

/// The JSON object of the list of studies.
pub(super) fn list(studies: &[&Study]) -> Value {
    let of = |study: &&Study| {
        let param = |param: &towpath_lab::studies::Param| {
            let [quick, default, full] = param.defaults;
            json!({"name": param.name, "what": param.what, "unit": param.unit,
                   "many": param.many, "quick": quick, "default": default, "full": full})
        };
        let parameters: Vec<Value> = study.params.iter().map(param).collect();
        json!({"name": study.name, "what": study.what, "mirrors": study.mirrors,
               "clock": study.clock.name(), "parameters": parameters})
    };
    json!({"studies": studies.iter().map(of).collect::<Vec<_>>()})
}
