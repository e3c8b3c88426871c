//! What the API server would make of our resources, asked without one.
//!
//! The rules are data in the CRDs; these tests evaluate them on the cases in `tests/cases/`, which crate `e2e` asks a real
//! API server about, too.

#[cfg(test)]
mod case;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod crds;
#[cfg(test)]
mod structural;
