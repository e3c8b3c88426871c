//! How the binary is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A static binary that may stand anywhere in memory has some 15,000 addresses to set at its start: a list of 24 bytes each, or, in this form, of one
    // bit. glibc reads it from 2.36 on.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
}
