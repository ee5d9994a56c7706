//! The events that all open pages receive, and the last minute of them.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::response::sse::Event;
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;
use tokio::sync::{
    broadcast::{self, error::RecvError},
    watch,
};

/// The number of past ticks that a new page receives: one minute.
const HISTORY: usize = 240;

/// The most events that wait for a slow page. It then receives the whole state again.
const WAITING: usize = 64;

/// The most pages that are open at a time.
const MAX_PAGES: usize = 32;

/// Sends events to all open pages.
#[derive(Debug)]
pub(crate) struct Feed {
    events: broadcast::Sender<Message>,
    history: Mutex<VecDeque<Value>>,
    pages: Arc<AtomicUsize>,
    closing: watch::Sender<bool>,
}

/// Holds an event: its name, and its data as JSON.
#[derive(Clone, Debug)]
struct Message {
    name: &'static str,
    data: Arc<str>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self {
            events: broadcast::Sender::new(WAITING),
            history: Mutex::default(),
            pages: Arc::default(),
            closing: watch::Sender::new(false),
        }
    }

    pub(crate) fn send(&self, name: &'static str, data: &Value) {
        // Without an open page there is nobody to tell.
        let _ = self.events.send(Message {
            name,
            data: data.to_string().into(),
        });
    }

    pub(crate) fn remember(&self, tick: Value) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.len() == HISTORY {
            history.pop_front();
        }
        history.push_back(tick);
    }

    pub(crate) fn history(&self) -> Vec<Value> {
        self.history
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }

    /// Returns the events from now on, after one named `hello` with the data that `hello` returns.
    /// `None` when too many pages are open.
    pub(crate) fn subscribe<H>(
        &self,
        hello: H,
    ) -> Option<impl Stream<Item = Result<Event, Infallible>> + Send + use<H>>
    where
        H: Fn() -> Value + Send + 'static,
    {
        let page = Page::open(&self.pages)?;
        let mut closing = self.closing.subscribe();
        // Subscribed before the first event is made, so that no event is missed in between.
        let state = (self.events.subscribe(), hello, true, page);
        let messages = stream::unfold(state, |(mut events, hello, is_first, page)| async move {
            let message = if is_first {
                Message {
                    name: "hello",
                    data: hello().to_string().into(),
                }
            } else {
                match events.recv().await {
                    Ok(message) => message,
                    Err(RecvError::Lagged(_)) => Message {
                        name: "hello",
                        data: hello().to_string().into(),
                    },
                    Err(RecvError::Closed) => return None,
                }
            };
            let event = Event::default().event(message.name).data(&*message.data);
            Some((Ok(event), (events, hello, false, page)))
        });
        Some(messages.take_until(async move {
            // Fails only when the feed is gone, which is an end, too.
            let _ = closing.wait_for(|is_closing| *is_closing).await;
        }))
    }

    /// Ends the events of all pages, so that the server can stop.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }
}

/// Counts an open page until it is dropped.
struct Page(Arc<AtomicUsize>);

impl Page {
    fn open(pages: &Arc<AtomicUsize>) -> Option<Self> {
        let page = Self(Arc::clone(pages));
        (pages.fetch_add(1, Ordering::Relaxed) < MAX_PAGES).then_some(page)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_page_beyond_the_most_is_refused_until_another_one_closes() {
        let feed = Feed::new();
        let mut pages: Vec<_> = (0..MAX_PAGES)
            .filter_map(|_| feed.subscribe(Value::default))
            .collect();
        assert_eq!(pages.len(), MAX_PAGES);
        assert!(feed.subscribe(Value::default).is_none());
        pages.pop();
        assert!(feed.subscribe(Value::default).is_some());
    }

    #[tokio::test]
    async fn a_page_is_told_everything_again_after_it_was_too_slow_and_ends_when_the_feed_closes() {
        let feed = Feed::new();
        let page = feed.subscribe(|| json!("all")).expect("the first page");
        for at in 0..=WAITING {
            feed.send("tick", &json!(at));
        }
        let mut page = Box::pin(page);
        for _ in 0..2 {
            let event = page
                .next()
                .await
                .expect("an event")
                .expect("it cannot fail");
            assert!(format!("{event:?}").contains("hello"), "{event:?}");
        }
        feed.close();
        assert!(page.next().await.is_none());
    }

    #[test]
    fn the_history_is_bounded() {
        let feed = Feed::new();
        (0..1_000).for_each(|at| feed.remember(json!(at)));
        let history = feed.history();
        assert_eq!((history.len(), &history[0]), (HISTORY, &json!(760)));
    }
}
