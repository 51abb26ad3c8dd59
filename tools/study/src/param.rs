//! Parameters of studies: what they mean, their units, defaults and text forms.

use core::ops::RangeInclusive;
use std::collections::BTreeMap;

/// What a parameter's values are.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Whole numbers, in what [`Param::unit`] says.
    Count(RangeInclusive<u64>),
    /// Bytes: `4096`, `4K`, `1M`.
    Bytes(RangeInclusive<u64>),
    /// Shares: `0.01`, `1%` or `1/256`.
    Share(RangeInclusive<f64>),
    /// A word with a meaning of its own; the function says why it refuses one.
    Word(fn(&str) -> Result<(), &'static str>),
}

/// How long a study may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Seconds: a look.
    Quick,
    /// A minute on two cores.
    #[default]
    Default,
    /// As long as it takes.
    Full,
}

/// One parameter of a study.
#[derive(Clone, Debug)]
pub struct Param {
    /// Its flag, without the dashes.
    pub name: &'static str,
    /// What it means.
    pub what: &'static str,
    /// What its values count, as in `Gb/s`.
    pub unit: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// Whether several values may be given, with commas between.
    pub many: bool,
    /// The values of [`Level::Quick`], [`Level::Default`] and [`Level::Full`].
    pub defaults: [&'static str; 3],
}

impl Param {
    /// One whole number, which counts `unit`.
    #[must_use]
    pub const fn count(
        name: &'static str,
        unit: &'static str,
        range: RangeInclusive<u64>,
        defaults: [&'static str; 3],
    ) -> Self {
        Self { name, what: "", unit, kind: Kind::Count(range), many: false, defaults }
    }

    /// Whole numbers, each of which counts `unit`.
    #[must_use]
    pub const fn counts(
        name: &'static str,
        unit: &'static str,
        range: RangeInclusive<u64>,
        defaults: [&'static str; 3],
    ) -> Self {
        Self { many: true, ..Self::count(name, unit, range, defaults) }
    }

    /// One number of bytes.
    #[must_use]
    pub const fn size(
        name: &'static str,
        range: RangeInclusive<u64>,
        defaults: [&'static str; 3],
    ) -> Self {
        Self { name, what: "", unit: "bytes", kind: Kind::Bytes(range), many: false, defaults }
    }

    /// Numbers of bytes.
    #[must_use]
    pub const fn sizes(
        name: &'static str,
        range: RangeInclusive<u64>,
        defaults: [&'static str; 3],
    ) -> Self {
        Self { many: true, ..Self::size(name, range, defaults) }
    }

    /// One share.
    #[must_use]
    pub const fn share(
        name: &'static str,
        range: RangeInclusive<f64>,
        defaults: [&'static str; 3],
    ) -> Self {
        Self { name, what: "", unit: "share", kind: Kind::Share(range), many: false, defaults }
    }

    /// Shares.
    #[must_use]
    pub const fn shares(
        name: &'static str,
        range: RangeInclusive<f64>,
        defaults: [&'static str; 3],
    ) -> Self {
        Self { many: true, ..Self::share(name, range, defaults) }
    }

    /// One word that `check` accepts.
    #[must_use]
    pub const fn word(
        name: &'static str,
        check: fn(&str) -> Result<(), &'static str>,
        defaults: [&'static str; 3],
    ) -> Self {
        Self { name, what: "", unit: "", kind: Kind::Word(check), many: false, defaults }
    }

    /// Words that `check` accepts.
    #[must_use]
    pub const fn words(
        name: &'static str,
        check: fn(&str) -> Result<(), &'static str>,
        defaults: [&'static str; 3],
    ) -> Self {
        Self { many: true, ..Self::word(name, check, defaults) }
    }

    /// With what it means, in words.
    #[must_use]
    pub const fn what(self, what: &'static str) -> Self {
        Self { what, ..self }
    }
}

/// A text that is no value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No study parameter of that name.
    #[error("there is no parameter {0}")]
    Unknown(String),
    /// One value where one is wanted.
    #[error("one value, not a list")]
    NotOne,
    /// Not written as values are.
    #[error("{0}")]
    Malformed(&'static str),
    /// Too small or too large.
    #[error("from {low} to {high}")]
    OutOfRange {
        /// The least value.
        low: String,
        /// The largest.
        high: String,
    },
}

/// The values of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Whole numbers, or bytes.
    Counts(Vec<u64>),
    /// Shares.
    Shares(Vec<f64>),
    /// Words.
    Words(Vec<String>),
}

impl Param {
    /// Reads its values.
    ///
    /// # Errors
    /// [`ParamError`], which says what would be taken.
    pub fn parse(&self, text: &str) -> Result<Value, ParamError> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts.len() > 1 && !self.many {
            return Err(ParamError::NotOne);
        }
        let each = parts.into_iter();
        Ok(match &self.kind {
            Kind::Count(range) => {
                let read =
                    |part: &str| part.parse().map_err(|_| ParamError::Malformed("a whole number"));
                Value::Counts(
                    each.map(|part| within(read(part)?, range)).collect::<Result<_, _>>()?,
                )
            }
            Kind::Bytes(range) => Value::Counts(
                each.map(|part| within(parse_bytes(part)?, range)).collect::<Result<_, _>>()?,
            ),
            Kind::Share(range) => Value::Shares(
                each.map(|part| within(parse_share(part)?, range)).collect::<Result<_, _>>()?,
            ),
            Kind::Word(check) => {
                let read = |part: &str| check(part).map(|()| part.to_owned());
                let words: Result<_, _> = each.map(read).collect();
                Value::Words(words.map_err(ParamError::Malformed)?)
            }
        })
    }

    /// The text of its default at a level.
    #[must_use]
    pub fn default_text(&self, level: Level) -> &'static str {
        self.defaults[level as usize]
    }
}

fn within<T>(value: T, range: &RangeInclusive<T>) -> Result<T, ParamError>
where
    T: PartialOrd + core::fmt::Display,
{
    let (low, high) = (range.start(), range.end());
    if range.contains(&value) {
        return Ok(value);
    }
    Err(ParamError::OutOfRange { low: low.to_string(), high: high.to_string() })
}

fn parse_bytes(text: &str) -> Result<u64, ParamError> {
    let malformed = ParamError::Malformed("bytes, with K, M or G for powers of 1,024");
    let upper = text.to_ascii_uppercase();
    let plain = upper.strip_suffix("IB").unwrap_or(&upper);
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let unit = units.iter().find_map(|&(letter, bits)| Some((plain.strip_suffix(letter)?, bits)));
    let (digits, bits) = unit.unwrap_or((plain, 0));
    let count: u64 = digits.parse().map_err(|_| malformed.clone())?;
    count.checked_mul(1 << bits).ok_or(malformed)
}

fn parse_share(text: &str) -> Result<f64, ParamError> {
    let malformed = ParamError::Malformed("a share: 0.01, 1% or 1/256");
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|x| x.is_finite());
    let share = if let Some(percent) = text.strip_suffix('%') {
        number(percent).map(|percent| percent / 100.0)
    } else if let Some((one, of)) = text.split_once('/') {
        number(one).zip(number(of)).filter(|&(_, of)| of != 0.0).map(|(one, of)| one / of)
    } else {
        number(text)
    };
    share.ok_or(malformed)
}

/// What a study was asked with.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Where everything random comes from.
    pub seed: u64,
    values: BTreeMap<&'static str, (String, Value)>,
}

impl Params {
    /// The defaults of a level, but for what `given` says of some by name.
    ///
    /// # Errors
    /// [`ParamError`] with the name of the parameter.
    pub fn new(
        params: &'static [Param],
        seed: u64,
        level: Level,
        given: &BTreeMap<String, String>,
    ) -> Result<Self, (String, ParamError)> {
        let known = |name: &String| params.iter().any(|param| param.name == name);
        if let Some(name) = given.keys().find(|name| !known(name)) {
            return Err((name.clone(), ParamError::Unknown(name.clone())));
        }
        let mut values = BTreeMap::new();
        for param in params {
            let default = param.default_text(level);
            let text = given.get(param.name).map_or(default, String::as_str);
            let value = param.parse(text).map_err(|error| (param.name.to_owned(), error))?;
            values.insert(param.name, (text.to_owned(), value));
        }
        Ok(Self { seed, values })
    }

    /// Each parameter and its text, in the order of their names.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values.iter().map(|(&name, (text, _))| (name, text.as_str()))
    }

    fn value(&self, name: &str) -> &Value {
        &self.values.get(name).expect("a study asks for parameters that it declares").1
    }

    /// The values of a parameter of whole numbers or bytes. Panics where the study declares none
    /// of that name and kind; so do those below.
    #[must_use]
    pub fn counts(&self, name: &str) -> &[u64] {
        let Value::Counts(counts) = self.value(name) else {
            panic!("{name} is not declared as numbers")
        };
        counts
    }

    /// The one value of a parameter of whole numbers or bytes.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.counts(name)[0]
    }

    /// The values of a parameter of shares.
    #[must_use]
    pub fn shares(&self, name: &str) -> &[f64] {
        let Value::Shares(shares) = self.value(name) else {
            panic!("{name} is not declared as shares")
        };
        shares
    }

    /// The one value of a parameter of shares.
    #[must_use]
    pub fn share(&self, name: &str) -> f64 {
        self.shares(name)[0]
    }

    /// The words of a parameter.
    #[must_use]
    pub fn words(&self, name: &str) -> &[String] {
        let Value::Words(words) = self.value(name) else {
            panic!("{name} is not declared as words")
        };
        words
    }

    /// The one word of a parameter.
    #[must_use]
    pub fn word(&self, name: &str) -> &str {
        &self.words(name)[0]
    }
}
