//! HdrHistogram log files (format 1.3, histograms in the encoding V2), one for each scenario with
//! latencies, for the tools of that format. A contestant is a tag.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::latencies::Latencies;

/// The latencies of one contestant in one scenario, over all rounds.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The suite.
    pub suite: String,
    /// The scenario.
    pub scenario: String,
    /// The contestant.
    pub id: String,
    /// The latencies.
    pub latencies: Latencies,
}

/// Writes the log files to a folder; returns their number.
///
/// # Errors
///
/// Those of writing.
pub fn write(folder: &Path, all: &[Recorded]) -> io::Result<usize> {
    let mut written: Vec<(&str, &str)> = Vec::new();
    for Recorded { suite, scenario, .. } in all {
        if written.contains(&(suite, scenario)) {
            continue;
        }
        written.push((suite, scenario));
        std::fs::create_dir_all(folder)?;
        let same = all.iter().filter(|one| one.suite == *suite && one.scenario == *scenario);
        let name = format!("{}-{}.hlog", word(suite), word(scenario));
        let mut file = BufWriter::new(File::create(folder.join(name))?);
        log(&mut file, &format!("{suite}, {scenario}: nanoseconds"), same)?;
        file.flush()?;
    }
    Ok(written.len())
}

fn log<'a>(
    out: &mut impl Write,
    title: &str,
    all: impl Iterator<Item = &'a Recorded>,
) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    // The maximum of each line is in milliseconds, as common tools expect.
    builder.add_comment(title).with_max_value_divisor(1e6);
    let mut writer = builder.begin_log_with(out, &mut serializer)?;
    for Recorded { id, latencies, .. } in all {
        let tag = word(id);
        let (start, length) = (Duration::ZERO, Duration::ZERO);
        writer
            .write_histogram(latencies.histogram(), start, length, Tag::new(&tag))
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
    }
    Ok(())
}

/// A name without what tags and file names cannot have.
fn word(name: &str) -> String {
    let sign = |sign: char| if sign.is_alphanumeric() || sign == '.' { sign } else { '-' };
    let words: String = name.replace('%', "percent").chars().map(sign).collect();
    words.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn a_log_has_the_latencies_of_each_contestant() {
        let mut latencies = Latencies::default();
        for time in 1..=1_000 {
            latencies.record(1_000 * time);
        }
        let recorded = |id: &str| Recorded {
            suite: "open".into(),
            scenario: "constant, 30 %".into(),
            id: id.into(),
            latencies: latencies.clone(),
        };
        let all = [recorded("uv-core epoll"), recorded("libuv")];
        let mut text = Vec::new();
        log(&mut text, "title", all.iter()).unwrap();
        let mut tags = Vec::new();
        for entry in IntervalLogIterator::new(&text) {
            let LogEntry::Interval(entry) = entry.unwrap() else { continue };
            tags.push(entry.tag().unwrap().as_str().to_string());
            let bytes = base64(entry.encoded_histogram());
            let found: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            assert_eq!(&found, latencies.histogram());
        }
        assert_eq!(tags, ["uv-core-epoll", "libuv"]);
    }

    #[test]
    fn names_are_words() {
        assert_eq!(word("constant, 30 %"), "constant-30-percent");
        assert_eq!(word("64 × 16 KiB × 16"), "64-16-KiB-16");
    }

    /// Decodes the standard alphabet.
    fn base64(text: &str) -> Vec<u8> {
        const SIGNS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
        for sign in text.bytes().filter(|sign| *sign != b'=') {
            let value = SIGNS.iter().position(|one| *one == sign).unwrap();
            (bits, count) = (bits << 6 | value as u32, count + 6);
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count) as u8);
            }
        }
        bytes
    }
}
