// SPDX-License-Identifier: MIT
//! Asks pkg-config where the library is. With STINT_STATIC set it is linked into the program.
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=STINT_STATIC");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let in_program = env::var_os("STINT_STATIC").is_some();
    // The crate's declarations are those of one minor version (soname libstint.so.0.5).
    let asked = Command::new("pkg-config")
        .args(["--libs", "stint >= 0.5.0", "stint < 0.6.0"])
        .output()
        .unwrap_or_else(|error| panic!("pkg-config is needed, and cannot be run: {}", error));
    if !asked.status.success() {
        panic!(
            "pkg-config does not find stint 0.5. Install it (meson install), or name the directory \
             of its stint.pc in PKG_CONFIG_PATH.\n{}",
            String::from_utf8_lossy(&asked.stderr)
        );
    }
    for flag in String::from_utf8_lossy(&asked.stdout).split_whitespace() {
        if let Some(directory) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={}", directory);
        } else if let Some(library) = flag.strip_prefix("-l") {
            let kind = if in_program && library == "stint" { "static=" } else { "" };
            println!("cargo:rustc-link-lib={}{}", kind, library);
        }
    }
}
