//! Runs bindgen over `wrapper.h`.

use bindgen::callbacks::{EnumVariantCustomBehavior, EnumVariantValue, ParseCallbacks};
use bindgen::{Builder, EnumVariation, Formatter, RustEdition, RustTarget};
use syn::Item;

use crate::{Error, Headers, Set};

/// Declarations from some headers.
#[derive(Debug)]
pub struct Generated {
    /// In bindgen's order.
    pub items: Vec<Item>,
    /// Version of bindgen.
    pub bindgen: String,
}

/// Keeps these enum constants alone.
#[derive(Debug)]
struct Only(&'static [&'static str]);

impl ParseCallbacks for Only {
    fn enum_variant_behavior(
        &self,
        _: Option<&str>,
        variant: &str,
        _: EnumVariantValue,
    ) -> Option<EnumVariantCustomBehavior> {
        (!self.0.contains(&variant)).then_some(EnumVariantCustomBehavior::Hide)
    }
}

/// Declarations of `functions`, and of the types that they need. A function that the headers do not have is left out.
pub fn run(set: &Set, headers: &Headers, functions: &[String]) -> Result<Generated, Error> {
    // bindgen panics where libclang is missing; it does not load what its thread has loaded already.
    if !clang_sys::is_loaded() {
        clang_sys::load().map_err(|reason| Error::Absent(format!("bindgen needs libclang: {reason}\n{INSTALL}")))?;
    }
    let folder = headers.include.display();
    let include = headers.include.to_str().ok_or_else(|| Error::Failed(format!("{folder} is not UTF-8")))?;
    // The first with edition 2024, which bindgen does not take for granted.
    let rust = RustTarget::stable(85, 0).map_err(|error| Error::Failed(error.to_string()))?;
    let mut builder = Builder::default()
        .header_contents("wrapper.h", set.wrapper)
        .clang_args(["-D__HIP_PLATFORM_AMD__", "-isystem", include])
        .rust_target(rust)
        .rust_edition(RustEdition::Edition2024)
        .use_core()
        .formatter(Formatter::None)
        .parse_callbacks(Box::new(Only(set.constants)))
        // An integer: newer libraries return codes that no fixed enum has, and such a value in a Rust enum is undefined.
        .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: false })
        .prepend_enum_name(false)
        .layout_tests(true)
        .merge_extern_blocks(true)
        // The text differs from version to version, and belongs to HIP's documentation.
        .generate_comments(false);
    for function in functions {
        builder = builder.allowlist_function(function);
    }
    for name in set.opaque {
        builder = builder.opaque_type(name).allowlist_type(name);
    }
    let unreadable = |error| Error::Failed(format!("bindgen could not read the HIP headers in {folder}:\n{error}"));
    let output = builder.generate().map_err(unreadable)?.to_string();
    // Its first line is the one place where bindgen says its version.
    let bindgen = output.split_once("rust-bindgen ").and_then(|(_, rest)| rest.split(' ').next());
    let file =
        syn::parse_str::<syn::File>(&output).map_err(|error| Error::Failed(format!("bindgen's output: {error}")))?;
    Ok(Generated {
        items: file.items.into_iter().map(on_64_bits).collect(),
        bindgen: bindgen.unwrap_or("of unknown version").to_owned(),
    })
}

/// HIP is a library for 64 bits. Elsewhere its layouts are not those of the assertions, and the file has to compile still.
fn on_64_bits(item: Item) -> Item {
    match item {
        Item::Const(mut item) if item.ident == "_" => {
            item.attrs.insert(0, syn::parse_quote!(#[cfg(target_pointer_width = "64")]));
            Item::Const(item)
        }
        item => item,
    }
}

/// What to do where there is no libclang.
const INSTALL: &str = "\
on Debian and Ubuntu: sudo apt-get install libclang1-19 libclang-common-19-dev (the package clang-19 brings both)
elsewhere: clang of version 16 or newer; LIBCLANG_PATH names the folder of the library where it is not found";
