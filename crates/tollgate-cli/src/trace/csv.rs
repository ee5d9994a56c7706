//! Reads logs as CSV. The first line names the columns.

use super::fields::Fields;

/// The names of the columns.
pub(super) type Header = Vec<String>;

/// Reads the first line.
pub(super) fn header(line: &[u8]) -> Option<Header> {
    let names: Header = record(line)?.iter().map(|name| name.trim().to_owned()).collect();
    names.iter().all(|name| !name.is_empty()).then_some(names)
}

/// Reads another line. A value that holds the end of a line is not supported.
pub(super) fn parse(header: &Header, line: &[u8]) -> Result<Fields, String> {
    let record = record(line).ok_or("no line of CSV")?;
    if record.len() != header.len() {
        return Err(format!("{} columns, expected {}", record.len(), header.len()));
    }
    let mut fields = Fields::default();
    for (name, value) in header.iter().zip(&record) {
        if !value.is_empty() {
            fields.set(name.as_str(), value.as_str());
        }
    }
    Ok(fields)
}

fn record(line: &[u8]) -> Option<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(line);
    let record = reader.byte_records().next()?.ok()?;
    Some(record.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_names_of_the_first_line() {
        let header = header(b"time, ip,path").unwrap();
        let fields = parse(&header, b"1,\"192.0.2.7\",\"/a,\"\"b\"\"\"").unwrap();
        assert_eq!(fields.iter().collect::<Vec<_>>(), [("ip", "192.0.2.7"), ("path", "/a,\"b\""), ("time", "1")]);
        assert_eq!(parse(&header, b"1,2").unwrap_err(), "2 columns, expected 3");
        assert!(parse(&header, b"").is_err());
    }
}
