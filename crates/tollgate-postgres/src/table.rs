//! The table: its name, the SQL that makes it, and the statements that run on it.
//! Nothing here talks to a server: that is in `database.rs`.

use tollgate_core::{Error, ErrorKind};

/// A row of the table: what is stored under a key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The limited key, the name of the policy, and the tag of its algorithm: `{acme}:api:t1`.
    pub key: Vec<u8>,
    /// The bytes of the state.
    pub value: Vec<u8>,
    /// The time at which it equals a fresh state, in milliseconds since the Unix epoch.
    pub expires_ms: u64,
}

// Leaves out the key and the value: both may identify a person.
tollgate_core::debug_fields! { Row: bytes = .value.len(), expires_ms, .. }

/// Says what becomes of the counts when the server crashes.
///
/// ```
/// use tollgate_postgres::{Durability, schema};
///
/// assert!(schema("limits", Durability::Unlogged)?.starts_with("CREATE UNLOGGED TABLE"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Counts survive a crash and reach the standbys. Each batch that charges waits until the log
    /// of the server is on its disk, or as `synchronous_commit` says.
    #[default]
    Logged,
    /// Counts are lost when the server crashes, though not when it is stopped, and no standby has
    /// them: everybody then has a fresh quota. A write waits for no disk.
    Unlogged,
}

/// The version of the table that this crate reads and writes. The comment of the table has it.
const VERSION: u32 = 1;

/// The comment up to the version.
const MARK: &str = "tollgate table version ";

/// The longest name of a table, or of a schema.
const MAX_NAME: usize = 50;

/// Returns the SQL that creates the table of this name, for a migration.
///
/// The name may have a schema before it, as in `limits.counts`. Run again, the SQL changes nothing.
///
/// ```
/// use tollgate_postgres::{Durability, schema};
///
/// let sql = schema("tollgate", Durability::Logged)?;
/// assert!(sql.contains("PRIMARY KEY") && sql.contains("fillfactor"));
/// assert!(schema("no name; DROP TABLE", Durability::Logged).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::Config`] when the name has other characters than lower-case letters, digits and
/// underscores.
pub fn schema(table: &str, durability: Durability) -> Result<String, Error> {
    Ok(Table::new(table)?.schema(durability))
}

/// The statements on one table.
#[derive(Debug)]
pub(crate) struct Table {
    /// The name as the application wrote it.
    pub(crate) name: String,
    /// The name between quotation marks, so that it may be a word of SQL.
    quoted: String,
    /// Returns the time in microseconds, and the value of each key.
    pub(crate) read: String,
    /// Makes rows for keys that have none, in the order of the keys.
    pub(crate) fill: String,
    /// Makes each change whose keys are as they were read. Returns those that are not made: all
    /// of them as nothing.
    pub(crate) write: String,
    /// Removes rows whose time has come, by the clock of the server or by the given one.
    pub(crate) sweep: String,
    /// Returns the time, and rows from one key on and before another.
    pub(crate) rows: String,
    /// Sets a value that does not expire.
    pub(crate) set: String,
    /// Removes a value.
    pub(crate) remove: String,
    /// Returns the comment of the table, and whether the server is a standby, or read-only.
    pub(crate) check: String,
}

