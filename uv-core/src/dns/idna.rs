//! Conversion of host names to ASCII: a label with other characters becomes `xn--` and its Punycode
//! (RFC 3492).

use std::borrow::Cow;
use std::io;

use super::invalid;

/// The maximal length of a name for resolvers.
const MAX_LENGTH: usize = 255;

/// The characters that end a label: the full stop and its equivalents in other scripts.
const DOTS: [char; 4] = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'];

/// Converts a host name to the form that resolvers accept: labels with other characters than ASCII
/// become `xn--` and their Punycode (RFC 3492), as lookups do by themselves.
///
/// ```
/// use uv_core::dns::to_ascii;
///
/// assert_eq!(to_ascii("bücher.example")?, "xn--bcher-kva.example");
/// assert_eq!(to_ascii("example.org")?, "example.org");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `InvalidInput` for an empty name or one longer than 255 bytes.
pub fn to_ascii(host: &str) -> io::Result<String> {
    let ascii = if host.is_ascii() { Cow::Borrowed(host) } else { Cow::Owned(encode(host)?) };
    if ascii.is_empty() {
        return Err(invalid("the host name is empty"));
    }
    if ascii.len() > MAX_LENGTH {
        return Err(invalid("the host name is longer than 255 bytes"));
    }
    Ok(ascii.into_owned())
}

fn encode(host: &str) -> io::Result<String> {
    let mut ascii = String::with_capacity(host.len() + 8);
    for (index, label) in host.split(DOTS).enumerate() {
        if index > 0 {
            ascii.push('.');
        }
        if label.is_ascii() {
            ascii.push_str(label);
        } else {
            ascii.push_str("xn--");
            punycode(label, &mut ascii).ok_or_else(too_long)?;
        }
        // Stop early: encoding a longer name would take quadratic time.
        if ascii.len() > MAX_LENGTH {
            return Err(too_long());
        }
    }
    Ok(ascii)
}

fn too_long() -> io::Error {
    invalid("the host name is longer than 255 bytes")
}

// The parameters of RFC 3492, section 5.
const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const INITIAL_BIAS: u32 = 72;
const INITIAL_N: u32 = 0x80;

/// Appends a label in Punycode. `None` if it is longer than a name can be.
fn punycode(label: &str, out: &mut String) -> Option<()> {
    if label.chars().nth(MAX_LENGTH).is_some() {
        return None;
    }
    let basic = label.chars().filter(char::is_ascii);
    let basic_count = basic.clone().count() as u32;
    out.extend(basic);
    if basic_count > 0 {
        out.push('-');
    }
    let total = label.chars().count() as u32;
    let (mut n, mut delta, mut bias) = (INITIAL_N, 0u32, INITIAL_BIAS);
    let mut handled = basic_count;
    while handled < total {
        // The smallest code point that is not handled yet.
        let next = label.chars().map(u32::from).filter(|&letter| letter >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(handled + 1)?)?;
        n = next;
        for letter in label.chars().map(u32::from) {
            if letter < n {
                delta = delta.checked_add(1)?;
            } else if letter == n {
                push_number(delta, bias, out);
                bias = adapt(delta, handled + 1, handled == basic_count);
                delta = 0;
                handled += 1;
            }
        }
        delta = delta.checked_add(1)?;
        n += 1;
    }
    Some(())
}

/// Appends a generalized variable-length integer, whose last digit is below its threshold.
fn push_number(number: u32, bias: u32, out: &mut String) {
    let mut rest = number;
    let mut position = BASE;
    loop {
        let threshold = position.saturating_sub(bias).clamp(T_MIN, T_MAX);
        if rest < threshold {
            break;
        }
        out.push(digit(threshold + (rest - threshold) % (BASE - threshold)));
        rest = (rest - threshold) / (BASE - threshold);
        position += BASE;
    }
    out.push(digit(rest));
}

fn digit(value: u32) -> char {
    char::from(if value < 26 { b'a' + value as u8 } else { b'0' + (value - 26) as u8 })
}

