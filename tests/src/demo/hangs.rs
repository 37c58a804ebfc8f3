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

/// Computes.
pub fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Computes for five milliseconds in a hundred.
pub fn trickle() -> ! {
    loop {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        thread::sleep(Duration::from_millis(95));
    }
}

/// Prints a line every second.
pub fn beat() -> Result<(), Failure> {
    loop {
        say("still alive")?;
        thread::sleep(Duration::from_secs(1));
    }
}
