"""Where memory runs out, passes are halved for good; what does not fit alone fails by name."""

import logging

import pytest
import torch

from steadyscore.engines.local.checks import probe_prompts
from steadyscore.engines.local.device import OutOfMemory, Passes, ran_out
from tests.engines.test_hf import engine
from tests.faults.cases.engine import refuse_large


def reads(most, tried):
    """Work that fits into `most` tokens."""

    def work(tokens):
        tried.append(tokens)
        if tokens > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return tokens

    return work


def test_passes_are_halved_until_they_fit_and_stay_so(caplog):
    passes, tried = Passes(4096), []
    assert passes.fit(reads(1500, tried), [1000] * 10) == 1024
    assert passes.fit(reads(1500, tried), [1000] * 10) == 1024
    assert tried == [4096, 2048, 1024, 1024]
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "memory ran out with 4,096 tokens in a pass" in warned[0]


def test_halving_begins_at_what_was_read_not_at_what_was_allowed():
    passes, tried = Passes(10**9), []
    passes.fit(reads(300, tried), [200, 200, 200])
    assert tried == [10**9, 300]


def test_what_does_not_fit_alone_fails_with_a_sentence():
    with pytest.raises(
        OutOfMemory, match=r"^3,000 tokens do not fit into memory, even alone \(CUDA out of memory.* Lower --width"
    ):
        Passes(4096).fit(reads(10, []), [3000, 100])


def test_other_mistakes_pass_through():
    with pytest.raises(RuntimeError, match="shapes"):
        Passes(4096).fit(lambda tokens: torch.zeros(2) @ raise_shapes(), [10])


def raise_shapes():
    raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


@pytest.mark.parametrize(
    ("fault", "is_memory"),
    [
        (RuntimeError("[enforce fail at alloc_cpu.cpp:129] . DefaultCPUAllocator: can't allocate memory: you tried ..."), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (MemoryError(), True),
        (RuntimeError("index out of range"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_that_ran_out_is_known_by_its_words(fault, is_memory):
    assert ran_out(fault) == is_memory


def test_a_window_that_does_not_fit_alone_fails_and_others_are_read():
    e = engine()
    prompts = probe_prompts(e)
    refuse_large(10, e)
    with pytest.raises(OutOfMemory):
        e.grade_logits(prompts)
    e.model.base_model.forward = type(e.model.base_model).forward.__get__(e.model.base_model)
    assert len(e.grade_logits(prompts)) == len(prompts)


def test_a_replica_that_halves_meanwhile_does_not_fail_what_fits():
    passes = Passes(8000)

    def work(tokens):
        if tokens == 8000:
            passes.tokens = 4000  # by another thread
            raise MemoryError
        return tokens

    assert passes.fit(work, [5000, 5000]) == 4000
