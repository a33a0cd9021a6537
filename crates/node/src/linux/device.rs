//! Numbers of devices: major and minor.

/// (major, minor).
pub type Number = (u32, u32);

/// `8:16`, as sysfs (`dev`), `mountinfo` and the files of control groups have it.
pub fn parse(text: &str) -> Option<Number> {
    split(text.trim(), ':', 10)
}

/// `fd:3`, in hexadecimal: `/proc/PID/maps` (proc_pid_maps(5)) and Xen's back ends (Linux
/// drivers/block/xen-blkback/xenbus.c, `physical_device`).
pub fn parse_hex(text: &str) -> Option<Number> {
    split(text.trim(), ':', 16)
}

/// `254,0`, as tracing writes it (Linux include/trace/events/block.h).
pub fn parse_traced(text: &str) -> Option<Number> {
    split(text, ',', 10)
}

fn split(text: &str, separator: char, radix: u32) -> Option<Number> {
    let (major, minor) = text.split_once(separator)?;
    Some((u32::from_str_radix(major, radix).ok()?, u32::from_str_radix(minor, radix).ok()?))
}

/// Of a `st_dev` or `st_rdev` (makedev(3)). The kernel's `huge_encode_dev` (include/linux/kdev_t.h), which ioctls
/// on loop devices give, is the same for all numbers that there are.
pub fn of_dev(dev: u64) -> Number {
    (rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// As the kernel itself keeps it, 12 bits of major and 20 of minor (`MKDEV` of include/linux/kdev_t.h): what filters
/// of trace events compare.
pub fn kernel_dev((major, minor): Number) -> u64 {
    (u64::from(major) << 20) | u64::from(minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        assert_eq!((parse("8:16\n"), parse("259:1048575")), (Some((8, 16)), Some((259, 1_048_575))));
        assert_eq!((parse_hex("fd:3\n"), parse_traced("254,0")), (Some((253, 3)), Some((254, 0))));
        for none in ["", "8", "8:", ":16", "8:16:1", "8,16", "a:b", "-1:0"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    #[test]
    fn device_numbers_round_trip() {
        for number in [(0, 0), (8, 16), (259, 256), (4095, 1_048_575)] {
            // huge_encode_dev() is new_encode_dev() of include/linux/kdev_t.h.
            let (major, minor) = (u64::from(number.0), u64::from(number.1));
            assert_eq!(of_dev((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)), number);
            assert_eq!(of_dev(rustix::fs::makedev(number.0, number.1)), number);
        }
        assert_eq!(kernel_dev((8, 16)), 8_388_624);
    }
}
