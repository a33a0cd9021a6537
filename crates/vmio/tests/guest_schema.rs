//! Outputs that only a host with QEMU prints, against their schemas.
#![allow(clippy::unwrap_used)]

use crate::help::bed;
use crate::help::schema;

use bed::Bed;
use schema::fits;

#[test]
#[ignore = "guest: needs QEMU"]
fn an_image_and_what_guests_run_on_are_described() {
    let bed = Bed::with_image();
    fits("image", &bed.vmio(&["image", "build", "--json"]).with(0).out);
    fits("doctor", &bed.vmio(&["doctor", "--json"]).out);
    bed.is_clean();
}
