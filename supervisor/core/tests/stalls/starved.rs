//! A machine that has no core for a run: it is slow, and no hang.

use super::Run;
use super::drawn::{Random, TRAINERS, Traces, WINDOW};

#[test]
fn a_run_that_gets_no_core_is_left_alone() {
    let traces = Traces::read(&TRAINERS[0], "one_sleeps");
    for (wait_ms, is_ended) in [(WINDOW * 99 / 100, false), (0, true)] {
        let random = &mut Random(7);
        let mut run = Run::new(&traces, random);
        let until = run.limit() + 300_000;
        let ended = run.goes_on(until, false, |_| {
            let mut window = traces.healthy(random);
            for pulse in &mut window.pulses {
                pulse.wait_ms = wait_ms;
                for seen in [
                    &mut pulse.cpu_ms,
                    &mut pulse.switches,
                    &mut pulse.faults,
                    &mut pulse.bytes,
                ] {
                    *seen /= 1000;
                }
            }
            window
        });
        assert_eq!(ended.is_some(), is_ended, "{ended:?}");
    }
}
