//! Output that comes in frames: a byte that names the stream, three zeros, the length,
//! and a piece of text. A line may take several frames.

use bytes::{Buf as _, Bytes};

/// Where a piece of output was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// Standard output.
    #[default]
    Out,
    /// Standard error.
    Err,
}

/// Takes frames apart, however they are cut.
#[derive(Debug, Default)]
pub(super) struct Frames {
    header: Vec<u8>,
    left: usize,
    output: Output,
}

impl Frames {
    /// The next piece in `data`, which is taken from it; `None` when all of it is.
    pub(super) fn next(&mut self, data: &mut Bytes) -> Option<(Output, Bytes)> {
        while !data.is_empty() {
            if self.left > 0 {
                let piece = data.split_to(data.len().min(self.left));
                self.left -= piece.len();
                return Some((self.output, piece));
            }
            self.header.push(data.get_u8());
            if let [stream, _, _, _, a, b, c, d] = self.header[..] {
                self.output = if stream == 2 {
                    Output::Err
                } else {
                    Output::Out
                };
                self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                self.header.clear();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_apart_however_they_are_cut() {
        let whole = b"\x01\0\0\0\0\0\0\x02hi\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\x03bad";
        for cut in 1..whole.len() {
            let mut frames = Frames::default();
            let (mut out, mut err) = (Vec::new(), Vec::new());
            for part in whole.chunks(cut) {
                let mut part = Bytes::copy_from_slice(part);
                while let Some((output, piece)) = frames.next(&mut part) {
                    match output {
                        Output::Out => out.extend_from_slice(&piece),
                        Output::Err => err.extend_from_slice(&piece),
                    }
                }
            }
            assert_eq!(
                (out.as_slice(), err.as_slice()),
                (&b"hi"[..], &b"bad"[..]),
                "{cut}"
            );
        }
    }
}
