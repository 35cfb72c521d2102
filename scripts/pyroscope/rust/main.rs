//! A function that is busy for three seconds while Pyroscope's client samples it and pushes to the address in the first argument.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pyroscope::backend::{BackendConfig, PprofConfig, pprof_backend};
use pyroscope::pyroscope::PyroscopeAgentBuilder;

#[inline(never)]
fn rust_is_busy(end: Instant) -> u32 {
    let mut n: u32 = 0;
    while Instant::now() < end {
        for i in 0..100_000 {
            n = black_box(n.wrapping_mul(31).wrapping_add(i));
        }
    }
    n
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("no address")?;
    let backend = pprof_backend(PprofConfig::default(), BackendConfig::default());
    let agent = PyroscopeAgentBuilder::new(address, "clients.rust", 100, "pyroscope-rs", "0", backend)
        .tags(vec![("region", "north")])
        .build()?;
    let running = agent.start()?;
    println!("{}", rust_is_busy(Instant::now() + Duration::from_secs(3)));
    running.stop()?.shutdown();
    Ok(())
}
