//! Flags that take a list in one value: what they become, and how they are read.

use std::net::{IpAddr, Ipv4Addr};

use super::defaults;

/// Core numbers in the order given, none twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreList(pub Vec<u32>);

/// Local addresses in the order given, none twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceList(pub Vec<IpAddr>);

/// Reads `2,4-7`.
pub(super) fn core_list(text: &str) -> Result<CoreList, String> {
    let number = |part: &str| match part.parse::<u32>() {
        Ok(core) if core < defaults::MAX_CORES => Ok(core),
        _ => Err(format!("is not a list of cores below {} (like 2,4-7)", defaults::MAX_CORES)),
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err("has a range that runs backwards".to_owned());
        }
        cores.extend(first..=last);
        // A longer list repeats a core, and must not fill the memory before that is noticed.
        if cores.len() > defaults::MAX_CORES as usize {
            break;
        }
    }
    let mut sorted = cores.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() < cores.len() {
        return Err("names a core twice".to_owned());
    }
    Ok(CoreList(cores))
}

/// Reads `10.0.0.1,10.0.0.2`.
pub(super) fn source_list(text: &str) -> Result<SourceList, String> {
    let mut sources = Vec::new();
    for part in text.split(',') {
        let address = part.trim().parse::<IpAddr>();
        let address = address.map_err(|_| "is not a list of IP addresses (like 10.0.0.1,10.0.0.2)")?;
        let address = address.to_canonical();
        let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
        if address.is_unspecified() || address.is_multicast() || broadcast {
            return Err(format!("names {address}, from which nothing can connect"));
        }
        if sources.contains(&address) {
            return Err(format!("names {address} twice"));
        }
        if sources.len() == defaults::MAX_SOURCE_IPS {
            return Err(format!("names more than {} addresses", defaults::MAX_SOURCE_IPS));
        }
        sources.push(address);
    }
    Ok(SourceList(sources))
}
