//! `#[derive(Encode, Decode)]` for structs, see crate `denc` for what it writes.
//!
//! Attributes: on the struct `#[denc(v = N, compat = M)]` wraps the fields in a versioned section;
//! on a field `#[denc(since = N)]` reads it only from sections of version N or newer (else
//! `Default`), `#[denc(skip)]` leaves it out (read as `Default`).

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Fields, Index, LitInt, Member, parse_macro_input};

#[derive(Default)]
struct Section {
    v: Option<u8>,
    compat: u8,
}

#[derive(Default)]
struct FieldRule {
    since: Option<u8>,
    skip: bool,
}

fn section_of(attrs: &[Attribute]) -> syn::Result<Section> {
    let mut section = Section::default();
    for attr in attrs.iter().filter(|a| a.path().is_ident("denc")) {
        attr.parse_nested_meta(|meta| {
            let n: u8 = meta.value()?.parse::<LitInt>()?.base10_parse()?;
            if meta.path.is_ident("v") {
                section.v = Some(n);
            } else if meta.path.is_ident("compat") {
                section.compat = n;
            } else {
                return Err(meta.error("expected `v` or `compat`"));
            }
            Ok(())
        })?;
    }
    Ok(section)
}

fn rule_of(attrs: &[Attribute]) -> syn::Result<FieldRule> {
    let mut rule = FieldRule::default();
    for attr in attrs.iter().filter(|a| a.path().is_ident("denc")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                rule.skip = true;
            } else if meta.path.is_ident("since") {
                rule.since = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
            } else {
                return Err(meta.error("expected `since` or `skip`"));
            }
            Ok(())
        })?;
    }
    Ok(rule)
}

fn fields_of(input: &DeriveInput) -> syn::Result<Vec<(Member, FieldRule)>> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "only structs; write enums by hand"));
    };
    let member = |i: usize, f: &syn::Field| match &f.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index::from(i)),
    };
    match &data.fields {
        Fields::Unit => Ok(Vec::new()),
        fields => {
            fields.iter().enumerate().map(|(i, f)| Ok((member(i, f), rule_of(&f.attrs)?))).collect()
        }
    }
}

/// Derives `denc::Encode`.
#[proc_macro_derive(Encode, attributes(denc))]
pub fn derive_encode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand_encode(&input).unwrap_or_else(|e| e.to_compile_error()).into()
}

fn expand_encode(input: &DeriveInput) -> syn::Result<Tokens> {
    let section = section_of(&input.attrs)?;
    let fields = fields_of(input)?;
    let puts = fields
        .iter()
        .filter(|(_, rule)| !rule.skip)
        .map(|(member, _)| quote!(::denc::Encode::encode(&self.#member, e);));
    let body = match section.v {
        None => quote!(#(#puts)*),
        Some(v) => {
            let compat = section.compat;
            quote!(e.section(#v, #compat, |e| { #(#puts)* });)
        }
    };
    let name = &input.ident;
    let (generics, args, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::denc::Encode for #name #args #bounds {
            fn encode(&self, e: &mut ::denc::Encoder) { #body }
        }
    })
}

/// Derives `denc::Decode`.
#[proc_macro_derive(Decode, attributes(denc))]
pub fn derive_decode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand_decode(&input).unwrap_or_else(|e| e.to_compile_error()).into()
}

fn expand_decode(input: &DeriveInput) -> syn::Result<Tokens> {
    let section = section_of(&input.attrs)?;
    let fields = fields_of(input)?;
    let v = format_ident!("v");
    let reads = fields.iter().map(|(member, rule)| match rule {
        FieldRule { skip: true, .. } => quote!(#member: ::core::default::Default::default(),),
        FieldRule { since: Some(since), .. } => quote! {
            #member: if #v >= #since {
                ::denc::Decode::decode(d)?
            } else {
                ::core::default::Default::default()
            },
        },
        _ => quote!(#member: ::denc::Decode::decode(d)?,),
    });
    let build = quote!(Ok(Self { #(#reads)* }));
    let body = match section.v {
        None => build,
        Some(known) => quote! {
            d.section(#known, |d, #v| {
                let _ = #v;
                #build
            })
        },
    };
    let name = &input.ident;
    let (generics, args, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::denc::Decode for #name #args #bounds {
            fn decode(d: &mut ::denc::Decoder<'_>) -> ::core::result::Result<Self, ::denc::DecodeError> {
                #body
            }
        }
    })
}
