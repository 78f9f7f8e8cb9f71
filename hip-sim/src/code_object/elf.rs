//! The ELF file: what is loaded, where it says its symbols are, and what has to be patched.

use std::ops::Range;

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, Rela as _, Sym as _};
use object::{LittleEndian, SymbolIndex};

use super::{LoadError, malformed};
use crate::isa::Arch;

type Header = FileHeader64<LittleEndian>;
const E: LittleEndian = LittleEndian;

/// `EI_OSABI` of the HSA runtime, and the `EI_ABIVERSION` of code objects 5 and 6.
const OSABI_HSA: u8 = 64;
const ABI_VERSIONS: [u8; 2] = [3, 4];

/// The relocations that a linked code object may have.
const R_ABS32_LO: u32 = 1;
const R_ABS32_HI: u32 = 2;
const R_ABS64: u32 = 3;
const R_ABS32: u32 = 6;
const R_RELATIVE64: u32 = 13;

/// Larger images are refused: an address in a damaged header would ask for all memory.
const IMAGE_MAX: u64 = 1 << 30;

/// A loaded part of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its first byte in the image.
    pub offset: u64,
    /// Bytes, zeros behind the file's part included.
    pub size: u64,
    /// The kernel may write it.
    pub writable: bool,
    /// It holds instructions.
    pub executable: bool,
}

impl Segment {
    /// Its bytes, as offsets in the image.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.size
    }
}

/// A named place in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// As the compiler wrote it.
    pub name: String,
    /// Offset in the image.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// It is a variable.
    pub object: bool,
}

/// A place where an address has to be written once the image has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Offset of the place.
    pub at: u64,
    /// Offset in the image of what it points to.
    pub target: u64,
    /// First bit of the address that is written, and bytes.
    pub part: (u32, usize),
}

/// The loaded form of a code object, with offsets instead of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its bytes; between segments they are zero.
    pub bytes: Vec<u8>,
    /// The loaded segments.
    pub segments: Vec<Segment>,
    /// Symbols, of both tables.
    pub symbols: Vec<Symbol>,
    /// Places to patch.
    pub relocations: Vec<Relocation>,
}

impl Image {
    /// Bytes at an offset, if they are loaded.
    pub fn bytes_at(&self, offset: u64, size: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset).ok()?;
        self.bytes.get(at..at.checked_add(size)?)
    }

    /// The function that covers an offset, with the distance from its start.
    pub fn function_at(&self, offset: u64) -> Option<(&str, u64)> {
        let covers =
            |symbol: &&Symbol| !symbol.object && (symbol.offset..symbol.offset + symbol.size).contains(&offset);
        self.symbols.iter().find(covers).map(|symbol| (symbol.name.as_str(), offset - symbol.offset))
    }
}

/// Bytes of an ELF file, from its first 64: the tables lie at its ends.
///
/// For `hipModuleLoadData`, which is given an address and no length.
///
/// # Errors
///
/// When the header is none.
pub fn elf_length(header: &[u8]) -> Result<usize, LoadError> {
    let header = Header::parse(header).map_err(|error| LoadError::NotAnImage(error.to_string()))?;
    let table = |offset: u64, entry: u16, count: u16| offset.checked_add(u64::from(entry) * u64::from(count));
    let sections = table(header.e_shoff(E), header.e_shentsize(E), header.e_shnum(E));
    let segments = table(header.e_phoff(E), header.e_phentsize(E), header.e_phnum(E));
    let end = sections.zip(segments).map(|(a, b)| a.max(b)).filter(|&end| end <= IMAGE_MAX);
    end.map(|end| end as usize).ok_or_else(|| malformed("ELF header"))
}

