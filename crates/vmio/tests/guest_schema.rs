//! Outputs that only a host with QEMU prints, against their schemas.
#![allow(clippy::unwrap_used)]

use crate::help::schema;
use crate::help::state_dir;

use schema::fits;
use state_dir::StateDir;

#[test]
#[ignore = "guest: needs QEMU"]
fn an_image_and_what_guests_run_on_are_described() {
    let state = StateDir::with_image();
    fits("image", &state.vmio(&["image", "build", "--json"]).with(0).out);
    fits("doctor", &state.vmio(&["doctor", "--json"]).out);
    state.is_clean();
}
