//! The device names that torch knows on a machine that has them (`c10/core/Device.cpp`); any other name makes a load fail.

/// Types whose storages a load restores: torch's own, and the vendors' names for `privateuseone`.
const STORED: &str = "cpu cuda hpu maia meta mlu mps mtia musa gcu npu privateuseone sdaa xla xpu";
/// Types that occur only in a storage's location.
const LOCATIONS: &str = "dipu vacc";
/// Types that only `torch.device` accepts.
const OTHERS: &str = "fpga hip ideep ipu lazy mkldnn opencl opengl ve vulkan";

/// Whether `torch.device` accepts the name.
pub(crate) fn is_device(text: &str) -> bool {
    let (name, number) = parts(text);
    let plain = |n: &str| n == "0" || !n.starts_with('0');
    number.is_none_or(|n| is_number(n) && plain(n)) && (is_one(STORED, name) || is_one(OTHERS, name))
}

/// Whether a storage can have been saved there.
pub(crate) fn is_location(text: &str) -> bool {
    let (name, number) = parts(text);
    match name {
        "cpu" | "meta" => number.is_none(),
        _ => number.is_none_or(is_number) && (is_one(STORED, name) || is_one(LOCATIONS, name)),
    }
}

/// Splits `cuda:3` into `cuda` and `3`.
fn parts(text: &str) -> (&str, Option<&str>) {
    text.split_once(':')
        .map_or((text, None), |(name, number)| (name, Some(number)))
}

fn is_number(text: &str) -> bool {
    (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_one(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|known| known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_may_be_made_and_a_location_loaded() {
        for (name, device, location) in [
            ("cpu", true, true),
            ("cpu:0", true, false),
            ("cuda:13", true, true),
            ("cuda:013", false, true),
            ("cuda:", false, false),
            ("cuda:12345", false, false),
            ("npu:0", true, true),
            ("dipu:1", false, true),
            ("vulkan", true, false),
            ("cudb", false, false),
            ("", false, false),
        ] {
            assert_eq!((is_device(name), is_location(name)), (device, location), "{name}");
        }
    }
}
