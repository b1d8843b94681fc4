//! Every kind of buffer can be written and sent, on every backend.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use uv_core::backends::Auto;
use uv_core::{Handle, IntoIoBuf, IoBuf, Loop, RunMode, Stream, Tcp, Udp, UdpBindFlags};

const TEXT: &[u8; 5] = b"bytes";

/// Something to write to, and the number of buffers that it was given.
struct Target {
    lp: Loop<Auto>,
    tcp: Tcp,
    udp: Udp,
    to: SocketAddr,
    buffers: usize,
}

impl Target {
    /// Writes and sends buffers that `make` makes, in every way.
    fn take<T: IntoIoBuf>(&mut self, make: impl Fn() -> T) {
        let Target { lp, tcp, udp, to, buffers } = self;
        tcp.send(lp, make());
        tcp.write(lp, make(), |_, _, result, buf| came_back(result, &buf)).unwrap();
        tcp.write_with(lp, make(), |_, _, result, buf| came_back(result, &buf));
        udp.send(lp, make(), *to, |_, _, result, buf| came_back(result, &buf)).unwrap();
        *buffers += 1;
    }
}

fn came_back(result: std::io::Result<()>, buf: &impl IoBuf) {
    result.unwrap();
    let pieces: Vec<_> = (0..buf.pieces()).map(|index| buf.piece(index)).collect();
    assert_eq!(pieces.concat(), TEXT);
}

#[test]
fn every_kind_of_buffer_is_sent() {
    for name in Auto::NAMES {
        let Ok(backend) = Auto::named(name) else { continue };
        let mut lp = Loop::new(backend);
        lp.on_error(|_, handle, error| panic!("{handle}: {error}"));
        let ((tcp, far), udp) = (Tcp::pair(&mut lp).unwrap(), Udp::new(&mut lp));
        let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        udp.bind(&mut lp, (Ipv4Addr::LOCALHOST, 0).into(), UdpBindFlags::empty()).unwrap();
        far.on_read(&mut lp, |lp, far, bytes| {
            lp.state::<Vec<u8>>().extend_from_slice(bytes);
            if bytes.is_empty() { far.close(lp) } else { Ok(()) }
        })
        .unwrap();

        let to = receiver.local_addr().unwrap();
        let mut target = Target { lp, tcp, udp, to, buffers: 0 };
        target.take(|| *TEXT); // An array by value.
        target.take(|| TEXT);
        target.take(|| &TEXT[..]);
        target.take(|| "bytes");
        target.take(|| String::from("bytes"));
        target.take(|| TEXT.to_vec());
        target.take(|| Box::<[u8]>::from(*TEXT));
        target.take(|| Box::new(*TEXT));
        target.take(|| Arc::new(TEXT.to_vec()));
        target.take(|| Rc::new(TEXT.to_vec()));
        target.take(|| Arc::<[u8]>::from(*TEXT));
        target.take(|| Rc::<[u8]>::from(*TEXT));
        target.take(|| Arc::new(*TEXT));
        target.take(|| Rc::new(*TEXT));
        target.take(|| ["by", "tes"]);
        target.take(|| vec![b"by".to_vec(), b"tes".to_vec()]);
        #[cfg(feature = "bytes")]
        {
            target.take(|| bytes::Bytes::from_static(TEXT));
            target.take(|| bytes::Bytes::from(b"more bytes".to_vec()).slice(5..));
            target.take(|| bytes::BytesMut::from(&TEXT[..]));
            target.take(|| vec![bytes::Bytes::from("by"), bytes::Bytes::from("tes")]);
        }

        let Target { mut lp, buffers, .. } = target;
        tcp.finish(&mut lp);
        lp.run(RunMode::Default).unwrap();
        assert_eq!(lp.state::<Vec<u8>>(), &TEXT.repeat(3 * buffers), "{name}");
        for _ in 0..buffers {
            let mut datagram = [0; 16];
            let length = receiver.recv(&mut datagram).unwrap();
            assert_eq!(&datagram[..length], TEXT, "{name}");
        }
    }
}

#[cfg(unix)]
#[test]
fn handles_are_passed_with_an_array() -> std::io::Result<()> {
    use uv_core::Pipe;

    let mut lp = Loop::with_default_backend()?;
    let (one, other) = Pipe::pair(&mut lp)?;
    one.enable_passing(&mut lp)?;
    other.enable_passing(&mut lp)?;
    let (near, far) = Tcp::pair(&mut lp)?;
    one.write_with_handles(&mut lp, *b"four", &[near.into()], move |lp, one, result, buffer| {
        result.unwrap();
        assert_eq!(*buffer, *b"four");
        near.close_if_open(lp);
        far.close_if_open(lp);
        one.finish(lp);
    })?;
    other.on_read(&mut lp, |lp, other, bytes| {
        lp.state::<Vec<u8>>().extend_from_slice(bytes);
        if !bytes.is_empty() {
            return other.accept_pending(lp)?.close(lp);
        }
        other.close(lp)
    })?;
    lp.run(RunMode::Default)?;
    assert_eq!(lp.state::<Vec<u8>>(), b"four");
    Ok(())
}
