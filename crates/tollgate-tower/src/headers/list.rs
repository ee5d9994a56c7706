//! Lists of structured fields (RFC 9651) that a response has before the layer adds its headers.

use std::{borrow::Cow, fmt};

use sfv::{
    BareItemFromInput, KeyRef, Parser, StringRef,
    visitor::{EntryVisitor, InnerListVisitor, ItemVisitor, ListVisitor, Never, ParameterVisitor},
};
use smallvec::SmallVec;

/// Stores the members of a list, each a string or an integer with parameters.
#[derive(Default)]
pub(super) struct Members<'a>(SmallVec<[Member<'a>; 4]>);

#[derive(Default)]
pub(super) struct Member<'a> {
    /// The name of the policy. `None` for a member that is an integer.
    pub(super) name: Option<Cow<'a, StringRef>>,
    pub(super) remaining: Option<u64>,
    pub(super) until_more: Option<u64>,
    quota: Option<u64>,
    window: Option<u64>,
}

impl<'a> Members<'a> {
    /// Parses a list. Returns `None` when it is not one, or when a member is of another kind.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let mut members = Self::default();
        Parser::new(text).parse_list_with_visitor(&mut members).ok()?;
        Some(members)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member<'a>> {
        self.0.iter()
    }

    /// Returns the member with this name.
    pub(super) fn named(&self, name: &str) -> Option<&Member<'a>> {
        self.iter().find(|member| member.name() == name)
    }

    /// Returns whether all members have names that differ.
    fn are_named(&self) -> bool {
        self.iter().enumerate().all(|(at, member)| {
            member.name.is_some() && self.iter().take(at).all(|earlier| earlier.name != member.name)
        })
    }

    /// Returns whether this may be the value of `RateLimit`: names with remaining units.
    pub(super) fn are_states(&self) -> bool {
        self.are_named() && self.iter().all(|member| member.remaining.is_some())
    }

    /// Returns whether this may be the value of `RateLimit-Policy` since revision 08: names with quotas.
    pub(super) fn are_policies(&self) -> bool {
        self.are_named() && self.iter().all(|member| member.quota.is_some())
    }

    /// Returns whether this may be the value of `RateLimit-Policy` before revision 08: quotas with windows.
    pub(super) fn are_quotas(&self) -> bool {
        self.iter().all(|member| member.name.is_none() && member.window.is_some())
    }

    /// Returns whether this may be the value of `X-RateLimit-Limit` in the format of Envoy: a limit, and then quotas with
    /// windows.
    pub(super) fn are_limit_and_quotas(&self) -> bool {
        self.0.split_first().is_some_and(|(limit, quotas)| {
            limit.name.is_none()
                && limit.window.is_none()
                && !quotas.is_empty()
                && quotas.iter().all(|member| member.name.is_none() && member.window.is_some())
        })
    }
}

impl Member<'_> {
    pub(super) fn name(&self) -> &str {
        self.name.as_ref().map_or("", |name| name.as_str())
    }
}

/// Splits a valid list into the texts of its members.
pub(super) fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let members = text.split(move |byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' => return !is_quoted,
            _ => {}
        }
        false
    });
    members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// Says that a member is neither a string nor an integer, or that a parameter is not a number.
#[derive(Debug)]
pub(super) struct OtherKind;

impl fmt::Display for OtherKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a member of a rate limit header")
    }
}

impl std::error::Error for OtherKind {}

struct Visitor<'v, 'a>(&'v mut Member<'a>);

impl<'a> ListVisitor<'a> for Members<'a> {
    type Error = OtherKind;

    fn entry(&mut self) -> Result<impl EntryVisitor<'a>, OtherKind> {
        self.0.push(Member::default());
        self.0.last_mut().map(Visitor).ok_or(OtherKind)
    }
}

impl<'a> ItemVisitor<'a> for Visitor<'_, 'a> {
    type Error = OtherKind;

    fn bare_item(self, item: BareItemFromInput<'a>) -> Result<impl ParameterVisitor<'a>, OtherKind> {
        match item {
            BareItemFromInput::String(name) => self.0.name = Some(name),
            BareItemFromInput::Integer(_) => {}
            _ => return Err(OtherKind),
        }
        Ok(self)
    }
}

impl<'a> EntryVisitor<'a> for Visitor<'_, 'a> {
    fn inner_list(self) -> Result<impl InnerListVisitor<'a>, OtherKind> {
        Err::<Never, _>(OtherKind)
    }
}

impl<'a> ParameterVisitor<'a> for Visitor<'_, 'a> {
    type Error = OtherKind;

    fn parameter(&mut self, key: &'a KeyRef, value: BareItemFromInput<'a>) -> Result<(), OtherKind> {
        let parameter = match key.as_str() {
            "r" => &mut self.0.remaining,
            "t" => &mut self.0.until_more,
            "q" => &mut self.0.quota,
            "w" => &mut self.0.window,
            _ => return Ok(()),
        };
        let BareItemFromInput::Integer(number) = value else { return Err(OtherKind) };
        *parameter = Some(u64::try_from(i64::from(number)).map_err(|_| OtherKind)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_at_commas_outside_of_strings() {
        for (text, expected) in [
            ("", &[][..]),
            ("1;w=2", &["1;w=2"]),
            (r#""a";r=1 ,  "b";r=2"#, &[r#""a";r=1"#, r#""b";r=2"#]),
            (r#""a, b";r=1, "c""#, &[r#""a, b";r=1"#, r#""c""#]),
            (r#""a\", b";x="\\", "c""#, &[r#""a\", b";x="\\""#, r#""c""#]),
        ] {
            let members: Vec<_> = split(text.as_bytes()).map(|member| std::str::from_utf8(member).unwrap()).collect();
            assert_eq!(members, expected);
            assert_eq!(Members::parse(text.as_bytes()).unwrap().iter().count(), expected.len());
        }
    }

    #[test]
    fn each_format_knows_its_own_lists() {
        let kinds = |text: &'static str| {
            let members = Members::parse(text.as_bytes()).unwrap();
            [members.are_states(), members.are_policies(), members.are_quotas(), members.are_limit_and_quotas()]
        };
        assert_eq!(kinds(r#""a";r=1;t=2, "b";r=0"#), [true, false, false, false]);
        assert_eq!(kinds(r#""a";q=1;w=2, "b";q=1"#), [false, true, false, false]);
        assert_eq!(kinds("1;w=2, 3;w=4"), [false, false, true, false]);
        assert_eq!(kinds(r#"1, 1;w=2;name="a", 3;w=4"#), [false, false, false, true]);
        for neither in [
            r#""a";r=1, "a";r=2"#,
            r#""a";q=1, "b";q=1, "a";q=1"#,
            "1",
            "1, 2",
            "1;w=2, 3",
            r#""a";r=1, "b""#,
            r#""a";r=1, 2;w=3"#,
            r#"1, "a";q=1"#,
        ] {
            assert_eq!(kinds(neither), [false; 4], "{neither}");
        }
        for invalid in ["a", "1.5", "(1 2)", r#""a";r=-1"#, r#""a";r"#, r#""a";t="1""#, "1;w=1,", r#""a"#] {
            assert!(Members::parse(invalid.as_bytes()).is_none(), "{invalid}");
        }
    }
}
