"""Fields of other rerank APIs that are not honoured here, where the answer would be another one: refused.

Whatever else a shape of others does not know is ignored, as the original does: `user`, `priority`, `request_id`, `cache_salt`,
`padding`, `mm_processor_kwargs` (there are no images), `return_documents` where answers never carry any.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

UNHONOURED: dict[str, dict[str, tuple[Any, ...]]] = {
    "title and text are read, in this order": {"rank_fields": (["text"], ["title", "text"])},
    "no document is cut into chunks, its beginning is read": {"max_chunks_per_doc": (1,), "max_chunk_per_doc": (1,)},
    "say max_tokens_per_doc, or truncate with `texts` on /rerank": {
        "max_doc_length": (), "truncate_prompt_tokens": (-1,), "truncation_side": ("right",), "truncation": (True,),
        "truncate": (True,), "truncation_direction": ("right", "Right"),
    },
    "scores are from 0 to 1, and raw ones are given with `texts` on /rerank": {
        "use_activation": (True,), "activation": (True,), "softmax": (True,), "raw_scores": (False,),
    },
    "the prompt is the server's; say instruction": {"chat_template": (), "chat_template_kwargs": ({},)},
    "say top_n": {"top_k": ()},
    "say return_documents": {"return_text": (False,)},
    "there are none": {"return_embeddings": (False,)},
}  # fmt: skip
"""What to say, and each field with the values that ask for nothing else than what is done anyway."""


def unhonoured_mistakes(body: dict[str, Any], known: Collection[str]) -> list[str]:
    """A sentence for each of these fields in a body, other than those that its shape knows."""
    return [
        f"{name} is not honoured here: {words}. Leave it out"
        for words, names in UNHONOURED.items()
        for name, harmless in names.items()
        if name not in known and (value := body.get(name)) is not None and value not in harmless
    ]
