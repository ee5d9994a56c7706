//! `tollgate simulate`: tries rules on an access log.
//! The simulation is in `simulate/`, the reading of logs in `trace/`.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use clap::Args;
use tollgate_operator::rules;
use tollgate_rules::RuleSet;

use crate::{
    failure::Failure,
    output::{Format, Report},
    rules::RuleOptions,
    simulate::{SimulationReport, Simulator, Source, Template, plot},
    trace::{Alias, Sorter, Trace, TraceFormat},
};

/// Tries rules on an access log in simulated time, and reports what each rule would have denied.
///
/// The trace is in the common or combined log format, in JSON lines, or in CSV with the names of
/// the columns in its first line. The descriptors of a request are made by the field rate_limits of
/// the rules, or by --descriptor.
///
/// Fields of a request: time, ip, method, path, query, host, user, user_agent, referer, status,
/// bytes, and every column of JSON and CSV under its own name. Objects inside JSON are named
/// outer.inner.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Simulate {
    /// File or directory of rules
    file: PathBuf,

    /// Access log, or - for the standard input
    #[arg(long, value_name = "TRACE")]
    trace: PathBuf,

    /// Sets the format of the trace
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    trace_format: TraceFormat,

    /// Makes a descriptor of each request, such as tenant={user},path={path}; may be repeated
    #[arg(long = "descriptor", value_name = "KEY={FIELD},…")]
    descriptors: Vec<String>,

    /// Reads a field from another column, such as ip=client; may be repeated
    #[arg(long = "field", value_name = "FIELD=COLUMN")]
    fields: Vec<String>,

    /// Proposes the smallest quotas that deny at most this share of the requests, in percent
    #[arg(long, value_name = "PERCENT")]
    suggest: Option<f64>,

    /// Writes a plot of the requests and denials over time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Selects the domain of the requests, when the files have several
    #[arg(long)]
    domain: Option<String>,

    #[command(flatten)]
    rules: RuleOptions,
}

const EXAMPLES: &str = "\
Examples:
  tollgate simulate rules.yaml --trace access.log
  tollgate simulate rules.yaml --trace access.log --suggest 1 --svg denials.svg
  tollgate simulate rules.yaml --trace access.log --descriptor remote_address={ip},path={path}
  tollgate simulate rules.yaml --trace requests.csv --field time=when --field ip=client
  zcat access.log.*.gz | tollgate simulate rules.yaml --trace -";

impl Simulate {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let set = self.rules.load(&self.file)?;
        let domain = rules::domain(&set, self.domain.as_deref())?.to_owned();
        let source = self.source(&set, &domain)?;
        let aliases = self
            .fields
            .iter()
            .map(|field| alias(field))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(percent) = self
            .suggest
            .filter(|percent| !(0.0..=100.0).contains(percent))
        {
            return Err(Failure::new(format_args!(
                "--suggest must be 0 to 100 percent, got {percent}"
            )));
        }
        let trace = Trace::new(open(&self.trace)?, self.trace_format, aliases);
        let simulator = Simulator::new(set, &domain, source, self.suggest.is_some());
        // The store is in the process, so that nothing waits.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(Failure::new)?;
        runtime.block_on(self.simulate(simulator, trace, format))
    }

    async fn simulate(
        &self,
        mut simulator: Simulator,
        trace: Trace<impl BufRead>,
        format: Format,
    ) -> Result<Report, Failure> {
        let unreadable =
            |error: io::Error| Failure::new(format_args!("{}: {error}", self.trace.display()));
        let mut requests = Sorter::new(trace);
        let mut has_requests = false;
        for request in requests.by_ref() {
            simulator.request(&request.map_err(unreadable)?).await?;
            has_requests = true;
        }
        let skipped = requests.source().skipped();
        if !has_requests {
            let mut message = format!("{}: the trace has no requests", self.trace.display());
            for (line, reason) in &skipped.examples {
                message.push_str(&format!("\n{}:{line}: {reason}", self.trace.display()));
            }
            return Err(Failure::new(message));
        }
        let report =
            SimulationReport::new(&simulator, skipped, requests.late(), self.suggest).await?;
        if let Some(path) = &self.svg {
            fs::write(path, plot(&simulator)).map_err(|error| {
                Failure::new(format_args!(
                    "{}: cannot write the plot: {error}",
                    path.display()
                ))
            })?;
        }
        Ok(Report::new(format, &report, || report.text()))
    }

    fn source(&self, set: &RuleSet, domain: &str) -> Result<Source, Failure> {
        if !self.descriptors.is_empty() {
            let templates = self
                .descriptors
                .iter()
                .map(|text| Template::parse(text))
                .collect::<Result<_, _>>()?;
            return Ok(Source::Templates(templates));
        }
        match set.descriptors(domain) {
            Some(descriptors) => Ok(Source::Rules(descriptors.clone())),
            None => Err(Failure::new(format_args!(
                "{}: the domain {domain} has no rate_limits, so --descriptor has to say how descriptors are made",
                self.file.display()
            ))),
        }
    }
}

fn alias(text: &str) -> Result<Alias, Failure> {
    match text.split_once('=') {
        Some((field, column)) if !field.is_empty() && !column.is_empty() => Ok(Alias {
            field: field.to_owned(),
            column: column.to_owned(),
        }),
        _ => Err(Failure::new(format_args!(
            "--field {text:?} must have the form FIELD=COLUMN"
        ))),
    }
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::NotFound => "it does not exist".to_owned(),
            io::ErrorKind::PermissionDenied => "the permission is missing".to_owned(),
            _ => error.to_string(),
        };
        Failure::new(format_args!(
            "{}: cannot read the trace: {reason}",
            path.display()
        ))
    })?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Failure::new(format_args!(
            "{}: expected a trace, got a directory",
            path.display()
        )));
    }
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}
