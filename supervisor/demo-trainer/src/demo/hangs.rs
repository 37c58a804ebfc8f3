//! Ranks that do not get on, each in its own way.

use std::thread;
use std::time::{Duration, Instant};

use super::console::say;
use super::failure::Failure;

/// Sleeps.
pub fn sleep() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Computes for thirty milliseconds in a hundred: what runs beside it should still get its share.
pub fn spin() -> ! {
    compute(Duration::from_millis(30))
}

/// Computes for five milliseconds in a hundred.
pub fn trickle() -> ! {
    compute(Duration::from_millis(5))
}

fn compute(of_a_hundred: Duration) -> ! {
    loop {
        let began = Instant::now();
        while began.elapsed() < of_a_hundred {
            std::hint::spin_loop();
        }
        thread::sleep(Duration::from_millis(100).saturating_sub(of_a_hundred));
    }
}

/// Prints a line every second.
pub fn beat() -> Result<(), Failure> {
    loop {
        say("still alive")?;
        thread::sleep(Duration::from_secs(1));
    }
}
