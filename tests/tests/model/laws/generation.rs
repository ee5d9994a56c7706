use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::generation::{Dial, Dialled, Found, Generations};

/// A line that knows its dial alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line(u64);

impl Dialled for Line {
    fn number(&self) -> u64 {
        self.0
    }
}

/// Callers wait with the number of who dialled.
type Lines = Arc<Generations<Line, u32>>;

fn lines() -> Lines {
    Arc::new(Generations::new())
}

fn start<R: 'static>(lines: &Lines, work: impl FnOnce(&Lines) -> R + 'static) -> JoinHandle<R> {
    let lines = Arc::clone(lines);
    thread::spawn(move || work(&lines))
}

/// The dial of a line that is down.
fn dial(lines: &Lines) -> Dial<Line, u32> {
    match lines.line_or_dial(&0) {
        Found::Down(dial) => dial,
        Found::Up(line) => panic!("{line:?} is up"),
        Found::Dialing(_) => panic!("somebody dials"),
    }
}

fn made(dial: Dial<Line, u32>) -> Line {
    let line = Line(dial.number());
    dial.made(line);
    line
}

/// A line that is up.
fn up(lines: &Lines) -> Line {
    made(dial(lines))
}

#[test]
fn callers_of_a_line_that_is_down_start_one_dial() {
    loom::model(|| {
        let (lines, dials) = (lines(), Arc::new(AtomicU32::new(0)));
        let call = |me: u32| {
            let dials = Arc::clone(&dials);
            move |lines: &Lines| match lines.line_or_dial(&me) {
                Found::Up(line) => assert_eq!(line, Line(1)),
                Found::Dialing(by) => assert_ne!(by, me, "the others wait for who dials"),
                Found::Down(dial) => {
                    dials.fetch_add(1, Ordering::Relaxed);
                    made(dial);
                }
            }
        };
        let others = [start(&lines, call(1)), start(&lines, call(2))];
        call(3)(&lines);
        for other in others {
            other.join().expect("a thread");
        }
        assert_eq!(dials.load(Ordering::Relaxed), 1);
        assert_eq!(lines.line(), Some(Line(1)));
    });
}

#[test]
fn a_dial_that_was_overtaken_by_another_never_becomes_the_line() {
    loom::model(|| {
        let lines = lines();
        let first = dial(&lines);
        let late = start(&lines, |_| made(first));
        let second = lines.renew(0);
        let third = start(&lines, |lines| made(lines.renew(0)));
        let (first, second) = (late.join().expect("a thread"), made(second));
        let third = third.join().expect("a thread");
        assert!(first.0 < second.0, "dials are numbered as they begin");
        assert_eq!(lines.line(), Some(if second.0 < third.0 { third } else { second }));
    });
}

#[test]
fn after_the_server_is_another_one_the_old_line_is_not_handed_out() {
    loom::model(|| {
        let lines = lines();
        let old = up(&lines);
        let breaking = start(&lines, move |lines| lines.broken(&old));
        let looking = start(&lines, |lines| lines.line());
        let dial = lines.renew(0);
        assert_eq!(lines.line(), None, "what is dialled is not up");
        assert!(matches!(lines.line_or_dial(&1), Found::Dialing(0)));
        breaking.join().expect("a thread");
        let new = made(dial);
        assert!(looking.join().expect("a thread").is_none_or(|line| line == old || line == new));
        assert_eq!(lines.line(), Some(new));
    });
}

#[test]
fn a_line_of_the_server_that_was_left_does_not_come_back() {
    loom::model(|| {
        let lines = lines();
        let old = up(&lines);
        lines.broken(&old);
        let restoring = start(&lines, move |lines| lines.restore(old));
        let dial = lines.renew(0);
        assert_eq!(lines.line(), None);
        let new = made(dial);
        let was_in_time = restoring.join().expect("a thread");
        assert_eq!(lines.line(), Some(new), "the old one came back in time: {was_in_time}");
        // One of the new server does.
        lines.broken(&new);
        assert!(lines.restore(new));
        assert_eq!(lines.line(), Some(new));
    });
}

#[test]
fn an_old_line_that_breaks_does_not_drop_a_newer_one() {
    loom::model(|| {
        let lines = lines();
        let old = up(&lines);
        // Two callers notice, one of them late.
        let late = start(&lines, move |lines| lines.broken(&old));
        lines.broken(&old);
        assert!(!lines.is_up());
        let new = up(&lines);
        late.join().expect("a thread");
        assert_eq!(lines.line(), Some(new));
    });
}

#[test]
fn a_line_that_comes_back_and_the_end_of_a_dial_leave_one_of_the_two() {
    loom::model(|| {
        let lines = lines();
        let old = up(&lines);
        lines.broken(&old);
        let dial = dial(&lines);
        let new = Line(dial.number());
        let restoring = start(&lines, move |lines| {
            assert!(lines.restore(old));
            lines.line().expect("it is up from now on")
        });
        dial.made(new);
        let seen = lines.line().expect("it is up from now on");
        let also_seen = restoring.join().expect("a thread");
        let last = lines.line().expect("it stays up");
        assert!([old, new].contains(&last));
        assert_eq!([seen, also_seen], [last; 2], "who comes first stays");
        lines.broken(&last);
        assert!(!lines.is_up(), "nothing is left behind it");
    });
}

#[test]
fn a_dial_that_a_line_came_back_before_never_becomes_the_line() {
    loom::model(|| {
        let lines = lines();
        let old = up(&lines);
        lines.broken(&old);
        let dial = dial(&lines);
        assert!(lines.restore(old));
        let late = start(&lines, move |_| made(dial));
        assert_eq!(lines.line(), Some(old));
        lines.broken(&old);
        // The next caller dials, whenever the old dial comes to its end.
        let new = up(&lines);
        let late = late.join().expect("a thread");
        assert_ne!(late, new);
        assert_eq!(lines.line(), Some(new));
    });
}

#[test]
fn after_a_dial_that_came_to_nothing_the_next_caller_dials() {
    loom::model(|| {
        let lines = lines();
        let dropped = dial(&lines);
        let dropping = start(&lines, move |_| drop(dropped));
        let is_mine = match lines.line_or_dial(&1) {
            Found::Up(line) => panic!("nobody made {line:?}"),
            Found::Dialing(by) => {
                assert_eq!(by, 0);
                false
            }
            Found::Down(dial) => {
                made(dial);
                true
            }
        };
        dropping.join().expect("a thread");
        if is_mine {
            assert_eq!(lines.line(), Some(Line(2)), "a dial of the past drops nothing");
        } else {
            assert_eq!(up(&lines), Line(2), "who waits in vain dials");
        }
    });
}

#[test]
fn a_dial_that_was_overtaken_and_comes_to_nothing_changes_nothing() {
    loom::model(|| {
        let lines = lines();
        let dropped = dial(&lines);
        let dropping = start(&lines, move |_| drop(dropped));
        let renewed = lines.renew(1);
        assert!(matches!(lines.line_or_dial(&2), Found::Dialing(1)));
        let new = made(renewed);
        dropping.join().expect("a thread");
        assert_eq!(lines.line(), Some(new));
    });
}
