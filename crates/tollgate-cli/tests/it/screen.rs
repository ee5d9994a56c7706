//! `tollgate top` on a terminal.

use rustix::process::Signal;
use tollgate_tests::{RedisServer, no_server};

use super::{
    terminal::Terminal,
    top::fill,
    watch::{PASSWORD, top},
};

#[test]
fn the_screen_shows_the_prefix_and_follows_the_size_of_the_terminal() {
    if no_server() {
        return;
    }
    let redis = RedisServer::start();
    let _ = redis.command(&[
        "ACL",
        "SETUSER",
        "ann",
        "on",
        &format!(">{PASSWORD}"),
        "~*",
        "+@all",
    ]);
    let url = format!("redis://ann:{PASSWORD}@{}", redis.addr());
    let mut terminal = Terminal::start(&top(&url, &["--policy", "api=7/d"]), 24, 80);
    let _ = terminal.wait("the first screen", |screen| screen.contains("up, "));
    // It appears without a new start.
    fill(&redis, [("tollgate:{acme}:api:f1".to_owned(), 7)]);
    let screen = terminal.wait("the state", |screen| screen.contains("acme"));
    assert!(
        screen.contains("q quits") && screen.contains("limited"),
        "{screen}"
    );
    terminal.resize(12, 34);
    let narrow = terminal.wait("a narrow screen", |screen| {
        screen.contains('…')
            && screen.lines().all(|line| line.chars().count() <= 34)
            && !screen.contains("q quits")
    });
    assert!(narrow.contains("units/s"), "{narrow}");
    redis.kill();
    let _ = terminal.wait("the loss of the server", |screen| {
        screen.contains("away for")
    });
    terminal.type_keys(b"q");
    assert!(terminal.ended().success());
    terminal.wait("the terminal as it was", |_| terminal.is_restored());
    assert!(!terminal.written().contains(PASSWORD));
}

#[test]
fn a_signal_that_comes_as_the_screen_opens_restores_the_terminal() {
    if no_server() {
        return;
    }
    let redis = RedisServer::start();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut terminal = Terminal::start(&top(&redis.url(), &[]), 24, 80);
        terminal.wait("a screen in use", |_| !terminal.is_restored());
        terminal.signal(signal);
        assert!(terminal.ended().success(), "{signal:?}");
        terminal.wait("the terminal as it was", |_| terminal.is_restored());
    }
}

#[test]
fn plain_lines_on_a_terminal_have_no_escape_codes() {
    if no_server() {
        return;
    }
    let redis = RedisServer::start();
    fill(&redis, [("tollgate:{acme}:api:f1".to_owned(), 7)]);
    let mut terminal = Terminal::start(
        &top(
            &redis.url(),
            &["--plain", "--refreshes", "1", "--policy", "api=7/d"],
        ),
        24,
        80,
    );
    assert!(terminal.ended().success());
    let _ = terminal.wait("the state", |screen| screen.contains("acme"));
    assert!(
        !terminal.written().contains('\u{1b}'),
        "{:?}",
        terminal.written()
    );
}

#[test]
fn keys_and_signals_end_it_and_restore_the_terminal() {
    if no_server() {
        return;
    }
    let redis = RedisServer::start();
    let ways: [fn(&Terminal); 4] = [
        |terminal| terminal.type_keys(b"q"),
        |terminal| terminal.type_keys(b""),
        |terminal| terminal.signal(Signal::TERM),
        |terminal| terminal.signal(Signal::INT),
    ];
    for end in ways {
        let mut terminal = Terminal::start(&top(&redis.url(), &[]), 24, 80);
        let _ = terminal.wait("the first screen", |screen| screen.contains("up, "));
        assert!(!terminal.is_restored(), "the screen is in use");
        end(&terminal);
        assert!(terminal.ended().success());
        terminal.wait("the terminal as it was", |_| terminal.is_restored());
    }
}
