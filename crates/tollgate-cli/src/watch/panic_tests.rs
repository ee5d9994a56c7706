#![cfg(target_os = "linux")]
//! A panic while the screen is in use.

use std::{
    env,
    process::{self, Command},
};

use super::{screen::Screen, session::View as _};

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../tests/it/terminal.rs"]
mod terminal;

/// The variable that makes the test the program on the terminal.
const ROLE: &str = "TOLLGATE_TEST_PANICS";

#[test]
fn a_panic_restores_the_terminal_and_then_its_message_is_shown() {
    if env::var_os(ROLE).is_some() {
        let mut screen = Screen::open().unwrap();
        screen.redraw().unwrap();
        panic!("the words of the panic");
    }
    let mut command = Command::new(env::current_exe().unwrap());
    let name = "a_panic_restores_the_terminal_and_then_its_message_is_shown";
    command
        .args([
            &format!("watch::panic_tests::{name}"),
            "--exact",
            "--nocapture",
        ])
        .env(ROLE, "1");
    // The lines of a backtrace would push the message off the screen.
    command.env("RUST_BACKTRACE", "0");
    let mut terminal = terminal::Terminal::start(&command, 24, 80);
    assert!(
        !terminal.ended().success(),
        "process {} is not the one that panics",
        process::id()
    );
    terminal.wait("the terminal as it was", |_| terminal.is_restored());
    let screen = terminal.wait("the message", |screen| {
        screen.contains("the words of the panic")
    });
    let written = terminal.written();
    assert!(
        written.contains("\u{1b}[?1049h"),
        "the screen was in use: {screen}"
    );
    // Whoever leaves the screen a second time moves the cursor back above the message.
    assert_eq!(written.matches("\u{1b}[?1049l").count(), 1, "{screen}");
}
