//! Runs one of the programs of this package: `cargo run -p ecosystem -- https`.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn main() -> std::io::Result<()> {
    use ecosystem::{http, https, inside_smol, inside_tokio, web_framework, websocket};
    use uv_async::LoopExt;
    use uv_core::Loop;
    use uv_core::backends::Auto;

    const PROGRAMS: [&str; 6] =
        ["http", "https", "inside_smol", "inside_tokio", "web_framework", "websocket"];
    let name = std::env::args().nth(1).unwrap_or_default();
    // The backend is that of the environment: `UV_BACKEND=uring`.
    let mut lp = Loop::new(Auto::new()?);
    match name.as_str() {
        "inside_smol" => return inside_smol::run(&mut lp).map(|read| println!("{read:?}")),
        "inside_tokio" => return inside_tokio::run(&mut lp).map(|read| println!("{read:?}")),
        _ => {}
    }
    lp.block_on(async |rt| match name.as_str() {
        "http" => http::demo(&rt).await,
        "https" => https::demo(&rt).await,
        "web_framework" => web_framework::demo(&rt).await,
        "websocket" => websocket::demo(&rt).await,
        _ => {
            println!("usage: ecosystem {}", PROGRAMS.join("|"));
            Ok(())
        }
    })?
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn main() {
    println!("these programs are built for Linux with glibc alone");
}