/// The architecture (none where it is not simulated), the image, and the metadata note.
pub(super) fn read(bytes: &[u8]) -> Result<(Option<Arch>, Image, Vec<u8>), LoadError> {
    let broken = |what: &'static str| move |error: object::Error| malformed(format!("{what}: {error}"));
    let header = Header::parse(bytes).map_err(|error| LoadError::NotAnImage(error.to_string()))?;
    if !header.is_class_64() || !header.is_little_endian() {
        return Err(LoadError::NotAnImage("not a little-endian ELF file of 64 bits".into()));
    }
    let ident = header.e_ident();
    let machine = header.e_machine(E);
    let wrong = if machine != elf::EM_AMDGPU {
        Some(format!("machine {machine:?}, not that of AMD GPUs"))
    } else if header.e_type(E) != elf::ET_DYN {
        Some("not a shared object: it was not linked".to_owned())
    } else if ident.os_abi != elf::OsAbi(OSABI_HSA) || !ABI_VERSIONS.contains(&ident.abi_version) {
        Some(format!("ABI {:?} version {}: HSA code objects 5 and 6 have 64, 3 and 4", ident.os_abi, ident.abi_version))
    } else {
        None
    };
    if let Some(wrong) = wrong {
        return Err(malformed(wrong));
    }
    let arch = Arch::from_elf_flags(header.e_flags(E).0);
    let program = header.program_headers(E, bytes).map_err(broken("program headers"))?;

    let mut segments = Vec::new();
    let mut end = 0;
    for segment in program.iter().filter(|segment| segment.p_type(E) == elf::PT_LOAD) {
        let (offset, size) = (segment.p_vaddr(E), segment.p_memsz(E));
        let last = offset.checked_add(size).filter(|&last| last <= IMAGE_MAX);
        end = end.max(last.ok_or_else(|| malformed("a segment beyond any image"))?);
        let flags = segment.p_flags(E);
        let (writable, executable) = (flags.contains(elf::PF_W), flags.contains(elf::PF_X));
        segments.push(Segment { offset, size, writable, executable });
    }
    let mut image = Image { bytes: vec![0; end as usize], segments, symbols: Vec::new(), relocations: Vec::new() };
    let mut note = None;
    for segment in program {
        let data = segment.data(E, bytes).map_err(|()| malformed("a segment beyond the file's end"))?;
        match segment.p_type(E) {
            elf::PT_LOAD => {
                let at = segment.p_vaddr(E) as usize;
                let place = image.bytes.get_mut(at..at + data.len());
                place.ok_or_else(|| malformed("a segment larger in the file than in memory"))?.copy_from_slice(data);
            }
            elf::PT_NOTE => note = note.or(find_note(segment, bytes)?),
            _ => {}
        }
    }
    let note = note.ok_or_else(|| malformed("no metadata note"))?;

    let sections = header.sections(E, bytes).map_err(broken("section headers"))?;
    for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
        let table = sections.symbols(E, bytes, kind).map_err(broken("symbols"))?;
        for symbol in table.iter().filter(|symbol| symbol.st_shndx(E) != elf::SHN_UNDEF) {
            let name = table.symbol_name(E, symbol).map_err(broken("symbol name"))?;
            let name = String::from_utf8_lossy(name).into_owned();
            let object = symbol.st_type() != elf::STT_FUNC;
            let (offset, size) = (symbol.st_value(E), symbol.st_size(E));
            let known = image.symbols.iter().any(|other| other.name == name && other.offset == offset);
            let sane = offset.checked_add(size).is_some_and(|last| last <= end);
            if !known && sane && !name.is_empty() {
                image.symbols.push(Symbol { name, offset, size, object });
            }
        }
    }
    image.relocations = relocations(header, bytes, &image)?;
    Ok((arch, image, note))
}

fn find_note(segment: &elf::ProgramHeader64<LittleEndian>, bytes: &[u8]) -> Result<Option<Vec<u8>>, LoadError> {
    /// `NT_AMDGPU_METADATA`.
    const METADATA: elf::NoteType = elf::NoteType(32);
    let broken = |error: object::Error| malformed(format!("notes: {error}"));
    let Some(mut notes) = segment.notes(E, bytes).map_err(broken)? else { return Ok(None) };
    while let Some(note) = notes.next().map_err(broken)? {
        if note.name() == b"AMDGPU" && note.n_type(E) == METADATA {
            return Ok(Some(note.desc().to_vec()));
        }
    }
    Ok(None)
}

/// The dynamic relocations, by the dynamic table: sections may be stripped.
fn relocations(header: &Header, bytes: &[u8], image: &Image) -> Result<Vec<Relocation>, LoadError> {
    let broken = |what: &'static str| move |error: object::Error| malformed(format!("{what}: {error}"));
    let sections = header.sections(E, bytes).map_err(broken("section headers"))?;
    let symbols = sections.symbols(E, bytes, elf::SHT_DYNSYM).map_err(broken("dynamic symbols"))?;
    let program = header.program_headers(E, bytes).map_err(broken("program headers"))?;
    let mut table = None;
    for segment in program {
        for entry in segment.dynamic(E, bytes).map_err(broken("dynamic table"))?.unwrap_or(&[]) {
            match entry.d_tag(E) {
                elf::DT_RELA => table.get_or_insert((0, 0)).0 = entry.d_val(E),
                elf::DT_RELASZ => table.get_or_insert((0, 0)).1 = entry.d_val(E),
                elf::DT_REL | elf::DT_JMPREL => return Err(malformed("relocations of a kind no compiler writes here")),
                _ => {}
            }
        }
    }
    let Some((at, size)) = table else { return Ok(Vec::new()) };
    let data = usize::try_from(size).ok().and_then(|size| image.bytes_at(at, size));
    let data = data.ok_or_else(|| malformed("the relocation table lies outside the image"))?;
    let count = data.len() / size_of::<elf::Rela64<LittleEndian>>();
    let (entries, _) = object::pod::slice_from_bytes::<elf::Rela64<LittleEndian>>(data, count)
        .map_err(|()| malformed("relocation table"))?;
    let mut list = Vec::new();
    for entry in entries {
        let (offset, addend, kind) = (entry.r_offset(E), entry.r_addend(E), entry.r_type(E, false));
        let base = match SymbolIndex(entry.r_sym(E, false) as usize) {
            SymbolIndex(0) => 0,
            index => {
                let symbol = symbols.symbol(index).map_err(broken("relocated symbol"))?;
                if symbol.st_shndx(E) == elf::SHN_UNDEF {
                    return Err(malformed("a relocation against a symbol that is not defined"));
                }
                symbol.st_value(E)
            }
        };
        let part = match kind.0 {
            R_ABS64 | R_RELATIVE64 => (0, 8),
            R_ABS32 | R_ABS32_LO => (0, 4),
            R_ABS32_HI => (32, 4),
            _ => return Err(malformed(format!("relocation of kind {}", kind.0))),
        };
        image.bytes_at(offset, part.1).ok_or_else(|| malformed("a relocation outside the image"))?;
        list.push(Relocation { at: offset, target: base.wrapping_add_signed(addend), part });
    }
    Ok(list)
}
