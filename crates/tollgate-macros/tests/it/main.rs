//! The attribute on functions of all shapes, and its errors.

mod compile_errors;
mod functions;
mod periods;
mod waiting;