fn adapt(delta: u32, count: u32, first: bool) -> u32 {
    let mut delta = if first { delta / DAMP } else { delta / 2 };
    delta += delta / count;
    let mut steps = 0;
    while delta > (BASE - T_MIN) * T_MAX / 2 {
        delta /= BASE - T_MIN;
        steps += BASE;
    }
    steps + (BASE - T_MIN + 1) * delta / (delta + SKEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_encodes(host: &str, ascii: &str) {
        assert_eq!(to_ascii(host).unwrap(), ascii);
    }

    #[test]
    fn ascii_names_are_unchanged() {
        for host in ["localhost", "EXAMPLE.com", "a..b", "trailing.", "::1%eth0", "xn--bcher-kva"] {
            assert_encodes(host, host);
        }
    }

    #[test]
    fn known_names_are_encoded() {
        assert_encodes("bücher.example", "xn--bcher-kva.example");
        assert_encodes("ü.ü", "xn--tda.xn--tda");
        assert_encodes("mañana.com", "xn--maana-pta.com");
        assert_encodes("ñ", "xn--ida");
        assert_encodes("café.com", "xn--caf-dma.com");
        assert_encodes("☃-⌘.com", "xn----dqo34k.com");
        assert_encodes("☃.net", "xn--n3h.net");
        assert_encodes("例え.テスト", "xn--r8jz45g.xn--zckzah");
        assert_encodes("königsgäßchen", "xn--knigsgchen-b4a3dun");
        assert_encodes("😉", "xn--n28h");
    }

    /// The samples of RFC 3492, section 7.1, in lower case or as this encoder writes them.
    #[test]
    fn samples_of_the_rfc_are_encoded() {
        assert_encodes("ليهمابتكلموشعربي؟", "xn--egbpdaj6bu4bxfgehfvwxn");
        assert_encodes("他们为什么不说中文", "xn--ihqwcrb4cv8a8dqg056pqjye");
        assert_encodes("他們爲什麽不說中文", "xn--ihqwctvzc91f659drss3x8bo0yb");
        assert_encodes("למההםפשוטלאמדבריםעברית", "xn--4dbcagdahymbxekheh6e0a7fei0b");
        assert_encodes("почемужеонинеговорятпорусски", "xn--b1abfaaepdrnnbgefbadotcwatmq2g4l");
        assert_encodes(
            "TạisaohọkhôngthểchỉnóitiếngViệt",
            "xn--TisaohkhngthchnitingVit-kjcr8268qyxafd2f1b9g",
        );
        assert_encodes("3年B組金八先生", "xn--3B-ww4c5e180e575a65lsy2b");
        assert_encodes(
            "安室奈美恵-with-SUPER-MONKEYS",
            "xn---with-SUPER-MONKEYS-pc58ag80a8qai00g7n9n",
        );
        assert_encodes(
            "Hello-Another-Way-それぞれの場所",
            "xn--Hello-Another-Way--fc4qua05auwb3674vfr0b",
        );
        assert_encodes("ひとつ屋根の下2", "xn--2-u9tlzr9756bt3uc0v");
        assert_encodes("MajiでKoiする5秒前", "xn--MajiKoi5-783gue6qz075azm5e");
        assert_encodes("パフィーdeルンバ", "xn--de-jg4avhby1noc0d");
        assert_encodes("そのスピードで", "xn--d9juau41awczczp");
    }

    #[test]
    fn every_kind_of_dot_ends_a_label() {
        assert_encodes("ü。ü．ü｡com", "xn--tda.xn--tda.xn--tda.com");
        assert_encodes("a。b", "a.b");
    }

    #[test]
    fn empty_and_long_names_are_refused() {
        for host in [String::new(), "a".repeat(256), "ü".repeat(10_000), "ü.".repeat(50)] {
            let error = to_ascii(&host).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{host}");
        }
        assert_eq!(to_ascii(&"a".repeat(255)).unwrap().len(), 255);
    }
}
