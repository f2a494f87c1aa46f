//! Name patterns: `*` stands for any text, `?` for one character.

/// Whether the pattern fits the whole of the name.
#[must_use]
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Where to go on after a mismatch: behind the last star, one further in the
    // name than the last time.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    p = after;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name, expected) in [
            ("web1", "web1", true),
            ("web1", "web10", false),
            ("web*", "web10", true),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("?", "ä", true),
            ("web?", "web", false),
            ("*-db-*", "eu-db-7", true),
            ("*-db-*", "eu-web-7", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("**x", "xx", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_are_no_trouble() {
        let pattern = "*a".repeat(40);
        assert!(!fits(&pattern, &"a".repeat(39)));
        assert!(fits(&pattern, &"a".repeat(500)));
    }
}
