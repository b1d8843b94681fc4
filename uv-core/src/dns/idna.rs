//! Names of hosts in ASCII: each label that has other letters becomes `xn--` and its
//! Punycode (RFC 3492).

use std::borrow::Cow;
use std::io;

use super::invalid;

/// The longest name that a resolver takes.
const MAX_LENGTH: usize = 255;

/// What ends a label: the full stop, and those that other scripts write.
const DOTS: [char; 4] = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'];

/// A host's name as resolvers take it.
pub(super) fn to_ascii(host: &str) -> io::Result<String> {
    let ascii = if host.is_ascii() { Cow::Borrowed(host) } else { Cow::Owned(encode(host)?) };
    if ascii.is_empty() {
        return Err(invalid("the name of the host is empty"));
    }
    if ascii.len() > MAX_LENGTH {
        return Err(invalid("the name of the host is longer than 255 bytes"));
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
        // Nothing longer is of use, and nobody should pay for it.
        if ascii.len() > MAX_LENGTH {
            return Err(too_long());
        }
    }
    Ok(ascii)
}

fn too_long() -> io::Error {
    invalid("the name of the host is longer than 255 bytes")
}

// The parameters of RFC 3492, section 5.
const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const INITIAL_BIAS: u32 = 72;
const INITIAL_N: u32 = 0x80;

/// Appends a label in Punycode. `None` if it is longer than any name can be.
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
        // The smallest letter that is not handled yet.
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

/// Appends a number of variable length: digits that say themselves which is the last.
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
    fn becomes(host: &str, ascii: &str) {
        assert_eq!(to_ascii(host).unwrap(), ascii);
    }

    #[test]
    fn ascii_stays_as_it_is() {
        for host in ["localhost", "EXAMPLE.com", "a..b", "trailing.", "::1%eth0", "xn--bcher-kva"] {
            becomes(host, host);
        }
    }

    #[test]
    fn known_names() {
        becomes("bücher.example", "xn--bcher-kva.example");
        becomes("ü.ü", "xn--tda.xn--tda");
        becomes("mañana.com", "xn--maana-pta.com");
        becomes("ñ", "xn--ida");
        becomes("café.com", "xn--caf-dma.com");
        becomes("☃-⌘.com", "xn----dqo34k.com");
        becomes("☃.net", "xn--n3h.net");
        becomes("例え.テスト", "xn--r8jz45g.xn--zckzah");
        becomes("königsgäßchen", "xn--knigsgchen-b4a3dun");
        becomes("😉", "xn--n28h");
    }

    /// The samples of RFC 3492, section 7.1, in lower case or as this encoder writes them.
    #[test]
    fn samples_of_the_rfc() {
        becomes("ليهمابتكلموشعربي؟", "xn--egbpdaj6bu4bxfgehfvwxn");
        becomes("他们为什么不说中文", "xn--ihqwcrb4cv8a8dqg056pqjye");
        becomes("他們爲什麽不說中文", "xn--ihqwctvzc91f659drss3x8bo0yb");
        becomes("למההםפשוטלאמדבריםעברית", "xn--4dbcagdahymbxekheh6e0a7fei0b");
        becomes("почемужеонинеговорятпорусски", "xn--b1abfaaepdrnnbgefbadotcwatmq2g4l");
        becomes(
            "TạisaohọkhôngthểchỉnóitiếngViệt",
            "xn--TisaohkhngthchnitingVit-kjcr8268qyxafd2f1b9g",
        );
        becomes("3年B組金八先生", "xn--3B-ww4c5e180e575a65lsy2b");
        becomes("安室奈美恵-with-SUPER-MONKEYS", "xn---with-SUPER-MONKEYS-pc58ag80a8qai00g7n9n");
        becomes("Hello-Another-Way-それぞれの場所", "xn--Hello-Another-Way--fc4qua05auwb3674vfr0b");
        becomes("ひとつ屋根の下2", "xn--2-u9tlzr9756bt3uc0v");
        becomes("MajiでKoiする5秒前", "xn--MajiKoi5-783gue6qz075azm5e");
        becomes("パフィーdeルンバ", "xn--de-jg4avhby1noc0d");
        becomes("そのスピードで", "xn--d9juau41awczczp");
    }

    #[test]
    fn every_dot_ends_a_label() {
        becomes("ü。ü．ü｡com", "xn--tda.xn--tda.xn--tda.com");
        becomes("a。b", "a.b");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for host in [String::new(), "a".repeat(256), "ü".repeat(10_000), "ü.".repeat(50)] {
            let error = to_ascii(&host).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{host}");
        }
        assert_eq!(to_ascii(&"a".repeat(255)).unwrap().len(), 255);
    }
}
