//! Reading and writing.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use uv_core::fs;

use super::{CREATE, READ, WRITE, ask, open};
use crate::support::files::{Directory, file_of};
use crate::support::loops::new_loop;
use crate::{Lab, Verdict};

/// Written data can be read through any other open of the file.
pub fn written_data_can_be_read(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.path("file");
    let file = open(&mut lp, &path, CREATE);
    let (count, text) = ask(&mut lp, fs::write(&file, String::from("hello")));
    assert_eq!((count.expect("a write"), &*text), (5, "hello"), "all, and the buffer");
    ask(&mut lp, fs::close(file)).expect("a file to close");
    assert_eq!(std::fs::read(&path).expect("the file"), b"hello");
    let file = open(&mut lp, &path, READ);
    let (count, bytes) = ask(&mut lp, fs::read(&file, vec![b'-'; 8]));
    assert_eq!((count.expect("a read"), &*bytes), (5, &b"hello---"[..]));
    Ok(())
}

/// Without an offset the position moves; with an offset it does not.
pub fn an_offset_does_not_move_the_position(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let file = open(&mut lp, &dir.file("file", "0123456789"), CREATE);
    let mut reads = |operation| {
        let (count, bytes): (io::Result<usize>, Vec<u8>) = ask(&mut lp, operation);
        String::from_utf8(bytes[..count.expect("a read")].to_vec()).expect("digits")
    };
    assert_eq!(reads(fs::read(&file, vec![0; 2])), "01");
    assert_eq!(reads(fs::read_at(&file, vec![0; 3], 7)), "789", "from there");
    assert_eq!(reads(fs::read(&file, vec![0; 2])), "23", "from where it was");
    let (count, _) = ask(&mut lp, fs::write_at(&file, "ab", 8));
    assert_eq!(count.expect("a write"), 2);
    let (count, _) = ask(&mut lp, fs::write(&file, "x"));
    assert_eq!(count.expect("a write"), 1);
    assert_eq!(std::fs::read(dir.path("file")).expect("the file"), b"0123x567ab");
    Ok(())
}

/// Reads at the end of a file and beyond it are empty, which is not an error.
pub fn reads_beyond_the_end_are_empty(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let file = open(&mut lp, &dir.file("file", "abc"), READ);
    for offset in [3, 4, 1 << 20, i64::MAX as u64 - 100] {
        let (count, bytes) = ask(&mut lp, fs::read_at(&file, vec![7; 4], offset));
        assert_eq!((count.expect("no error"), bytes), (0, vec![7; 4]), "at {offset}");
    }
    let (count, _) = ask(&mut lp, fs::read_at(&file, vec![0; 9], 2));
    assert_eq!(count.expect("a read"), 1, "the available bytes");
    Ok(())
}

/// Offsets beyond 4 GiB work, and the gap reads as zeros. An offset beyond the limit of files is an
/// error.
pub fn offsets_may_be_huge(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let file = open(&mut lp, &dir.path("file"), CREATE);
    let far = (1 << 33) + 5;
    let (count, _) = ask(&mut lp, fs::write_at(&file, "far", far));
    assert_eq!(count.expect("a file with a hole"), 3);
    assert_eq!(ask(&mut lp, fs::fstat(&file)).expect("a file").size, far + 3);
    let (count, bytes) = ask(&mut lp, fs::read_at(&file, vec![7; 5], far - 2));
    assert_eq!((count.expect("a read"), &*bytes), (5, &b"\0\0far"[..]));
    for offset in [1 << 63, u64::MAX] {
        let (count, bytes) = ask(&mut lp, fs::read_at(&file, vec![7; 4], offset));
        assert_eq!(count.expect_err("no such place").kind(), ErrorKind::InvalidInput);
        assert_eq!(bytes, [7; 4], "the buffer is returned");
        let (count, _) = ask(&mut lp, fs::write_at(&file, "x", offset));
        assert_eq!(count.expect_err("no such place").kind(), ErrorKind::InvalidInput);
    }
    Ok(())
}

/// The buffers of a list are filled in order.
pub fn buffer_lists_are_filled_in_order(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let file = open(&mut lp, &dir.file("file", "0123456789"), READ);
    let lists = [vec![vec![b'-'; 3], vec![], vec![b'-'; 4]], vec![vec![b'-'; 1]; 9]];
    for (list, expected) in lists.into_iter().zip(["0123456", "012345678"]) {
        let total: usize = list.iter().map(Vec::len).sum();
        let (count, list) = ask(&mut lp, fs::read_at(&file, list, 0));
        assert_eq!(count.expect("a read"), total);
        assert_eq!(list.concat(), expected.as_bytes());
    }
    let (count, list) = ask(&mut lp, fs::read_at(&file, [vec![b'-'; 8], vec![b'-'; 8]], 0));
    assert_eq!(count.expect("a read"), 10);
    assert_eq!(list.concat(), b"0123456789------", "the rest is unchanged");
    Ok(())
}

