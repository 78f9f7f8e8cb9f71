//! Declarations item by item, so that two files can be compared whatever their order and format.

use quote::ToTokens;
use syn::{ForeignItem, ImplItem, Item};

/// One declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Unique in its file: `struct hipDeviceProp_tR0600`, `fn hipMalloc`, `const hipError_t::hipSuccess`.
    pub name: String,
    /// Its text, printed from its tokens in one format.
    pub text: String,
}

/// Takes a file's items apart. Comments, the order of items, and attributes of the file are not part of it.
pub fn declarations(items: Vec<Item>) -> Vec<Declaration> {
    let parts = items.into_iter().flat_map(take_apart);
    parts.map(|(name, item)| Declaration { name, text: print(item) }).collect()
}

/// The item's text, in one format.
pub fn print(item: Item) -> String {
    prettyplease::unparse(&syn::File { shebang: None, attrs: Vec::new(), items: vec![item] })
}

/// An item, or its parts where they tell a difference better: functions of a foreign block, constants of a type.
fn take_apart(item: Item) -> Vec<(String, Item)> {
    match item {
        Item::ForeignMod(mut block) => {
            let parts = std::mem::take(&mut block.items);
            let with = |part| Item::ForeignMod(syn::ItemForeignMod { items: vec![part], ..block.clone() });
            parts.into_iter().map(|part| (foreign_name(&part), with(part))).collect()
        }
        Item::Impl(mut block) => {
            let parts = std::mem::take(&mut block.items);
            let of = block.self_ty.to_token_stream();
            let with = |part| Item::Impl(syn::ItemImpl { items: vec![part], ..block.clone() });
            parts.into_iter().map(|part| (format!("const {of}::{}", member_name(&part)), with(part))).collect()
        }
        item => vec![(item_name(&item), item)],
    }
}

fn foreign_name(item: &ForeignItem) -> String {
    match item {
        ForeignItem::Fn(function) => format!("fn {}", function.sig.ident),
        other => other.to_token_stream().to_string(),
    }
}

fn member_name(item: &ImplItem) -> String {
    match item {
        ImplItem::Const(constant) => constant.ident.to_string(),
        other => other.to_token_stream().to_string(),
    }
}

fn item_name(item: &Item) -> String {
    match item {
        Item::Struct(item) => format!("struct {}", item.ident),
        Item::Type(item) => format!("type {}", item.ident),
        // bindgen's layout assertions have no name; their first message is "Size of" the struct.
        Item::Const(item) if item.ident == "_" => {
            let text = item.expr.to_token_stream().to_string();
            let of = text.split("\"Size of ").nth(1).and_then(|rest| rest.split('"').next());
            format!("layout of {}", of.unwrap_or(&text))
        }
        other => other.to_token_stream().to_string(),
    }
}
