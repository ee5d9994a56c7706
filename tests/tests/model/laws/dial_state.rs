use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::dial_state::{ConnectionLookup, Dial, DialState, Numbered};

/// A connection that knows the number of its dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection(u64);

impl Numbered for Connection {
    fn number(&self) -> u64 {
        self.0
    }
}

/// Callers wait with the number of the caller that dials.
type State = Arc<DialState<Connection, u32>>;

fn state() -> State {
    Arc::new(DialState::new())
}

fn start<R: 'static>(state: &State, work: impl FnOnce(&State) -> R + 'static) -> JoinHandle<R> {
    let state = Arc::clone(state);
    thread::spawn(move || work(&state))
}

/// The dial of a connection that is down.
fn dial(state: &State) -> Dial<Connection, u32> {
    match state.connection_or_dial(&0) {
        ConnectionLookup::Down(dial) => dial,
        ConnectionLookup::Up(connection) => panic!("{connection:?} is up"),
        ConnectionLookup::Dialing(_) => panic!("somebody dials"),
    }
}

fn made(dial: Dial<Connection, u32>) -> Connection {
    let connection = Connection(dial.number());
    dial.made(connection);
    connection
}

/// A connection that is up.
fn up(state: &State) -> Connection {
    made(dial(state))
}

#[test]
fn callers_of_a_connection_that_is_down_start_one_dial() {
    loom::model(|| {
        let (state, dials) = (state(), Arc::new(AtomicU32::new(0)));
        let call = |me: u32| {
            let dials = Arc::clone(&dials);
            move |state: &State| match state.connection_or_dial(&me) {
                ConnectionLookup::Up(connection) => assert_eq!(connection, Connection(1)),
                ConnectionLookup::Dialing(by) => {
                    assert_ne!(by, me, "the others wait for who dials");
                }
                ConnectionLookup::Down(dial) => {
                    dials.fetch_add(1, Ordering::Relaxed);
                    made(dial);
                }
            }
        };
        let others = [start(&state, call(1)), start(&state, call(2))];
        call(3)(&state);
        for other in others {
            other.join().expect("a thread");
        }
        assert_eq!(dials.load(Ordering::Relaxed), 1);
        assert_eq!(state.connection(), Some(Connection(1)));
    });
}

#[test]
fn a_dial_that_was_overtaken_by_another_never_becomes_the_connection() {
    loom::model(|| {
        let state = state();
        let first = dial(&state);
        let late = start(&state, |_| made(first));
        let second = state.renew(0);
        let third = start(&state, |state| made(state.renew(0)));
        let (first, second) = (late.join().expect("a thread"), made(second));
        let third = third.join().expect("a thread");
        assert!(first.0 < second.0, "dials are numbered as they begin");
        assert_eq!(
            state.connection(),
            Some(if second.0 < third.0 { third } else { second })
        );
    });
}

#[test]
fn after_the_server_is_another_one_the_old_connection_is_not_handed_out() {
    loom::model(|| {
        let state = state();
        let old = up(&state);
        let breaking = start(&state, move |state| state.broken(&old));
        let looking = start(&state, |state| state.connection());
        let dial = state.renew(0);
        assert_eq!(state.connection(), None, "what is dialled is not up");
        assert!(matches!(
            state.connection_or_dial(&1),
            ConnectionLookup::Dialing(0)
        ));
        breaking.join().expect("a thread");
        let new = made(dial);
        assert!(
            looking
                .join()
                .expect("a thread")
                .is_none_or(|connection| connection == old || connection == new)
        );
        assert_eq!(state.connection(), Some(new));
    });
}

#[test]
fn a_connection_to_the_former_server_does_not_come_back() {
    loom::model(|| {
        let state = state();
        let old = up(&state);
        state.broken(&old);
        let restoring = start(&state, move |state| state.restore(old));
        let dial = state.renew(0);
        assert_eq!(state.connection(), None);
        let new = made(dial);
        let was_in_time = restoring.join().expect("a thread");
        assert_eq!(
            state.connection(),
            Some(new),
            "the old one came back in time: {was_in_time}"
        );
        // One of the new server does.
        state.broken(&new);
        assert!(state.restore(new));
        assert_eq!(state.connection(), Some(new));
    });
}

