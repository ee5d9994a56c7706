//! Draws line charts as SVG.
//!
//! A [`Picture`] is a grid of panels with one legend. All panels show the same series, in the same
//! colours. The text is legible on white and on black pages.
//!
//! ```
//! use tollgate_charts::{Axis, Panel, Picture};
//!
//! let mut panel = Panel::new("1 ms", Axis::logarithmic("callers"), Axis::linear("decisions per second"));
//! panel.line(0, [(64.0, 61e3), (256.0, 180e3)]);
//! let picture = Picture::new("Distance", ["tollgate"], vec![panel]);
//! assert!(picture.svg().starts_with("<svg"));
//! ```

mod axis;
mod picture;

pub use axis::Axis;
pub use picture::{Panel, Picture};

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
