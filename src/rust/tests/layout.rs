// SPDX-License-Identifier: MIT
//! A C compiler and rustc have laid out the same structs, and have the same constants.
#![allow(clippy::format_push_string)]

use std::env;
use std::fs;
use std::mem::MaybeUninit;
use std::process::Command;
use stint::sys::*;

/// What Rust says of a struct: its name, its size, and each field's name, offset and size.
type Layout = (&'static str, usize, Vec<(&'static str, usize, usize)>);

fn size_of_field<T>(_: *const T) -> usize {
    std::mem::size_of::<T>()
}

macro_rules! layout {
    ($name:ident: $($field:ident)*) => {{
        let place = MaybeUninit::<$name>::uninit();
        let start = place.as_ptr();
        // SAFETY: no field is read.
        let fields = unsafe {
            vec![$({
                let field = std::ptr::addr_of!((*start).$field);
                (stringify!($field), field as usize - start as usize, size_of_field(field))
            }),*]
        };
        (stringify!($name), std::mem::size_of::<$name>(), fields)
    }};
}

macro_rules! constants {
    ($($name:ident)*) => { vec![$((stringify!($name), $name as u64)),*] };
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!(stint_options: size max_entries shards max_policies on_full flags path clock secret
            mode labels),
        layout!(stint_policy: size name limit capacity max_reserved stripes window start flags
            near_limit jitter calendar offset ban_after ban burst reserved ban_within),
        layout!(stint_verdict: allowed flags capacity used remaining granted window reset_after
            retry_after policy generation unit),
        layout!(stint_key: hash),
        layout!(stint_request: key policy cost limit flags burst reserved),
        layout!(stint_stats: size memory slots used live placed untracked replaced clock_steps
            stray_tokens unknown_policy resets shards policies bad_requests processes
            lost overrides barred banned max_entries labels used_labels max_policies policy_ids
            gone_ids reach max_reach removed),
        layout!(stint_policy_stats: size allowed refused shadowed first_refusals untracked
            near_limit charged refunded bans strikes_lost
            refunds_lost mistaken_nows),
        layout!(stint_change: size kind id name text was decided),
        layout!(stint_entry: key policy flags used end label label_length refused_windows limit
            since refused_last reserved),
        layout!(stint_metrics_options: size labels flags reserved),
    ]
}

fn all_constants() -> Vec<(&'static str, u64)> {
    constants!(STINT_KEY_GLOBAL_HASH STINT_NOW STINT_NEVER STINT_ALL_MAX STINT_SECRET_SIZE
        STINT_NAME_SIZE STINT_FULL_ADMIT STINT_FULL_REFUSE STINT_FULL_REPLACE STINT_PREFAULT
        STINT_SMALL_PAGES STINT_PRECISE_CLOCK STINT_READ_ONLY STINT_DRY_RUN STINT_PRUNE
        STINT_POLICY_UNCHANGED STINT_POLICY_ADDED STINT_POLICY_CHANGED STINT_POLICY_REPLACED
        STINT_POLICY_REMOVED STINT_FIRST_REFUSAL STINT_SHADOWED STINT_UNTRACKED STINT_REPLACED
        STINT_UNKNOWN_POLICY STINT_NEAR_LIMIT STINT_BAD_REQUEST STINT_BANNED STINT_OVERRIDDEN
        STINT_MISTAKEN_NOW
        STINT_PEEK STINT_PARTIAL STINT_DRAIN STINT_RESERVE STINT_CHARGE STINT_TENTATIVE
        STINT_METRICS_NO_EOF STINT_METRICS_NO_SCAN STINT_HEADERS_DRAFT
        STINT_HEADERS_LEGACY)
}

#[test]
fn c_has_the_same() {
    let mut asked = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <stint.h>\nint main(void) {\n",
    );
    let mut wanted = String::new();
    for (name, size, fields) in layouts() {
        asked += &format!("printf(\"{name} %zu\\n\", sizeof(struct {name}));\n");
        wanted += &format!("{name} {size}\n");
        for (field, offset, size) in fields {
            asked += &format!(
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof(struct {name}, {field}), \
                 sizeof(((struct {name} *)0)->{field}));\n"
            );
            wanted += &format!("{name}.{field} {offset} {size}\n");
        }
    }
    for (name, value) in all_constants() {
        asked += &format!("printf(\"{name} %llu\\n\", (unsigned long long){name});\n");
        wanted += &format!("{name} {value}\n");
    }
    asked += "return 0;\n}\n";

    let directory = env::temp_dir().join(format!("stint-layout-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (source, program) = (directory.join("layout.c"), directory.join("layout"));
    fs::write(&source, asked).unwrap();
    let flags = Command::new("pkg-config").args(["--cflags", "stint"]).output().unwrap();
    let compiled = Command::new(env::var("CC").unwrap_or_else(|_| "cc".to_string()))
        .args(String::from_utf8(flags.stdout).unwrap().split_whitespace())
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let told = Command::new(&program).output().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(String::from_utf8(told.stdout).unwrap(), wanted);
}