impl Table {
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let is_valid = |part: &str| {
            let is_plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            (1..=MAX_NAME).contains(&part.len()) && part.bytes().all(is_plain)
        };
        if name.split('.').count() > 2 || !name.split('.').all(is_valid) {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "table must be a name of lower-case letters, digits and underscores, with or without a schema, got {name:?}"
                ),
            ));
        }
        let quoted = format!("\"{}\"", name.replace('.', "\".\""));
        Ok(Self {
            name: name.to_owned(),
            read: format!(
                "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8, ARRAY(\
                   SELECT (SELECT nullif(t.value, '') FROM {quoted} AS t WHERE t.key = asked.key) \
                   FROM unnest($1::bytea[]) WITH ORDINALITY AS asked (key, at) ORDER BY asked.at)"
            ),
            fill: format!(
                "INSERT INTO {quoted} (key, value, expires_ms, sweep_at) \
                 SELECT key, '', 0, $2::int4 FROM unnest($1::bytea[]) AS missing (key) ORDER BY key \
                 ON CONFLICT (key) DO NOTHING"
            ),
            // The rows are locked in the order of the keys, so two writes never wait for each other.
            // A row that changed after it was read has another value here, because a lock returns
            // the newest version of its row.
            write: format!(
                "WITH asked AS MATERIALIZED (\
                   SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::int8[], $5::int4[], $6::int4[], $7::int4[]) \
                   AS asked (key, before, value, expires_ms, least, most, change)\
                 ), held AS MATERIALIZED (\
                   SELECT asked.change, t.value IS NOT DISTINCT FROM asked.before AS is_same \
                   FROM asked JOIN {quoted} AS t ON t.key = asked.key ORDER BY t.key FOR UPDATE OF t\
                 ), outcome AS MATERIALIZED (\
                   SELECT count(*) = cardinality($1) AS is_whole, \
                     coalesce(array_agg(change) FILTER (WHERE NOT is_same), '{{}}') AS others FROM held\
                 ), written AS (\
                   UPDATE {quoted} AS t SET value = asked.value, expires_ms = asked.expires_ms, \
                     sweep_at = CASE WHEN t.sweep_at BETWEEN asked.least AND asked.most THEN t.sweep_at ELSE asked.most END \
                   FROM asked, outcome \
                   WHERE outcome.is_whole AND asked.change <> ALL (outcome.others) AND t.key = asked.key \
                     AND asked.value IS NOT NULL\
                 ) \
                 SELECT CASE WHEN is_whole THEN others END FROM outcome"
            ),
            // The clock is read for each row, and again when a row that others have written
            // meanwhile is locked.
            sweep: format!(
                "DELETE FROM {quoted} WHERE key = ANY (ARRAY(\
                   SELECT key FROM {quoted} WHERE sweep_at < $1 \
                     AND expires_ms < coalesce($3, (extract(epoch FROM clock_timestamp()) * 1000)::int8) \
                   ORDER BY sweep_at LIMIT $2 FOR UPDATE SKIP LOCKED))"
            ),
            rows: format!(
                "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8, found.* \
                 FROM (SELECT 1) AS one LEFT JOIN LATERAL (\
                   SELECT key, value, expires_ms FROM {quoted} \
                   WHERE key >= $1 AND key < $2 AND value <> '' ORDER BY key LIMIT $3) AS found ON true"
            ),
            set: format!(
                "INSERT INTO {quoted} (key, value, expires_ms, sweep_at) VALUES ($1, $2, 0, {}) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                i32::MAX
            ),
            remove: format!("DELETE FROM {quoted} WHERE key = $1"),
            check: format!(
                "SELECT obj_description('{quoted}'::regclass, 'pg_class'), \
                 current_setting('transaction_read_only')::bool"
            ),
            quoted,
        })
    }

    /// Returns the SQL that creates the table.
    ///
    /// Half of each page is left free, so that a row that changes stays on its page and in no need
    /// of new entries in the indexes. What cannot be reused at once is reused soon, because the
    /// table is vacuumed when a fiftieth of it has changed.
    pub(crate) fn schema(&self, durability: Durability) -> String {
        let (table, bare) = (
            &self.quoted,
            self.name.rsplit('.').next().unwrap_or_default(),
        );
        let kind = match durability {
            Durability::Logged => "TABLE",
            Durability::Unlogged => "UNLOGGED TABLE",
        };
        format!(
            "CREATE {kind} IF NOT EXISTS {table} (\n    \
               key bytea PRIMARY KEY,\n    \
               value bytea NOT NULL,\n    \
               expires_ms int8 NOT NULL,\n    \
               sweep_at int4 NOT NULL\n\
             ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);\n\
             CREATE INDEX IF NOT EXISTS \"{bare}_sweep_at\" ON {table} (sweep_at);\n\
             COMMENT ON TABLE {table} IS '{MARK}{VERSION}';\n"
        )
    }

    /// Judges the comment of the table.
    pub(crate) fn judge(&self, comment: Option<&str>) -> Result<(), Error> {
        let version = comment
            .and_then(|comment| comment.strip_prefix(MARK))
            .and_then(|version| version.trim().parse::<u32>().ok());
        let name = &self.name;
        match version {
            Some(VERSION) => Ok(()),
            Some(version) => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "the table {name:?} has version {version}, and this version of tollgate-postgres uses version {VERSION}"
                ),
            )),
            None => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "the table {name:?} has no comment {:?}: it is a table of another program",
                    format!("{MARK}{VERSION}")
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_with_or_without_a_schema() {
        for name in ["tollgate", "limits.counts", "select", "_1"] {
            assert!(Table::new(name).is_ok(), "{name}");
        }
        for name in [
            "",
            ".",
            "a.",
            "a.b.c",
            "A",
            "a b",
            "a\"",
            "a;",
            "ä",
            &"a".repeat(MAX_NAME + 1),
        ] {
            let error = Table::new(name).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Config, "{name}");
        }
    }

    #[test]
    fn a_comment_of_another_version_or_of_none_is_an_error_that_says_so() {
        let table = Table::new("counts").expect("a name");
        assert!(table.judge(Some("tollgate table version 1")).is_ok());
        let message = |comment| table.judge(comment).expect_err("refused").to_string();
        assert_eq!(
            message(Some("tollgate table version 7")),
            "the table \"counts\" has version 7, and this version of tollgate-postgres uses version 1"
        );
        assert!(message(None).ends_with("it is a table of another program"));
    }
}
