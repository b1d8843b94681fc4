//! HTTP/1.1 requests and the answer to them, the same code for every server: keep-alive, pipelined,
//! without bodies, as load generators send them.

use std::io;

/// The answer to every request.
pub(crate) const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, world!";

/// The request of the clients, with the headers of a common one. It is longer than the answer, so
/// that a server may answer in the memory of the requests.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the load needs Linux"))]
pub(crate) const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\
    User-Agent: bench/0.1\r\nAccept: text/plain, */*;q=0.8\r\nAccept-Language: en\r\n\
    Connection: keep-alive\r\n\r\n";

/// The maximum length of a request.
const LONGEST: usize = 8 * 1024;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// The beginning of a request whose end has not arrived.
    begun: Vec<u8>,
    answers: Vec<u8>,
}

impl Requests {
    /// The answers to all requests that end in `bytes`.
    ///
    /// # Errors
    ///
    /// `InvalidData` for what is no GET request, and for one that is too long.
    pub(crate) fn answer(&mut self, bytes: &[u8]) -> io::Result<&[u8]> {
        let joined;
        let mut rest = bytes;
        if !self.begun.is_empty() {
            self.begun.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.begun);
            rest = &joined;
        }
        self.answers.clear();
        while let Some(length) = request(rest)? {
            self.answers.extend_from_slice(ANSWER);
            rest = &rest[length..];
        }
        self.begun.extend_from_slice(rest);
        Ok(&self.answers)
    }
}

/// Parses one request; returns its length, or `None` if its end is missing.
fn request(bytes: &[u8]) -> io::Result<Option<usize>> {
    let invalid = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    let mut start = 0;
    for number in 0.. {
        let Some(length) = bytes[start..].iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() > LONGEST { invalid("a request is too long") } else { Ok(None) };
        };
        let line = &bytes[start..start + length];
        let Some(line) = line.strip_suffix(b"\r") else {
            return invalid("a line does not end with CR LF");
        };
        start += length + 1;
        match line {
            [] if number > 0 => return Ok(Some(start)),
            _ if number == 0 => {
                let known = line.starts_with(b"GET /") && line.ends_with(b" HTTP/1.1");
                if !known {
                    return invalid("no GET request of HTTP/1.1");
                }
            }
            _ if !line.contains(&b':') => return invalid("a header without a colon"),
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_whole_in_pieces_and_pipelined() {
        let mut requests = Requests::default();
        assert_eq!(requests.answer(REQUEST).unwrap(), ANSWER);
        let twice = REQUEST.repeat(2);
        for cut in 1..twice.len() {
            let mut answers = requests.answer(&twice[..cut]).unwrap().to_vec();
            answers.extend_from_slice(requests.answer(&twice[cut..]).unwrap());
            assert_eq!(answers, ANSWER.repeat(2), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        for text in ["POST / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", "\r\n"] {
            assert!(Requests::default().answer(text.as_bytes()).is_err(), "{text:?}");
        }
        let endless = vec![b'a'; LONGEST + 1];
        assert!(Requests::default().answer(&endless).is_err());
    }

    #[test]
    fn the_answer_fits_into_the_memory_of_the_request() {
        const { assert!(ANSWER.len() <= REQUEST.len()) };
    }
}
