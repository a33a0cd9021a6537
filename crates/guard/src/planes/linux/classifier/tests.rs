#![allow(clippy::unwrap_used)]
use super::*;

/// As the object declares them; nothing is loaded.
#[test]
fn layouts_are_those_of_the_program() {
    let open = loudly("open the object", attach::open).unwrap();
    let sizes: BTreeMap<String, (u32, u32)> =
        open.maps().map(|m| (m.name().to_string_lossy().into_owned(), (m.value_size(), m.max_entries()))).collect();
    assert_eq!(sizes["tenants"], (TENANT as u32, MOST as u32 + 1));
    assert_eq!(sizes["counters"], (counters::BYTES as u32, MOST as u32 + 1));
}

#[test]
fn a_tenant_is_laid_out_as_the_program_reads_it() {
    let tenant =
        Tenant { class: 0x7a00_0002, address: Some([2, 0, 0, 0, 0, 9]), redirect: Some(7), framing: Framing::ETHERNET };
    let bytes = tenant.encode(3, Way::Tcx);
    assert_eq!(bytes[..4], 0x7a00_0002u32.to_ne_bytes());
    assert_eq!(bytes[4..8], 3u32.to_ne_bytes(), "both flags");
    assert_eq!((bytes[8], bytes[12]), (7, 3));
    assert_eq!(
        (bytes[16..18].to_vec(), bytes[18..20].to_vec()),
        (24u16.to_ne_bytes().into(), 84u16.to_ne_bytes().into())
    );
    assert_eq!(bytes[20..26], [2, 0, 0, 0, 0, 9]);
    let plain = Tenant { class: 1, address: None, redirect: None, framing: Framing::NONE }.encode(0, Way::Tcx);
    assert_eq!(plain[4..28], [0; 24]);
    assert_eq!(tenant.encode(3, Way::Clsact)[4..8], 1u32.to_ne_bytes(), "at clsact a filter leads to the IFB");
}
