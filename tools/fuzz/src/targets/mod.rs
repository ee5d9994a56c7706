//! The targets: a parser of untrusted input each, and its law.

mod forwarded;
mod forwarded_for;
mod reply;
