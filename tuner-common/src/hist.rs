//! Bucket arithmetic of the histograms.
//!
//! Time histograms are log-linear: [`STEPS`] buckets in every octave from
//! [`FIRST_NS`] up, so that a value and its bucket's upper edge differ by at
//! most one eighth. Bucket 0 holds everything below [`FIRST_NS`].

/// Buckets in one octave.
pub const STEPS: u32 = 8;
/// Shortest time that has a bucket of its own, in nanoseconds.
pub const FIRST_NS: u64 = 256;
const FIRST_LOG2: u32 = 8;
const OCTAVES: u32 = 23;
/// Buckets of a time histogram: below 256 ns, 23 octaves of 8 (up to 2.1 s),
/// and everything longer in the last.
pub const TIME_BUCKETS: usize = (1 + OCTAVES * STEPS) as usize;

/// Batch sizes up to this one each have a bucket of their own.
pub const BATCH_EXACT: u64 = 64;
/// Buckets of a batch histogram: 0..=64 exactly, then 65–127, 128–255,
/// 256–511 and more.
pub const BATCH_BUCKETS: usize = 69;

/// Position of the highest set bit, by halving: the BPF instruction set has no
/// count-leading-zeros.
#[inline(always)]
const fn log2(mut v: u64) -> u32 {
    let mut r = 0;
    if v >= 1 << 32 {
        v >>= 32;
        r += 32;
    }
    if v >= 1 << 16 {
        v >>= 16;
        r += 16;
    }
    if v >= 1 << 8 {
        v >>= 8;
        r += 8;
    }
    if v >= 1 << 4 {
        v >>= 4;
        r += 4;
    }
    if v >= 1 << 2 {
        v >>= 2;
        r += 2;
    }
    if v >= 2 {
        r += 1;
    }
    r
}

/// Bucket of a time in nanoseconds, always below [`TIME_BUCKETS`].
#[inline(always)]
#[must_use]
pub const fn time_bucket(ns: u64) -> usize {
    if ns < FIRST_NS {
        return 0;
    }
    let octave = log2(ns);
    if octave >= FIRST_LOG2 + OCTAVES {
        return TIME_BUCKETS - 1;
    }
    let step = (ns >> (octave - 3)) & 7;
    (1 + (octave - FIRST_LOG2) * STEPS) as usize + step as usize
}

/// Smallest time of a bucket, in nanoseconds.
#[must_use]
pub const fn time_bucket_low_ns(bucket: usize) -> u64 {
    if bucket == 0 {
        return 0;
    }
    let at = bucket as u64 - 1;
    let octave = at / STEPS as u64;
    let step = at % STEPS as u64;
    (FIRST_NS << octave) + (FIRST_NS << octave) / STEPS as u64 * step
}

/// First time beyond a bucket, in nanoseconds. The last bucket is taken to be
/// as wide as its neighbours, though it holds all that is longer.
#[must_use]
pub const fn time_bucket_high_ns(bucket: usize) -> u64 {
    if bucket == 0 {
        return FIRST_NS;
    }
    time_bucket_low_ns(bucket + 1)
}

/// Bucket of a batch size in packets, always below [`BATCH_BUCKETS`].
#[inline(always)]
#[must_use]
pub const fn batch_bucket(packets: u64) -> usize {
    if packets <= BATCH_EXACT {
        packets as usize
    } else if packets < 128 {
        65
    } else if packets < 256 {
        66
    } else if packets < 512 {
        67
    } else {
        68
    }
}

/// Smallest batch size of a bucket, in packets.
#[must_use]
pub const fn batch_bucket_low(bucket: usize) -> u64 {
    match bucket {
        0..=65 => bucket as u64,
        66 => 128,
        67 => 256,
        _ => 512,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_starts_where_the_one_before_ends() {
        for bucket in 0..TIME_BUCKETS - 1 {
            let low = time_bucket_low_ns(bucket);
            let high = time_bucket_high_ns(bucket);
            assert_eq!(time_bucket(low), bucket, "low edge of {bucket}");
            assert_eq!(time_bucket(high - 1), bucket, "high edge of {bucket}");
            assert_eq!(time_bucket(high), bucket + 1);
        }
    }

    #[test]
    fn a_bucket_is_at_most_an_eighth_wide() {
        for bucket in 1..TIME_BUCKETS - 1 {
            let low = time_bucket_low_ns(bucket);
            let high = time_bucket_high_ns(bucket);
            assert!((high - low) * 8 <= low, "bucket {bucket}: {low}..{high}");
        }
    }

    #[test]
    fn times_beyond_the_last_octave_stay_in_the_last_bucket() {
        assert!(time_bucket_low_ns(TIME_BUCKETS - 1) > 1_000_000_000);
        assert_eq!(time_bucket(u64::MAX), TIME_BUCKETS - 1);
        assert_eq!(time_bucket(1 << 31), TIME_BUCKETS - 1);
        assert_eq!(time_bucket((1 << 31) - 1), TIME_BUCKETS - 1);
        assert_eq!(time_bucket(0), 0);
    }

    #[test]
    fn batch_sizes_up_to_the_kernels_cap_are_exact() {
        for size in 0..=BATCH_EXACT {
            assert_eq!(batch_bucket(size), size as usize);
            assert_eq!(batch_bucket_low(size as usize), size);
        }
        for (size, bucket) in [(65, 65), (127, 65), (128, 66), (256, 67), (512, 68)] {
            assert_eq!(batch_bucket(size), bucket);
        }
        assert_eq!(batch_bucket(u64::MAX), BATCH_BUCKETS - 1);
    }
}
