//! The runs of `docs/contributors/results/simulation.txt`: one process and eight, near and far, on lines
//! that jump, stall and burst.

use crate::{
    line::{Pulse, Route},
    process::{CHECK, Client},
    results::Results,
    time::{MS, Nanos, SECOND},
    world::{Server, World},
};

/// The server of most runs: the times that were measured for a token bucket.
const USUAL: Server = Server {
    call: 10_000,
    key: 1_700,
    jitter: 0.2,
};

/// The shortest round trip: loopback, with the time that a sleeping core takes to wake.
const NEAR: Nanos = 50_000;

const PROCESSES: Nanos = 8;

/// The callers of each of eight processes. All of them together keep the server busy for 7.6 ms, or
/// for 30 ms.
const CALLERS: usize = 512;
const MANY_CALLERS: usize = 2_048;

/// Returns a process that asks during the whole run.
fn client(callers: usize, route: Route) -> Client {
    Client {
        callers,
        route,
        from: 0,
        until: Nanos::MAX,
    }
}

/// Returns a run for some seconds, of which the first one does not count.
fn world(server: Server, clients: Vec<Client>, seconds: Nanos) -> World {
    World {
        server,
        clients,
        from: SECOND,
        until: (1 + seconds) * SECOND,
    }
}

/// Returns the run of one process.
fn one(server: Server, callers: usize, route: Route) -> World {
    world(server, vec![client(callers, route)], 4)
}

/// Returns processes at these distances, which begin a tenth of a second after one another.
fn together(round_trips: &[Nanos], callers: usize) -> World {
    let client = |(at, &far): (Nanos, &Nanos)| Client {
        from: at * SECOND / 10,
        ..client(callers, Route::new(far))
    };
    world(USUAL, (0..).zip(round_trips).map(client).collect(), 9)
}

/// Returns processes of which one more begins each second, and which end in the same order.
fn coming_and_going() -> World {
    let client = |at| Client {
        from: at * SECOND,
        until: (PROCESSES + 1 + at) * SECOND,
        ..client(CALLERS, Route::new(MS))
    };
    World {
        server: USUAL,
        clients: (0..PROCESSES).map(client).collect(),
        from: 0,
        until: (2 * PROCESSES + 1) * SECOND,
    }
}

/// Returns the run of a process whose round trip is 1 ms, then 40 ms, and 1 ms again.
fn jumping(callers: usize) -> World {
    let round_trips = vec![(0, MS), (3 * SECOND, 40 * MS), (6 * SECOND, MS)];
    let route = Route {
        round_trips,
        ..Route::new(MS)
    };
    World {
        server: USUAL,
        clients: vec![client(callers, route)],
        from: 0,
        until: 9 * SECOND,
    }
}

/// Returns a server that decides so many keys in a millisecond.
fn server(keys_per_ms: Nanos) -> Server {
    Server {
        call: 0,
        key: MS / keys_per_ms,
        jitter: 0.2,
    }
}

/// Returns the decisions per second that the processes could reach.
fn ideal(world: &World) -> f64 {
    let of = |client: &Client| {
        // An empty system: a call with few keys, and the time of the process.
        let empty = client.route.round_trip(0) + world.server.call + world.server.key + CHECK;
        (client.callers as f64 * SECOND as f64 / empty as f64).min(SECOND as f64 / CHECK as f64)
    };
    world
        .clients
        .iter()
        .map(of)
        .sum::<f64>()
        .min(world.server.capacity())
}

/// Returns every run with its title.
fn all() -> Vec<(String, World)> {
    let ms = |round_trip: Nanos| round_trip as f64 / MS as f64;
    let mut runs = Vec::new();
    for far in [NEAR, MS, 5 * MS, 20 * MS] {
        for callers in [64, 256, 1_024, 4_096] {
            runs.push((
                format!("one, {} ms, {callers} callers", ms(far)),
                one(USUAL, callers, Route::new(far)),
            ));
        }
    }
    for (far, callers) in [
        (NEAR, CALLERS),
        (NEAR, MANY_CALLERS),
        (MS, CALLERS),
        (MS, MANY_CALLERS),
        (20 * MS, CALLERS),
    ] {
        let processes = [far; PROCESSES as usize];
        runs.push((
            format!("eight, {} ms, {callers} callers each", ms(far)),
            together(&processes, callers),
        ));
    }
    let mixed = [NEAR, NEAR, MS, MS, 5 * MS, 5 * MS, 20 * MS, 20 * MS];
    runs.push((
        format!("eight, two each at 0.05, 1, 5 and 20 ms, {CALLERS} callers each"),
        together(&mixed, CALLERS),
    ));
    runs.push((
        "eight that begin and end, one each second, 1 ms".to_owned(),
        coming_and_going(),
    ));
    for callers in [64, 1_024] {
        runs.push((
            format!("one, 1 ms, 40 ms and 1 ms again, {callers} callers"),
            jumping(callers),
        ));
    }
    let stall = Some(Pulse {
        period: SECOND,
        length: 30 * MS,
    });
    for (title, route) in [
        (
            "answers in bursts, each 5 ms",
            Route {
                bursts: Some(5 * MS),
                ..Route::new(MS)
            },
        ),
        (
            "a stall of 30 ms each second",
            Route {
                stall,
                ..Route::new(MS)
            },
        ),
        (
            "a jitter of 1 ms on average",
            Route {
                jitter: MS,
                ..Route::new(MS)
            },
        ),
    ] {
        runs.push((
            format!("one, 1 ms, 1024 callers, {title}"),
            one(USUAL, 1_024, route),
        ));
    }
    for keys_per_ms in [20, 200, 1_000] {
        for far in [NEAR, 5 * MS] {
            let title = format!(
                "one, {} ms, {CALLERS} callers, {keys_per_ms} keys in a ms",
                ms(far)
            );
            runs.push((title, one(server(keys_per_ms), CALLERS, Route::new(far))));
        }
    }
    runs
}