/// A list with more buffers than a system call accepts is written completely, in order.
pub fn long_buffer_lists_are_written_completely(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    for (name, offset) in [("moving", None), ("placed", Some(3))] {
        let path = dir.path(name);
        let file = open(&mut lp, &path, CREATE);
        let list: Vec<String> = (0..2_500).map(|number| format!("{number},")).collect();
        let expected = list.concat();
        let write = match offset {
            Some(offset) => fs::write_at(&file, list, offset),
            None => fs::write(&file, list),
        };
        let (count, _) = ask(&mut lp, write);
        assert_eq!(count.expect("a write"), expected.len());
        let written = std::fs::read_to_string(&path).expect("the file");
        assert!(written[offset.unwrap_or(0) as usize..] == *expected, "{name}: in order");
    }
    Ok(())
}

/// One write has more than two gigabytes, which kernels accept in parts.
pub fn more_than_two_gigabytes_in_one_write(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    if !cfg!(any(target_os = "linux", windows)) {
        // FreeBSD 14 has this limit for devices only, Apple's systems for every file.
        let why = "the kernel refuses to write more than INT_MAX bytes to the null device (EINVAL)";
        return Err(crate::Skip::because(why));
    }
    let nowhere = if cfg!(windows) { "NUL" } else { "/dev/null" };
    let file = open(&mut lp, nowhere.as_ref(), WRITE);
    let piece: Arc<[u8]> = vec![0; 32 << 20].into();
    let list = vec![piece; 80];
    let (count, list) = ask(&mut lp, fs::write(&file, list));
    assert_eq!(count.expect("a write to nowhere"), 80 * (32 << 20));
    assert_eq!(list.len(), 80);
    Ok(())
}

/// Empty reads and writes are not errors, and do not move the position.
pub fn empty_buffers_transfer_nothing(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let file = open(&mut lp, &dir.file("file", "abc"), CREATE);
    assert_eq!(ask(&mut lp, fs::write(&file, "")).0.expect("nothing"), 0);
    assert_eq!(ask(&mut lp, fs::write(&file, Vec::<String>::new())).0.expect("nothing"), 0);
    assert_eq!(ask(&mut lp, fs::write_at(&file, ["", "", "", "", "", ""], 1)).0.expect("none"), 0);
    assert_eq!(ask(&mut lp, fs::read(&file, Vec::<u8>::new())).0.expect("nothing"), 0);
    let (count, bytes) = ask(&mut lp, fs::read(&file, vec![0; 3]));
    assert_eq!((count.expect("a read"), &*bytes), (3, &b"abc"[..]), "unchanged");
    Ok(())
}

/// A file opened to append is written at its end, wherever it was read.
pub fn appending_goes_to_the_end(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.file("file", "one");
    let file = open(&mut lp, &path, READ.append(true));
    assert_eq!(ask(&mut lp, fs::read(&file, vec![0; 1])).0.expect("a read"), 1);
    assert_eq!(ask(&mut lp, fs::write(&file, " two")).0.expect("a write"), 4);
    assert_eq!(std::fs::read(&path).expect("the file"), b"one two");
    Ok(())
}

/// A write that the kernel accepts in parts continues until all bytes are written.
pub fn short_writes_are_continued(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let content: Vec<u8> = (0..1 << 20).map(|number: u32| number as u8).collect();
    let expected = content.clone();
    let thread = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).map(|_| all)
    });
    let file = file_of(writer);
    // In two slices, so that the parts begin anywhere in either.
    let (first, second) = content.split_at(100_001);
    let (count, _) = ask(&mut lp, fs::write(&file, [first.to_vec(), second.to_vec()]));
    assert_eq!(count.expect("a pipe that is read"), 1 << 20);
    ask(&mut lp, fs::close(file)).expect("the pipe to close");
    let read = thread.join().expect("a reader").expect("the written data");
    assert!(read == expected, "in order, and whole");
    Ok(())
}

/// A failed operation returns its buffer unchanged.
pub fn failed_operations_return_their_buffers(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.file("file", "abc");
    let (to_read, to_write) = (open(&mut lp, &path, READ), open(&mut lp, &path, WRITE));
    let buffer = vec![7; 100];
    let address = buffer.as_ptr();
    let (result, buffer) = ask(&mut lp, fs::write(&to_read, buffer));
    assert!(result.is_err(), "a file that was opened to be read");
    let (result, buffer) = ask(&mut lp, fs::read_at(&to_write, buffer, 0));
    assert!(result.is_err(), "a file that was opened to be written");
    assert_eq!((buffer.as_ptr(), buffer), (address, vec![7; 100]));
    assert_eq!(std::fs::read(&path).expect("the file"), b"abc");
    Ok(())
}

/// A file is truncated and extended, and synced with and without its metadata.
pub fn files_are_truncated_and_synced(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.file("file", "abcdef");
    let file = open(&mut lp, &path, CREATE);
    ask(&mut lp, fs::ftruncate(&file, 2)).expect("a shorter file");
    assert_eq!(std::fs::read(&path).expect("the file"), b"ab");
    ask(&mut lp, fs::ftruncate(&file, 4)).expect("a longer file");
    assert_eq!(std::fs::read(&path).expect("the file"), b"ab\0\0");
    ask(&mut lp, fs::fsync(&file)).expect("a file to flush");
    ask(&mut lp, fs::fdatasync(&file)).expect("a file to flush");
    let file = open(&mut lp, &path, READ);
    assert!(ask(&mut lp, fs::ftruncate(&file, 1)).is_err(), "opened to be read");
    Ok(())
}
