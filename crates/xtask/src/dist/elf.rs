//! Whether an ELF file is static: whether the kernel can run it without an interpreter, that is a dynamic linker.
//!
//! Pure: bytes in, verdict out. Static position-independent files have a dynamic section, so that proves nothing.

use anyhow::{Context as _, bail, ensure};

/// Program header type of the path of the interpreter.
const PT_INTERP: u32 = 3;

/// Fails unless `file` is a 64-bit little-endian ELF file that names no interpreter.
pub(super) fn ensure_static(file: &[u8]) -> anyhow::Result<()> {
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
    let offset = usize::try_from(u64::from_le_bytes(bytes(file, 32)?))?;
    let size = usize::from(u16::from_le_bytes(bytes(file, 54)?));
    let number = usize::from(u16::from_le_bytes(bytes(file, 56)?));
    ensure!(number > 0, "no program headers: not an executable");
    for index in 0..number {
        let header =
            index.checked_mul(size).and_then(|at| at.checked_add(offset)).context("offset too large")?;
        if u32::from_le_bytes(bytes(file, header)?) == PT_INTERP {
            bail!("it is not static: it names a dynamic linker");
        }
    }
    Ok(())
}

fn bytes<const N: usize>(file: &[u8], at: usize) -> anyhow::Result<[u8; N]> {
    let end = at.checked_add(N).context("offset too large")?;
    Ok(file.get(at..end).context("the file is cut off")?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with the program headers of these types.
    fn file(types: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = u8::try_from(types.len()).unwrap();
        for type_ in types {
            file.extend(type_.to_le_bytes());
            file.extend([0; 52]);
        }
        file
    }

    #[test]
    fn a_file_is_static_when_it_names_no_interpreter() {
        const LOAD: u32 = 1;
        const DYNAMIC: u32 = 2;
        assert!(ensure_static(&file(&[LOAD, LOAD])).is_ok());
        assert!(ensure_static(&file(&[LOAD, DYNAMIC])).is_ok(), "position-independent");
        let error = ensure_static(&file(&[LOAD, PT_INTERP])).unwrap_err();
        assert!(error.to_string().contains("not static"), "{error}");
    }

    #[test]
    fn what_is_no_executable_is_refused() {
        let mut cut_off = file(&[1, 1]);
        cut_off.truncate(120);
        for refused in [Vec::new(), b"#!/bin/sh\n".to_vec(), file(&[]), cut_off] {
            assert!(ensure_static(&refused).is_err());
        }
    }

    #[test]
    fn this_test_is_dynamic_or_static_as_it_was_built() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(ensure_static(&this).is_ok(), cfg!(target_feature = "crt-static"));
    }
}
