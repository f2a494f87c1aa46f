use super::super::state::{Form, Livepatch, Parameters};
use super::*;

const OURS: Parameters = Parameters {
    tx_batched: Some(64),
    poll_peer: Some(true),
};

fn stock() -> Facts {
    Facts {
        release: "6.1.0".to_owned(),
        modules: true,
        vhost_net: Form::Loaded,
        references: Some(0),
        zero_copy: Some(false),
        livepatch_supported: true,
        privileged: true,
        ..Facts::default()
    }
}

fn replaced() -> Facts {
    Facts {
        parameters: OURS,
        ..stock()
    }
}

fn patched(enabled: bool, transition: bool) -> Facts {
    Facts {
        livepatch: Some(Livepatch {
            enabled,
            transition,
        }),
        livepatch_module: true,
        ..stock()
    }
}

fn good() -> Candidate {
    Candidate::Found {
        path: PathBuf::from("/m/x.ko"),
        signed: false,
        problem: None,
    }
}

fn user(vm: &str, pid: i32, fd: i32) -> User {
    User {
        vm: vm.to_owned(),
        vmm: "qemu",
        pid,
        fd,
    }
}

fn says(refusal: &Refusal, words: &[&str]) {
    let text = refusal.to_string();
    for word in words {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_free_stock_module_may_be_replaced_and_patched() {
    assert_eq!(load(&stock(), &good()), Ok(Go::Ahead));
    assert_eq!(livepatch(&stock(), &good()), Ok(Go::Ahead));
    assert_eq!(revert(&stock()), Ok(Go::Already));
}

#[test]
fn a_module_that_is_not_loaded_may_be_loaded_and_not_patched() {
    let absent = Facts {
        vhost_net: Form::Absent,
        references: None,
        zero_copy: None,
        ..stock()
    };
    assert_eq!(load(&absent, &good()), Ok(Go::Ahead));
    let why = livepatch(&absent, &good()).unwrap_err();
    assert_eq!(why, Refusal::NotLoaded);
    assert!(!why.unable());
    assert_eq!(revert(&absent), Ok(Go::Already));
}

#[test]
fn what_is_done_is_not_done_again_even_without_rights() {
    let mut facts = replaced();
    facts.privileged = false;
    facts.users = vec![user("web", 1, 2)];
    assert_eq!(load(&facts, &good()), Ok(Go::Already));
    let mut facts = patched(true, false);
    facts.privileged = false;
    assert_eq!(livepatch(&facts, &good()), Ok(Go::Already));
}

#[test]
fn running_vms_keep_it_from_being_replaced_and_not_from_being_patched() {
    let mut facts = stock();
    facts.users = vec![
        user("web", 100, 30),
        user("web", 100, 31),
        user("db", 200, 7),
    ];
    facts.references = Some(3);
    let why = load(&facts, &good()).unwrap_err();
    says(
        &why,
        &["web (100:30, 100:31), db (200:7)", "module livepatch"],
    );
    assert!(!why.unable());
    assert_eq!(livepatch(&facts, &good()), Ok(Go::Ahead));
    facts.parameters = OURS;
    says(
        &revert(&facts).unwrap_err(),
        &["web (100:30", "stop them first"],
    );
}

#[test]
fn references_that_nobody_shows_are_told() {
    let mut facts = stock();
    facts.references = Some(2);
    says(
        &load(&facts, &good()).unwrap_err(),
        &["does not show (2 references)"],
    );
}

#[test]
fn what_this_system_cannot_do_is_told_from_what_it_cannot_do_now() {
    let mut facts = stock();
    facts.privileged = false;
    let why = load(&facts, &good()).unwrap_err();
    says(&why, &["root", "CAP_SYS_MODULE"]);
    assert!(why.unable());
    facts = stock();
    facts.modules_disabled = true;
    assert_eq!(load(&facts, &good()), Err(Refusal::ModulesDisabled));
    facts = stock();
    facts.vhost_net = Form::BuiltIn;
    assert_eq!(load(&facts, &good()), Err(Refusal::BuiltIn));
    assert_eq!(livepatch(&facts, &good()), Err(Refusal::BuiltIn));
    facts = stock();
    facts.livepatch_supported = false;
    let why = livepatch(&facts, &good()).unwrap_err();
    assert!(why.unable());
    says(&why, &["module load"]);
    facts = stock();
    facts.modules = false;
    assert!(load(&facts, &good()).unwrap_err().unable());
}

#[test]
fn a_file_that_is_missing_or_does_not_fit_is_refused() {
    let missing = Candidate::Missing {
        folders: vec![PathBuf::from("/a"), PathBuf::from("/b")],
    };
    let why = livepatch(&stock(), &missing).unwrap_err();
    says(&why, &["livepatch-vhost-net.ko", "/a, /b", "--dir"]);
    assert!(!why.unable());
    let misfit = Candidate::Found {
        path: PathBuf::from("/m/x.ko"),
        signed: true,
        problem: Some(Problem::Layout("struct vhost_dev has 1 byte".to_owned())),
    };
    let why = livepatch(&stock(), &misfit).unwrap_err();
    says(&why, &["/m/x.ko", "corrupt", "struct vhost_dev"]);
}

#[test]
fn a_kernel_that_demands_signatures_takes_signed_files_only() {
    let mut facts = stock();
    facts.lockdown = Some("integrity".to_owned());
    let why = load(&facts, &good()).unwrap_err();
    says(&why, &["not signed", "integrity", "mokutil"]);
    assert!(why.unable());
    let signed = Candidate::Found {
        path: PathBuf::from("/m/x.ko"),
        signed: true,
        problem: None,
    };
    assert_eq!(load(&facts, &signed), Ok(Go::Ahead));
}

#[test]
fn zero_copy_cannot_be_patched() {
    let mut facts = stock();
    facts.zero_copy = Some(true);
    says(
        &livepatch(&facts, &good()).unwrap_err(),
        &["experimental_zcopytx"],
    );
    assert_eq!(load(&facts, &good()), Ok(Go::Ahead));
}

#[test]
fn both_modules_do_not_go_together() {
    assert_eq!(
        load(&patched(true, false), &good()),
        Err(Refusal::Livepatched)
    );
    assert_eq!(livepatch(&replaced(), &good()), Err(Refusal::Replaced));
}

#[test]
fn a_transition_is_followed_and_does_not_let_a_module_be_loaded() {
    for enabled in [true, false] {
        let facts = patched(enabled, true);
        assert_eq!(load(&facts, &good()), Err(Refusal::InTransition));
        assert_eq!(livepatch(&facts, &good()), Ok(Go::Follow));
        assert_eq!(revert(&facts), Ok(Go::Follow));
    }
}

#[test]
fn a_livepatch_that_is_left_over_is_taken_out() {
    let facts = Facts {
        livepatch_module: true,
        ..stock()
    };
    assert_eq!(revert(&facts), Ok(Go::Follow));
}

#[test]
fn names_of_nobody_are_nothing() {
    assert_eq!(names(&[]), "");
}
