use uv_core::Handle;
use uv_core::{RunMode, Stream, Tcp};

type Loop = uv_core::Loop<Backend>;

pub(super) fn main() -> std::io::Result<()> {
    let mut lp = Loop::open()?;
    lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));

    let server = Tcp::listen_on(&mut lp, "127.0.0.1:0", serve)?;
    let address = server.local_addr(&lp)?.to_string();
    println!("nc {}, on {}", address.replace(':', " "), lp.backend_name());
    let client = Tcp::connect_to(&mut lp, address, |lp, client, result| {
        client.attempt(lp, |lp| {
            result?;
            client.send(lp, "hello");
            client.on_read(lp, |lp, client, bytes| {
                lp.state::<Vec<u8>>().extend_from_slice(bytes);
                client.close(lp)
            })
        });
    });
    client.on_close(&mut lp, move |lp, _| server.close_if_open(lp))?;
    lp.run(RunMode::Default)?;
    assert_eq!(lp.state::<Vec<u8>>(), b"hello");
    Ok(())
}

fn serve(lp: &mut Loop, peer: Tcp) -> std::io::Result<()> {
    peer.on_read(lp, |lp, peer, bytes| {
        match bytes {
            [] => peer.finish(lp), // The peer has ended.
            bytes => peer.send(lp, bytes.to_vec()),
        }
        Ok(())
    })
}
