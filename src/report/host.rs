//! Where a run was measured and by what: read from the kernel's own files and from what the compiler was told.
//!
//! A file that is missing or unreadable gives `None`: a container may hide any of them. Nothing here is measured, and
//! nothing names the user or the machine: its name enters only a hash that tells machines apart.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

/// The program that measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The commit it was built from, when the build was told (`HAMMERSCALE_GIT`).
    pub git: Option<&'static str>,
    /// `release`, or `debug` for a build with debug assertions, whose timing says nothing about the real thing.
    pub profile: &'static str,
    /// The compiler, when the build was told (`HAMMERSCALE_RUSTC`).
    pub rustc: Option<&'static str>,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// Model name of the first processor.
    pub cpu: Option<String>,
    /// Processors that are online.
    pub cores: Option<u32>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Frequency governor of every processor, or `mixed`.
    pub governor: Option<String>,
    /// Clock source of the kernel.
    pub clocksource: Option<String>,
    /// Whether the processor says that a hypervisor runs it; `None` where it says nothing about that.
    pub virtualised: Option<bool>,
}

impl Tool {
    /// This program.
    pub const THIS: Self = Self {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        git: option_env!("HAMMERSCALE_GIT"),
        profile: if cfg!(debug_assertions) { "debug" } else { "release" },
        rustc: option_env!("HAMMERSCALE_RUSTC"),
    };
}

/// Enough of any of these files: only the first processor's entry of the longest one is read, and lists of processors
/// are short.
const MAX_FILE_BYTES: u64 = 64 * 1024;
/// Machines with more processors than this are asked about these only.
const MAX_CORES: u32 = 4_096;

impl Host {
    /// This machine.
    #[must_use]
    pub fn read() -> Self {
        Self::read_below(Path::new("/"))
    }

    /// The machine whose `/proc` and `/sys` stand below `root`.
    #[must_use]
    pub fn read_below(root: &Path) -> Self {
        let text = |path: &str| read_text(&root.join(path));
        let cpuinfo = text("proc/cpuinfo");
        let online = text("sys/devices/system/cpu/online");
        let cores = online.as_deref().and_then(count_of_list);
        Self {
            cpu: cpuinfo.as_deref().and_then(|t| field(t, "model name")).map(str::to_owned),
            cores,
            kernel: text("proc/sys/kernel/osrelease"),
            governor: governor(root, cores.unwrap_or(1)),
            clocksource: text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            virtualised: cpuinfo
                .as_deref()
                .and_then(|t| field(t, "flags"))
                .map(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")),
        }
    }
}

/// Digits of a hash that tells machines apart: 64 bits, far beyond the machines that share a home directory.
const MARK_DIGITS: usize = 16;

/// What tells this machine, as it is set up now, from others: hexadecimal digits of a hash over its name, its processor,
/// the number of its cores and its kernel. Whoever does not know these cannot read them from it.
#[must_use]
pub fn mark() -> String {
    mark_below(Path::new("/"))
}

fn mark_below(root: &Path) -> String {
    let Host { cpu, cores, kernel, .. } = Host::read_below(root);
    let name = read_text(&root.join("proc/sys/kernel/hostname"));
    let facts = [name, cpu, cores.map(|cores| cores.to_string()), kernel].map(Option::unwrap_or_default);
    let hash = Sha256::digest(facts.join("\0").as_bytes());
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.chars().take(MARK_DIGITS).collect()
}

fn governor(root: &Path, cores: u32) -> Option<String> {
    let of = |core: u32| {
        read_text(&root.join(format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor")))
    };
    let first = of(0)?;
    let others = (1..cores.min(MAX_CORES)).filter_map(of);
    Some(others.into_iter().find(|other| *other != first).map_or(first, |_| "mixed".to_owned()))
}

/// The first value of a `key : value` line.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(k, v)| (k.trim(), v.trim())).find(|(k, v)| *k == key && !v.is_empty()).map(|(_, v)| v)
}

/// How many numbers a list such as `0-3,8,10-11` holds.
fn count_of_list(text: &str) -> Option<u32> {
    text.split(',').try_fold(0_u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The trimmed text of a small file; `None` when it is missing, unreadable or empty.
fn read_text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let tmp = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = tmp.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        tmp
    }

    #[test]
    fn a_machine_that_tells_everything() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Fast CPU @ 3.00GHz\nflags\t\t: fpu tsc hypervisor lm\n\n\
                       processor\t: 1\nmodel name\t: Other\n";
        let root = tree(&[
            ("proc/cpuinfo", cpuinfo),
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("sys/devices/system/cpu/online", "0-2\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
        ]);
        let text = |t: &str| Some(t.to_owned());
        let expected = Host {
            cpu: text("Fast CPU @ 3.00GHz"),
            cores: Some(3),
            kernel: text("6.1.0-18-amd64"),
            governor: text("performance"),
            clocksource: text("tsc"),
            virtualised: Some(true),
        };
        assert_eq!(Host::read_below(root.path()), expected);
        fs::write(root.path().join("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor"), "powersave")
            .unwrap();
        assert_eq!(Host::read_below(root.path()).governor, text("mixed"));
    }

    #[test]
    fn a_machine_that_tells_nothing() {
        let root = tree(&[
            ("proc/cpuinfo", "processor : 0\nCPU part : 0xd0c\n"),
            ("proc/sys/kernel/osrelease", "\n"),
        ]);
        assert_eq!(Host::read_below(root.path()), Host::default());
    }

    #[test]
    fn machines_are_told_apart_and_not_named() {
        let with = |name: &str, kernel: &str| {
            let root = tree(&[
                ("proc/cpuinfo", "model name\t: Fast CPU\n"),
                ("proc/sys/kernel/hostname", name),
                ("proc/sys/kernel/osrelease", kernel),
            ]);
            mark_below(root.path())
        };
        let mark = with("alpha\n", "6.1.0\n");
        assert_eq!(mark.len(), MARK_DIGITS);
        assert!(mark.bytes().all(|b| b.is_ascii_hexdigit()) && !mark.contains("alpha"));
        assert_eq!(mark, with("alpha", "6.1.0"));
        assert_ne!(mark, with("beta", "6.1.0"));
        assert_ne!(mark, with("alpha", "6.2.0"));
    }

    #[test]
    fn lists_of_processors() {
        for (text, count) in
            [("0", Some(1)), ("0-3,8,10-11", Some(7)), ("3-1", None), ("", None), ("a", None)]
        {
            assert_eq!(count_of_list(text), count, "{text}");
        }
    }

    #[test]
    fn this_machine_has_a_kernel_and_this_program_a_version() {
        assert!(Host::read().kernel.is_some());
        assert_eq!(Tool::THIS.name, "hammerscale");
        assert!(Tool::THIS.version.starts_with(|c: char| c.is_ascii_digit()));
    }
}
