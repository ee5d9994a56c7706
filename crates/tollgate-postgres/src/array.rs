//! Arrays that a server sends, which are compared with what was asked for before anything is
//! allocated. Which statement has which array is known in `database.rs`.

use std::error::Error as StdError;

use tokio_postgres::types::{FromSql, Type};
use tollgate_core::Error;

use crate::error::not_valid;

/// An array of one dimension, as its bytes. The client library's own reader of a list allocates as
/// many elements as the server announces.
#[derive(Debug)]
pub(crate) struct Array<'a> {
    count: usize,
    elements: &'a [u8],
}

impl<'a> Array<'a> {
    /// Returns the elements, of which there are so many at most. One may be missing.
    ///
    /// # Errors
    ///
    /// [`Protocol`](tollgate_core::ErrorKind::Protocol) when there are more, or the bytes are no array.
    pub(crate) fn elements(&self, most: usize) -> Result<Vec<Option<&'a [u8]>>, Error> {
        if self.count > most {
            return Err(not_valid());
        }
        let (mut elements, mut rest) = (Vec::with_capacity(self.count), self.elements);
        for _ in 0..self.count {
            let (length, after) = number(rest).ok_or_else(not_valid)?;
            let length = usize::try_from(length).ok();
            let (element, after) = match length {
                Some(length) => after
                    .split_at_checked(length)
                    .map(|(element, after)| (Some(element), after))
                    .ok_or_else(not_valid)?,
                // A negative length stands for none.
                None => (None, after),
            };
            elements.push(element);
            rest = after;
        }
        match rest {
            [] => Ok(elements),
            _ => Err(not_valid()),
        }
    }
}

impl<'a> FromSql<'a> for Array<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        read(raw).ok_or_else(|| not_valid().into())
    }

    fn accepts(of: &Type) -> bool {
        matches!(*of, Type::BYTEA_ARRAY | Type::INT4_ARRAY)
    }
}

/// Reads the number of dimensions, whether elements are missing, the type of the elements, and of
/// the one dimension its length and its first index.
fn read(raw: &[u8]) -> Option<Array<'_>> {
    let (dimensions, rest) = number(raw)?;
    let (_, rest) = number(rest)?;
    let (_, rest) = number(rest)?;
    match dimensions {
        0 => Some(Array {
            count: 0,
            elements: rest,
        }),
        1 => {
            let (count, rest) = number(rest)?;
            let (_, elements) = number(rest)?;
            Some(Array {
                count: usize::try_from(count).ok()?,
                elements,
            })
        }
        _ => None,
    }
}

fn number(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((i32::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[i32]) -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_be_bytes())
            .collect()
    }

    /// Returns an array of bytes that announces `count` elements.
    fn array(count: i32, elements: &[Option<&[u8]>]) -> Vec<u8> {
        let mut array = bytes(&[1, 1, 17, count, 1]);
        for element in elements {
            let length = element.map_or(-1, |element| element.len() as i32);
            array.extend(length.to_be_bytes());
            array.extend(element.unwrap_or_default());
        }
        array
    }

    #[test]
    fn elements_are_read_and_missing_ones_too() {
        let elements = [Some(&b"one"[..]), None, Some(b""), Some(b"four")];
        let raw = array(4, &elements);
        let array = read(&raw).expect("an array");
        for most in [4, 5, usize::MAX] {
            assert_eq!(array.elements(most).expect("elements"), elements);
        }
        assert!(array.elements(3).is_err());
        let none = bytes(&[0, 0, 17]);
        let none = read(&none).expect("an array");
        assert!(none.elements(0).expect("elements").is_empty());
    }

    /// Each of these took as much memory as it announces, or more than the bytes that are there.
    #[test]
    fn a_count_beyond_what_was_asked_for_allocates_nothing() {
        for count in [3, i32::MAX] {
            let raw = array(count, &[None, None]);
            let array = read(&raw).expect("an array");
            assert!(array.elements(2).is_err(), "{count}");
        }
        let raw = array(3, &[None, None]);
        assert!(read(&raw).expect("an array").elements(9).is_err());
        let raw = array(1, &[None, None]);
        assert!(read(&raw).expect("an array").elements(9).is_err());
        let raw = bytes(&[1, 0, 17, 1, 1, i32::MAX]);
        assert!(read(&raw).expect("an array").elements(9).is_err());
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for numbers in [
            &[][..],
            &[1],
            &[1, 0, 17, 1],
            &[1, 0, 17, -1, 1],
            &[-1, 0, 17],
            &[2, 0, 17, 1, 1, 1, 1],
        ] {
            assert!(read(&bytes(numbers)).is_none(), "{numbers:?}");
        }
    }
}
