use redis::{
    AsyncCommands, AsyncConnectionConfig, Client, RedisError,
    aio::MultiplexedConnection,
    streams::{
        StreamAutoClaimOptions, StreamAutoClaimReply, StreamClaimOptions, StreamId,
        StreamReadOptions, StreamReadReply,
    },
};
use tollgate_examples::Failure;

use crate::settings::Settings;

const STREAM: &str = "jobs";
const GROUP: &str = "workers";

/// The deferred jobs, as one consumer of the group sees them.
///
/// The server gives each job to one consumer, and keeps it until the consumer has confirmed it.
/// Each consumer has a connection of its own, because waiting for a job occupies it.
pub(crate) struct Queue {
    connection: MultiplexedConnection,
    consumer: String,
    /// The time after which a job of a silent consumer is claimed.
    claim_after_ms: usize,
    block_ms: usize,
}

/// A job that this consumer has claimed.
pub(crate) struct Job {
    id: String,
    pub(crate) number: u64,
}

impl Queue {
    /// Connects, and creates the stream and the group when they are missing.
    pub(crate) async fn open(
        settings: &Settings,
        consumer: impl Into<String>,
    ) -> Result<Self, Failure> {
        let options = AsyncConnectionConfig::new().set_response_timeout(Some(settings.claim_after));
        let client = Client::open(settings.redis_url.as_str())?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&options)
            .await?;
        let created: Result<(), RedisError> =
            connection.xgroup_create_mkstream(STREAM, GROUP, 0).await;
        match created {
            Err(error) if error.code() != Some("BUSYGROUP") => return Err(error.into()),
            _ => {}
        }
        let claim_after_ms = settings.claim_after.as_millis() as usize;
        let block_ms = (claim_after_ms / 4).clamp(1, 1_000);
        Ok(Self {
            connection,
            consumer: consumer.into(),
            claim_after_ms,
            block_ms,
        })
    }

    /// Appends a job.
    pub(crate) async fn append(&mut self, number: u64) -> Result<(), Failure> {
        let _: Option<String> = self
            .connection
            .xadd(STREAM, "*", &[("job", number)])
            .await?;
        Ok(())
    }

    /// Claims the next job: first one of a consumer that was silent for too long. Returns `None`
    /// after a while without jobs.
    pub(crate) async fn next(&mut self) -> Result<Option<Job>, Failure> {
        let one = StreamAutoClaimOptions::default().count(1);
        let consumer = self.consumer.as_str();
        let claimed: StreamAutoClaimReply = self
            .connection
            .xautoclaim_options(STREAM, GROUP, consumer, self.claim_after_ms, "0-0", one)
            .await?;
        if let Some(entry) = claimed.claimed.first() {
            return job(entry).map(Some);
        }
        let options = StreamReadOptions::default()
            .group(GROUP, consumer)
            .count(1)
            .block(self.block_ms);
        let read: Option<StreamReadReply> = self
            .connection
            .xread_options(&[STREAM], &[">"], &options)
            .await?;
        read.iter()
            .flat_map(|read| &read.keys)
            .flat_map(|key| &key.ids)
            .next()
            .map(job)
            .transpose()
    }

    /// Renews the claim on a job.
    pub(crate) async fn renew(&mut self, job: &Job) -> Result<(), Failure> {
        let options = StreamClaimOptions::default().with_justid();
        let _: redis::Value = self
            .connection
            .xclaim_options(STREAM, GROUP, &self.consumer, 0, &[&job.id], options)
            .await?;
        Ok(())
    }

    /// Confirms a job, and removes it from the stream.
    pub(crate) async fn confirm(&mut self, job: &Job) -> Result<(), Failure> {
        let mut commands = redis::pipe();
        commands
            .atomic()
            .xack(STREAM, GROUP, &[&job.id])
            .ignore()
            .xdel(STREAM, &[&job.id])
            .ignore();
        let () = commands.query_async(&mut self.connection).await?;
        Ok(())
    }
}

fn job(entry: &StreamId) -> Result<Job, Failure> {
    let number = entry
        .get("job")
        .ok_or_else(|| format!("entry {} of the stream {STREAM} has no job", entry.id))?;
    Ok(Job {
        id: entry.id.clone(),
        number,
    })
}
