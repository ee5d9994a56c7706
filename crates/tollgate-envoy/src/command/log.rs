//! Writes log lines to standard error.
//! What a line says is decided where something happens, by `tracing`: no text stands here.

use clap::ValueEnum;
use tracing_subscriber::filter::LevelFilter;

/// Selects the least severe lines. Envoy's service has the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// No lines
    #[value(aliases = ["panic", "fatal"])]
    Off,
    /// Errors
    Error,
    /// Warnings too
    #[value(alias = "warning")]
    Warn,
    /// Loads of rules and connections too
    Info,
    /// Denials too
    Debug,
    /// Everything
    Trace,
}

/// Selects the form of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Starts to write lines.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .with_ansi(false);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}
