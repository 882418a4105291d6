//! Memory whose every word follows from a seed and its place, so that one wrong bit is found and named.

use super::{Error, Filled, Page, Pattern};

#[derive(Debug)]
pub struct Block {
    pages: Vec<Page>,
    filled: Filled,
}

impl Block {
    pub fn fill(mut pages: Vec<Page>, filled: Filled) -> Self {
        for (word, place) in pages.iter_mut().flatten().zip(0..) {
            *word = expected(filled, place);
        }
        // Zeroes over zeroes must be written all the same: the pages are to be there.
        std::hint::black_box(&mut pages);
        Self { pages, filled }
    }

    pub fn check(&self) -> Result<Filled, Error> {
        let mut words = self.pages.iter().flatten().zip(0..);
        match words.find(|(word, place)| **word != expected(self.filled, *place)) {
            Some((_, place)) => Err(Error::Damaged { offset: place * 8 }),
            None => Ok(self.filled),
        }
    }
}

fn expected(filled: Filled, place: u64) -> u64 {
    match filled.pattern {
        Pattern::Zero => 0,
        Pattern::Random => mixed(filled.seed.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
    }
}

/// SplitMix64's finaliser: neighbours get words that have nothing in common, and do not compress.
fn mixed(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn one_flipped_bit_is_found_where_it_is(
            seed: u64, zero: bool, page in 0_usize..3, word in 0_usize..512, bit in 0_u32..64,
        ) {
            let pattern = if zero { Pattern::Zero } else { Pattern::Random };
            let mut block = Block::fill(vec![[0; 512]; 3], Filled { mib: 0, pattern, seed });
            prop_assert_eq!(block.check(), Ok(block.filled));
            block.pages[page][word] ^= 1 << bit;
            let offset = u64::try_from(page * 4096 + word * 8).unwrap();
            prop_assert_eq!(block.check(), Err(Error::Damaged { offset }));
        }
    }
}
