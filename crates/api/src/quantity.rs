//! Kubernetes' quantities as whole thousandths (`MilliValue` of k8s.io/apimachinery, `pkg/api/resource`).

/// `100m`, `1.5`, `2Gi`, `1e3` in thousandths, rounded up; `None` for what is none, is negative or does not fit.
pub fn milli(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || part.len() > 12 || whole.len() > 19 {
        return None;
    }
    // In units of 10^-12.
    let digits = |text: &str| if text.is_empty() { Some(0_u128) } else { text.parse().ok() };
    let places = u32::try_from(part.len()).ok()?;
    let pico = digits(whole)? * 10_u128.pow(12) + digits(part)? * 10_u128.pow(12 - places);
    let (factor, divisor) = match suffix {
        "" => (1, 1),
        "n" => (1, 10_u128.pow(9)),
        "u" => (1, 10_u128.pow(6)),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (10_u128.pow(6), 1),
        "G" => (10_u128.pow(9), 1),
        "T" => (10_u128.pow(12), 1),
        "P" => (10_u128.pow(15), 1),
        "E" => (10_u128.pow(18), 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        other => match other.strip_prefix(['e', 'E'])?.parse::<i32>().ok()? {
            power @ 0..=18 => (10_u128.pow(power.unsigned_abs()), 1),
            power @ -18..0 => (1, 10_u128.pow(power.unsigned_abs())),
            _ => return None,
        },
    };
    let milli = pico.checked_mul(factor)?.div_ceil(divisor).div_ceil(10_u128.pow(9));
    u64::try_from(milli).ok()
}

#[cfg(test)]
mod tests {
    use super::milli;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("100m", Some(100)),
            ("1", Some(1_000)),
            ("1.5", Some(1_500)),
            (".5", Some(500)),
            ("0", Some(0)),
            ("1u", Some(1)),
            ("2Ki", Some(2_048_000)),
            ("1Gi", Some(1_073_741_824_000)),
            ("1.5G", Some(1_500_000_000_000)),
            ("1e3", Some(1_000_000)),
            ("5E-1", Some(500)),
            ("128974848000m", Some(128_974_848_000)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1 Gi", None),
            ("1gi", None),
            ("99999999999999999999", None),
            ("9999999999999999Ei", None),
            ("1e99", None),
            ("4", Some(4_000)),
            ("1500m", Some(1_500)),
            ("3Gi", Some(3_221_225_472_000)),
            ("16384Ki", Some(16_777_216_000)),
            ("2k", Some(2_000_000)),
            ("x", None),
            ("1Zi", None),
            ("1.2.3", None),
        ] {
            assert_eq!(milli(text), expected, "{text:?}");
        }
    }
}