#[test]
fn the_end_of_a_connection_and_a_caller_start_one_dial() {
    loom::model(|| {
        let state = state();
        let old = up(&state);
        let keeping = start(&state, move |state| {
            assert!(state.end(old.number()));
            state.redial(old.number(), 0).map(made)
        });
        match state.connection_or_dial(&1) {
            ConnectionLookup::Up(connection) => {
                assert!(connection == old || connection == Connection(2));
            }
            ConnectionLookup::Dialing(by) => assert_eq!(by, 0),
            ConnectionLookup::Down(dial) => {
                made(dial);
            }
        }
        keeping.join().expect("a thread");
        assert_eq!(
            state.connection(),
            Some(Connection(2)),
            "one more dial, by one of both"
        );
        assert!(!state.end(old.number()), "the newer connection stays");
        assert!(state.redial(old.number(), 0).is_none());
    });
}

#[test]
fn an_old_connection_that_breaks_does_not_drop_a_newer_one() {
    loom::model(|| {
        let state = state();
        let old = up(&state);
        // Two callers notice, one of them late.
        let late = start(&state, move |state| state.broken(&old));
        state.broken(&old);
        assert!(!state.is_up());
        let new = up(&state);
        late.join().expect("a thread");
        assert_eq!(state.connection(), Some(new));
    });
}

#[test]
fn a_connection_that_comes_back_and_the_end_of_a_dial_leave_one_of_the_two() {
    loom::model(|| {
        let state = state();
        let old = up(&state);
        state.broken(&old);
        let dial = dial(&state);
        let new = Connection(dial.number());
        let restoring = start(&state, move |state| {
            assert!(state.restore(old));
            state.connection().expect("it is up from now on")
        });
        dial.made(new);
        let seen = state.connection().expect("it is up from now on");
        let also_seen = restoring.join().expect("a thread");
        let last = state.connection().expect("it stays up");
        assert!([old, new].contains(&last));
        assert_eq!([seen, also_seen], [last; 2], "who comes first stays");
        state.broken(&last);
        assert!(!state.is_up(), "nothing is left behind it");
    });
}

#[test]
fn a_dial_that_a_restored_connection_overtook_never_becomes_the_connection() {
    loom::model(|| {
        let state = state();
        let old = up(&state);
        state.broken(&old);
        let dial = dial(&state);
        assert!(state.restore(old));
        let late = start(&state, move |_| made(dial));
        assert_eq!(state.connection(), Some(old));
        state.broken(&old);
        // The next caller dials, whenever the old dial comes to its end.
        let new = up(&state);
        let late = late.join().expect("a thread");
        assert_ne!(late, new);
        assert_eq!(state.connection(), Some(new));
    });
}

#[test]
fn after_a_dial_that_failed_the_next_caller_dials() {
    loom::model(|| {
        let state = state();
        let dropped = dial(&state);
        let dropping = start(&state, move |_| drop(dropped));
        let is_mine = match state.connection_or_dial(&1) {
            ConnectionLookup::Up(connection) => panic!("nobody made {connection:?}"),
            ConnectionLookup::Dialing(by) => {
                assert_eq!(by, 0);
                false
            }
            ConnectionLookup::Down(dial) => {
                made(dial);
                true
            }
        };
        dropping.join().expect("a thread");
        if is_mine {
            assert_eq!(
                state.connection(),
                Some(Connection(2)),
                "a dial of the past drops nothing"
            );
        } else {
            assert_eq!(up(&state), Connection(2), "who waits in vain dials");
        }
    });
}

#[test]
fn a_dial_that_was_overtaken_and_fails_changes_nothing() {
    loom::model(|| {
        let state = state();
        let dropped = dial(&state);
        let dropping = start(&state, move |_| drop(dropped));
        let renewed = state.renew(1);
        assert!(matches!(
            state.connection_or_dial(&2),
            ConnectionLookup::Dialing(1)
        ));
        let new = made(renewed);
        dropping.join().expect("a thread");
        assert_eq!(state.connection(), Some(new));
    });
}
