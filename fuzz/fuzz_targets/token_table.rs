//! The token table of the backends, compared with a map.

#![no_main]

use std::collections::HashMap;

use poll_core::{Table, Token};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (mut table, mut model) = (Table::<u32>::default(), HashMap::<u32, (Token, u32)>::new());
    for (number, step) in data.chunks_exact(4).enumerate() {
        let number = number as u32;
        // Few indices, so that they meet; few generations, so that some are stale.
        let index = u32::from(u16::from_le_bytes([step[1], step[2]])) % 300;
        let token = Token::new(index, u32::from(step[3] % 4));
        let entry = model.get(&index).copied();
        let live = entry.filter(|(key, _)| *key == token).map(|(_, value)| value);
        assert_eq!(table.is_taken(token), entry.is_some());
        assert_eq!(table.get(token).copied(), live);
        match step[0] % 4 {
            0 | 1 => match table.insert(token, number) {
                Ok(()) => assert!(model.insert(index, (token, number)).is_none()),
                Err(value) => assert!(value == number && entry.is_some()),
            },
            2 => {
                assert_eq!(table.remove(token), live);
                if live.is_some() {
                    model.remove(&index);
                }
            }
            _ => {
                assert_eq!(table.get_mut(token).copied(), live);
                if let Some(value) = table.get_mut(token) {
                    *value += 1;
                    model.insert(index, (token, *value));
                }
            }
        }
        assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
    }
    let mut expected: Vec<_> = model.into_values().collect();
    expected.sort_by_key(|(token, _)| token.index());
    assert!(table.iter().map(|(token, value)| (token, *value)).eq(expected));
});