/// Prints the table of the page.
pub(crate) fn print() {
    println!(
        "| run | decisions/s | of the ideal | fairness | wait at the server, mean and p99 ms | p50, p99 ms | late |"
    );
    for (title, world) in all() {
        let ideal = ideal(&world);
        let results = world.run();
        let (rate, fairness) = (results.rate(), results.fairness());
        let Results {
            wait_ms,
            wait_p99_ms,
            p50_ms,
            p99_ms,
            late,
            ..
        } = results;
        println!(
            "| {title} | {:.1} k | {:.0} % | {fairness:.2} | {wait_ms:.2}, {wait_p99_ms:.2} | {p50_ms:.2}, {p99_ms:.2} | {:.2} % |",
            rate / 1e3,
            100.0 * rate / ideal,
            100.0 * late
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a process with many callers, and returns its results and what it could reach.
    fn many_callers(far: Nanos) -> (Results, f64) {
        let world = one(USUAL, 4_096, Route::new(far));
        (world.run(), ideal(&world))
    }

    #[test]
    fn the_window_fills_a_far_line() {
        let (results, ideal) = many_callers(20 * MS);
        assert!(
            results.rate() > 0.8 * ideal,
            "{} of {ideal}",
            results.rate()
        );
        assert!(results.late < 0.01, "late: {}", results.late);
    }

    #[test]
    fn the_window_keeps_the_wait_at_a_near_server_short() {
        let (results, ideal) = many_callers(NEAR);
        assert!(
            results.rate() > 0.8 * ideal,
            "{} of {ideal}",
            results.rate()
        );
        assert!(results.wait_p99_ms < 3.0, "{} ms", results.wait_p99_ms);
    }

    #[test]
    fn no_rate_is_above_the_ideal() {
        for far in [NEAR, 5 * MS] {
            let world = one(USUAL, 64, Route::new(far));
            let (rate, ideal) = (world.run().rate(), ideal(&world));
            assert!(rate <= 1.05 * ideal, "{rate} of {ideal}");
        }
    }

    #[test]
    fn eight_processes_at_one_distance_share_fairly_and_fill_the_server() {
        let results = together(&[MS; PROCESSES as usize], CALLERS).run();
        assert!(results.fairness() > 0.95, "fairness {}", results.fairness());
        assert!(
            results.rate() > 0.9 * USUAL.capacity(),
            "{} of {}",
            results.rate(),
            USUAL.capacity()
        );
        assert!(results.late < 0.001, "late: {}", results.late);
    }

    #[test]
    fn each_run_gives_the_same_figures() {
        let run = || together(&[MS, 5 * MS], CALLERS).run().course;
        assert_eq!(run(), run());
    }

    #[test]
    fn a_round_trip_that_shortens_again_is_used_again() {
        let course = jumping(1_024).run().course;
        let sum = |part: &[usize]| part.iter().sum::<usize>() as f64 / part.len() as f64;
        let (before, after) = (sum(&course[50..150]), sum(&course[350..]));
        assert!(
            after > 0.9 * before,
            "{after} after the jump, {before} before"
        );
    }

    #[test]
    fn a_slow_server_is_not_flooded() {
        let of = |callers, far| world(server(20), vec![client(callers, Route::new(far))], 2).run();
        // 1024 keys take it 51 ms. Most of them have to wait in the process.
        let wait = of(1_024, 20 * MS).wait_p99_ms;
        assert!(wait < 35.0, "{wait} ms");
        let late = of(512, NEAR).late;
        assert!(late < 0.001, "late: {late}");
    }
}
