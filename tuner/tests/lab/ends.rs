//! VMs that end at a bad moment.

use crate::support::{Lab, Stat, queues, tuner_output, until};

#[test]
fn while_it_is_measured() {
    let stat = Stat::start();
    let mut lab = Lab::open(&["--mode", "bidir", "--seconds", "60"]);
    let pid = lab.pid();
    lab.go();
    until("traffic is on", || {
        stat.queues(&pid).values().any(|q| q["packets"] != 0)
    });
    lab.process().signal(libc::SIGKILL);
    drop(lab);
    // The last figures are marked, then the queues are gone, and stat lives on.
    let mut ended = false;
    until("its queues are gone", || {
        let document = stat.process().next().expect("stat ended with the VM");
        let found = queues(&document, &pid);
        ended |= found.values().any(|q| q["ended"] == true);
        found.is_empty()
    });
    assert!(ended, "no queue was marked as ended");
    // A later VM, likely at the same kernel address, starts from nothing.
    let mut lab = Lab::open(&["--mode", "txburst", "--burst", "1", "--packets", "100"]);
    let result = lab.run();
    let now = stat.queues(&lab.pid());
    let (_, tx) = now.iter().find(|((_, d), _)| d == "tx").unwrap();
    assert_eq!(tx["totals"]["packets"], result["pairs"][0]["tx"]["packets"]);
    lab.close();
}

#[test]
fn before_it_is_set() {
    let lab = Lab::open(&["--mode", "idle"]);
    let pid = lab.pid();
    lab.process().signal(libc::SIGKILL);
    drop(lab);
    let output = tuner_output(&["set", &pid, "--busyloop-rx", "50"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is called"), "{said}");
}

#[test]
fn while_it_is_set() {
    use std::time::Duration;
    use vhost_tuner::inspect::Kernel;
    use vhost_tuner::inventory::{Inventory, Target};
    use vhost_tuner::knob::{Change, set};
    use vhost_tuner::probe::DeviceLister;

    let kernel = Kernel::inspect();
    let mut lister = DeviceLister::new(&kernel).unwrap();
    let mut refused = 0;
    for round in 0..20u64 {
        let mut lab = Lab::open(&["--mode", "bidir", "--seconds", "60"]);
        lab.go();
        let inventory = Inventory::from_records(&lister.list().unwrap());
        let device = Target(lab.pid()).resolve(&inventory).unwrap()[0].clone();
        let process = lab.pid().parse::<i32>().unwrap();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(round * 700));
            // SAFETY: a plain system call on a child that is not reaped yet.
            unsafe { libc::kill(process, libc::SIGKILL) };
        });
        let change = Change {
            rx: Some(30),
            tx: Some(40),
        };
        // Either it was in time, or it says that the process ended.
        for _ in 0..100 {
            if let Err(why) = set(&device, change, &mut lister) {
                let said = why.to_string();
                assert!(said.contains("ended"), "{said}");
                refused += 1;
                break;
            }
        }
        killer.join().unwrap();
    }
    assert_eq!(refused, 20, "rounds in which the process ended first");
}
