"""Prompts become tokens."""

import pytest
import tokenizers

from rrf.networks.vlm.configs import TokenizerCfg
from rrf.networks.vlm.tokenizer import build_tokenizer, padded


def test_known_words_have_their_own_token_and_unknown_words_share_one():
    tokenizer = build_tokenizer(TokenizerCfg(words=["open", "door"]), ["<pad>"])
    assert tokenizer.special("<pad>") == 0
    assert tokenizer.encode("Open the door, then a window") == [2, 1, 3, 1, 1, 1]
    assert tokenizer.num_tokens == 4


def test_a_file_is_read_and_saved_with_the_checkpoint(tmp_path):
    model = tokenizers.models.WordLevel({"open": 0, "door": 1, "<pad>": 2}, unk_token="<pad>")
    own = tokenizers.Tokenizer(model)
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    own.save(str(tmp_path / "tokenizer.json"))
    cfg = TokenizerCfg(files=str(tmp_path))
    tokenizer = build_tokenizer(cfg, ["<pad>"])
    assert tokenizer.encode("open door") == [0, 1]
    for name, text in tokenizer.assets().items():
        (tmp_path / "checkpoint").mkdir()
        (tmp_path / "checkpoint" / name).write_text(text)
    (tmp_path / "tokenizer.json").unlink()
    assert build_tokenizer(cfg, ["<pad>"], tmp_path / "checkpoint").encode("door") == [1]


def test_what_a_tokenizer_lacks_is_named(tmp_path):
    cfg = TokenizerCfg(files=str(tmp_path))
    with pytest.raises(ValueError, match="there is no tokenizer at"):
        build_tokenizer(cfg, [])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a tokenizer"):
        build_tokenizer(cfg, [])
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save(
        str(tmp_path / "tokenizer.json")
    )
    with pytest.raises(
        ValueError, match=r"lacks the special tokens <\|image_pad\|>; it belongs to"
    ):
        build_tokenizer(cfg, ["<|image_pad|>"])


def test_rows_are_padded_on_either_side():
    assert padded([[1, 2], [3]], 0) == ([[1, 2], [3, 0]], [[True, True], [True, False]])
    assert padded([[1, 2], [3]], 0, left=True)[0] == [[1, 2], [0, 3]]
