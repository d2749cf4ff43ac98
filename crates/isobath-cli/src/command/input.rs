//! Input: a file or standard input, and whether it may have been cut short unseen.
//!
//! Who reads a pipe cannot tell a writer that has ended from one that was killed or met an error,
//! and the shell tells of it too late or not at all. A regular file was written before, by a
//! command whose exit code was there to be seen. So commands that write ask more of what is no
//! regular file: that it says itself where it ends, or is not empty.

use crate::failure::{Failure, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;

pub(super) struct Input {
    reader: BufReader<File>,
    name: String,
    is_stream: bool,
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub(super) fn open(file: &Path) -> Result<Input> {
        let is_stdin = file == Path::new("-");
        let name = match is_stdin {
            true => "standard input".to_owned(),
            false => file.display().to_string(),
        };
        let opened = match is_stdin {
            true => std::io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(file),
        };
        let with_type = opened.and_then(|file| Ok((file.metadata()?.is_file(), file)));
        let (is_regular, file) = with_type.map_err(|error| unreadable(&name, &error))?;
        Ok(Input { reader: BufReader::new(file), name, is_stream: !is_regular })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A pipe, a terminal or a device: what a writer may have cut short unseen.
    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// True if the input begins so.
    pub(super) fn starts_with(&mut self, bytes: &[u8]) -> Result<bool> {
        let begin = self.reader.fill_buf().map_err(|error| unreadable(&self.name, &error))?;
        Ok(begin.starts_with(bytes))
    }

    /// Reads the next line into `line`, with its newline if it has one. False at the end.
    pub(super) fn line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        line.clear();
        let read = self.reader.read_until(b'\n', line);
        Ok(read.map_err(|error| unreadable(&self.name, &error))? > 0)
    }

    /// Reads all that is left, which may have so many bytes.
    pub(super) fn rest(&mut self, len_max: usize) -> Result<Vec<u8>> {
        let mut rest = Vec::new();
        let read = (&mut self.reader).take(len_max as u64 + 1).read_to_end(&mut rest);
        read.map_err(|error| unreadable(&self.name, &error))?;
        if rest.len() > len_max {
            let name = &self.name;
            let what = format!("{name} has more than {len_max} bytes; nothing was written");
            return Err(Failure::Request(what));
        }
        Ok(rest)
    }
}

fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::Request(format!("could not read {name}: {error}; nothing was written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_asked_for_is_refused_and_read_no_further() {
        let file = Path::new("/dev/zero");
        let told = Input::open(file).unwrap().rest(1000).unwrap_err().to_string();
        assert!(told.contains("/dev/zero has more than 1000 bytes"), "{told}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("value");
        std::fs::write(&file, [7; 1000]).unwrap();
        assert_eq!(Input::open(&file).unwrap().rest(1000).unwrap(), [7; 1000]);
        assert!(Input::open(&file).unwrap().rest(999).is_err());
    }
}
