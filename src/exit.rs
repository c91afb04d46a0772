//! The table of exit codes: the one place where a number gets its meaning.
//!
//! The code of a run is the first that applies in the order 2, 70, 130, 6, 3, 4, 5, 1, 0.

/// How a process of hammerscale ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Every request was valid (requests that are only `incomplete` do not change this).
    Ok,
    /// The run finished and some requests failed; of `report`: a stored number does not follow from the record; of
    /// `calibrate`: a row was asked for and could not be measured.
    SomeFailed,
    /// The command line, the configuration file or an input file cannot be used; nothing was sent.
    Usage,
    /// Nothing valid was measured.
    NothingValid,
    /// The instrument's verdict is `invalid` (or `suspect` with `--strict-instrument`); of `calibrate`, with that flag: a
    /// promise is missed.
    Instrument,
    /// A service level objective or a gate failed.
    Gate,
    /// The target could not be reached or resolved at all; nothing was sent.
    Unreachable,
    /// A fault of our own.
    Internal,
    /// Interrupted; what was measured until then is written.
    Interrupted,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct ExitRow {
    /// The variant the row describes.
    pub exit: Exit,
    /// The process status.
    pub code: u8,
    /// One sentence for people.
    pub meaning: &'static str,
}

/// Every exit code, in ascending order.
pub const TABLE: [ExitRow; 9] = [
    ExitRow { exit: Exit::Ok, code: 0, meaning: "every request was valid" },
    ExitRow {
        exit: Exit::SomeFailed,
        code: 1,
        meaning: "some requests failed, a row of a calibration is missing, or a stored number does not follow from its record",
    },
    ExitRow {
        exit: Exit::Usage,
        code: 2,
        meaning: "the command line or an input cannot be used; nothing was sent",
    },
    ExitRow { exit: Exit::NothingValid, code: 3, meaning: "nothing valid was measured" },
    ExitRow { exit: Exit::Instrument, code: 4, meaning: "the instrument's verdict is invalid" },
    ExitRow { exit: Exit::Gate, code: 5, meaning: "a service level objective or a gate failed" },
    ExitRow {
        exit: Exit::Unreachable,
        code: 6,
        meaning: "the target could not be reached or resolved at all",
    },
    ExitRow { exit: Exit::Internal, code: 70, meaning: "internal error" },
    ExitRow { exit: Exit::Interrupted, code: 130, meaning: "interrupted; what was measured is written" },
];

impl Exit {
    /// The process status of this ending.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::SomeFailed => 1,
            Self::Usage => 2,
            Self::NothingValid => 3,
            Self::Instrument => 4,
            Self::Gate => 5,
            Self::Unreachable => 6,
            Self::Internal => 70,
            Self::Interrupted => 130,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_codes_agree() {
        for row in TABLE {
            assert_eq!(row.code, row.exit.code(), "{:?}", row.exit);
        }
        assert!(TABLE.windows(2).all(|w| w[0].code < w[1].code));
    }
}
