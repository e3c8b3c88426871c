//! Nothing but dependencies: cargo chooses the features of each by what is built along with it, and builds anew what has others. With all of them
//! here, `cargo test`, `cargo test -p e2e` and `cargo xtask` share what they have in common.
