//! Reads logs as CSV. The first line names the columns.
//! Which column has which meaning is decided in `fields.rs`.

use csv_core::{ReadRecordResult, Reader};

use super::fields::Fields;

/// Reads the lines of a log. It keeps its buffers from line to line.
pub(super) struct Columns {
    names: Vec<String>,
    record: Record,
}

impl Columns {
    /// Reads the first line.
    pub(super) fn new(line: &[u8]) -> Option<Self> {
        let mut record = Record {
            reader: Reader::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
            count: 0,
        };
        record.read(line)?;
        let names: Vec<_> = record
            .values()
            .map(|value| String::from_utf8_lossy(value).trim().to_owned())
            .collect();
        names
            .iter()
            .all(|name| !name.is_empty())
            .then_some(Self { names, record })
    }

    /// Returns the names of the columns.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Reads another line. A value that holds the end of a line is not supported.
    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Fields, String> {
        let Self { names, record } = self;
        record.read(line).ok_or("no line of CSV")?;
        let count = record.values().count();
        if count != names.len() {
            return Err(format!("{count} columns, expected {}", names.len()));
        }
        let mut fields = Fields::default();
        for (name, value) in names.iter().zip(record.values()) {
            if !value.is_empty() {
                fields.set(name.as_str(), String::from_utf8_lossy(value));
            }
        }
        Ok(fields)
    }
}

/// The values of a line, one after the other.
struct Record {
    reader: Reader,
    bytes: Vec<u8>,
    /// The ends of the values, and their number.
    ends: Vec<usize>,
    count: usize,
}

impl Record {
    /// Splits a line. `None` is a line without a value.
    fn read(&mut self, line: &[u8]) -> Option<()> {
        self.reader.reset();
        // A value has no more bytes than its text in the line.
        self.bytes.resize(line.len().max(self.bytes.len()), 0);
        let (mut rest, mut written) = (line, 0);
        self.count = 0;
        loop {
            let (bytes, ends) = (&mut self.bytes[written..], &mut self.ends[self.count..]);
            let (result, read, wrote, ended) = self.reader.read_record(rest, bytes, ends);
            (rest, written, self.count) = (&rest[read..], written + wrote, self.count + ended);
            match result {
                // The next call sees the end of the line: it gets no bytes.
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.bytes.resize(2 * self.bytes.len() + 1, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len() + 16, 0),
                ReadRecordResult::Record => return Some(()),
                ReadRecordResult::End => return None,
            }
        }
    }

    fn values(&self) -> impl Iterator<Item = &[u8]> {
        let ends = &self.ends[..self.count];
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts
            .zip(ends)
            .map(|(start, end)| &self.bytes[start..*end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The allocations of a line decide how fast it is read.
    #[test]
    fn a_line_takes_no_buffer_of_its_own() {
        let mut columns = Columns::new(b"time,ip,path").unwrap();
        let mut parse = || drop(columns.parse(b"1700000000.5,192.0.2.7,/a/b/c"));
        parse();
        let used = allocation_counter::measure(parse);
        assert!(used.bytes_total < 2_048, "{used:?}");
    }
}
