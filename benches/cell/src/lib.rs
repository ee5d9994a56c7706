//! Nothing of its own: to build this builds the module.
