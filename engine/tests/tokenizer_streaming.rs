//! Text that streams token by token is the text that is decoded at once, and no piece splits a character.

mod common;

use ssm_engine::tokenizer::Tokenizer;

fn tokenizer() -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), common::tokenizer().to_string()).unwrap();
    Tokenizer::open(folder.path()).unwrap()
}

fn pieces(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<String> {
    let mut stream = tokenizer.stream();
    let mut pieces: Vec<String> = tokens.iter().map(|&token| stream.push(token).unwrap()).collect();
    pieces.push(stream.finish().unwrap());
    pieces
}

#[test]
fn tokens_are_bytes_in_the_tiny_tokenizer() {
    let tokens = tokenizer().encode("Aé <|endoftext|>").unwrap();
    assert_eq!(tokens, [0x41, 0xc3, 0xa9, 0x20, common::END]);
}

#[test]
fn characters_of_several_tokens_come_whole() {
    let tokenizer = tokenizer();
    let text = "Ein Bär, ein Zeichen: 水, und 🐻!";
    let tokens = tokenizer.encode(text).unwrap();
    assert_eq!(tokens.len(), text.len());
    let pieces = pieces(&tokenizer, &tokens);
    assert_eq!(pieces.concat(), text);
    assert!(pieces.iter().all(|piece| piece.chars().count() <= 1));
    assert!(!pieces.concat().contains(char::REPLACEMENT_CHARACTER));
}

#[test]
fn bytes_that_are_no_text_are_replaced_and_hold_nothing_back_for_long() {
    let tokenizer = tokenizer();
    // A lone continuation byte, a character cut short, a byte that never occurs, then text.
    let tokens: Vec<u32> = [&[0x80, 0xf0, 0x9f, 0x41, 0xff, 0xff, 0xff, 0xff, 0xff], &b"good"[..]]
        .concat()
        .iter()
        .map(|&b| b.into())
        .collect();
    let pieces = pieces(&tokenizer, &tokens);
    let text = pieces.concat();
    assert!(text.contains('A') && text.ends_with("good"), "{text:?}");
    assert!(text.contains(char::REPLACEMENT_CHARACTER));
    let empty_run = pieces.split(|piece| !piece.is_empty()).map(<[String]>::len).max();
    assert!(empty_run < Some(4), "{pieces:?}");
}

#[test]
fn a_character_cut_short_at_the_end_is_shown_as_replaced() {
    let tokenizer = tokenizer();
    let pieces = pieces(&tokenizer, &[0x41, 0xe6, 0xb0]);
    assert_eq!(pieces.concat(), "A\u{fffd}");
}

#[test]
fn special_tokens_leave_no_text() {
    let tokenizer = tokenizer();
    assert_eq!(pieces(&tokenizer, &[0x41, common::END, 0x42]).concat(), "AB");
}

#[test]
fn genuine_replacement_characters_survive() {
    let tokenizer = tokenizer();
    let text = "a\u{fffd}b\u{fffd}";
    assert_eq!(pieces(&tokenizer, &tokenizer.encode(text).unwrap()).concat(), text);
}
