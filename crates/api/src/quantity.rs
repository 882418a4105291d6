//! Kubernetes quantities as whole numbers.
//!
//! It owns the arithmetic of `resource.Quantity` for the two units that Godwit counts in: bytes and thousandths of a
//! CPU. It never uses floating point and never wraps: what does not fit is an error.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Why a quantity cannot be used as a whole number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the quantity grammar.
    #[error(
        "{text:?} is not a quantity: expected a number with an optional suffix such as Ki, Mi, Gi, k, M, G or m"
    )]
    Malformed {
        /// What was given.
        text: String,
    },
    /// Sizes and rates count something; there is no less than none of it.
    #[error("{text:?} is negative")]
    Negative {
        /// What was given.
        text: String,
    },
    /// More than 64 bits.
    #[error("{text:?} is too large")]
    TooLarge {
        /// What was given.
        text: String,
    },
}

/// The quantity in units (bytes, bytes per second), rounded up as Kubernetes does.
pub fn whole(quantity: &Quantity) -> Result<u64, QuantityError> {
    scaled(quantity, 0)
}

/// The quantity in thousandths (of a CPU), rounded up.
pub fn milli(quantity: &Quantity) -> Result<u64, QuantityError> {
    scaled(quantity, 3)
}

/// The quantity times ten to the power of `shift`, rounded up.
fn scaled(quantity: &Quantity, shift: i32) -> Result<u64, QuantityError> {
    let text = quantity.0.as_str();
    let malformed = || QuantityError::Malformed { text: text.to_owned() };
    let too_large = || QuantityError::TooLarge { text: text.to_owned() };

    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number_end = unsigned
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (integer.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(malformed());
    }
    let (binary, exponent) = suffix_scale(suffix).ok_or_else(malformed)?;

    // value = digits * 2^binary * 10^(exponent + shift - fraction digits)
    let fraction = fraction.trim_end_matches('0');
    let mut value: u128 = 0;
    for digit in integer.bytes().chain(fraction.bytes()) {
        value = value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u128::from(digit - b'0')))
            .ok_or_else(too_large)?;
    }
    if value == 0 {
        return Ok(0);
    }
    if text.starts_with('-') {
        return Err(QuantityError::Negative { text: text.to_owned() });
    }
    value = value.checked_mul(1 << binary).ok_or_else(too_large)?;
    let digits = i32::try_from(fraction.len()).map_err(|_| malformed())?;
    let power = exponent + shift - digits;
    let factor = 10_u128.checked_pow(power.unsigned_abs());
    let value = match (factor, power >= 0) {
        (Some(factor), true) => value.checked_mul(factor).ok_or_else(too_large)?,
        (Some(factor), false) => value.div_ceil(factor),
        (None, true) => return Err(too_large()),
        // Less than one of anything, and not none of it.
        (None, false) => 1,
    };
    u64::try_from(value).map_err(|_| too_large())
}

/// The suffix as a power of two and a power of ten.
fn suffix_scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            // Far beyond what any quantity may hold; keeps the sums above from wrapping.
            (0, power.clamp(-1000, 1000))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantity(text: &str) -> Quantity {
        Quantity(text.to_owned())
    }

    #[test]
    fn the_spellings_of_kubernetes() {
        for (text, expected) in [
            ("0", 0),
            ("64Mi", 64 << 20),
            ("1.5Gi", 1536 << 20),
            ("4Gi", 4 << 30),
            ("1G", 1_000_000_000),
            ("2e3", 2000),
            ("2E3", 2000),
            ("1E", 1_000_000_000_000_000_000),
            ("+5", 5),
            (".5k", 500),
            ("100m", 1),
            ("1e-30", 1),
            ("-0", 0),
        ] {
            assert_eq!(whole(&quantity(text)), Ok(expected), "{text}");
        }
        assert_eq!(milli(&quantity("250m")), Ok(250));
        assert_eq!(milli(&quantity("2")), Ok(2000));
    }

    #[test]
    fn what_is_refused() {
        assert!(matches!(whole(&quantity("-1")), Err(QuantityError::Negative { .. })));
        assert!(matches!(whole(&quantity("1e99")), Err(QuantityError::TooLarge { .. })));
        assert!(matches!(whole(&quantity("99999999999Ei")), Err(QuantityError::TooLarge { .. })));
        for text in ["", ".", "1.2.3", "Gi", "1GiB", "1 Gi", "--1", "1e", "1e+-2"] {
            assert!(matches!(whole(&quantity(text)), Err(QuantityError::Malformed { .. })), "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,40}", numeric in "[+-]?[0-9.]{0,45}[eEkKmMGTi0-9-]{0,5}") {
            let _ = whole(&quantity(&text));
            let _ = milli(&quantity(&numeric));
        }

        #[test]
        fn integers_are_themselves(value: u64) {
            prop_assert_eq!(whole(&quantity(&value.to_string())), Ok(value));
        }
    }
}
