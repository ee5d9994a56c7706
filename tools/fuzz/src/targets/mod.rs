//! The targets: a parser of untrusted input each, and its law.

mod address;
mod forwarded;
mod forwarded_for;
mod key;
mod policy;
mod reply;
