"""Our one extra key beside typed questions: how the list in a state is presented, and how the answers moved.

`order` of a request to `/v1/systemone` and `/v1/decisions`, and of its answer.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from ..machine.schemas import Closed, Count, Real, Seed, check_characters

PATH = r"^\$(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\]|\['[^']*'\])*$"
Path = Annotated[str, Field(pattern=PATH, examples=["$.candidates"]), AfterValidator(check_characters)]
Readout = Literal["state", "alone", "window"]


class DecisionOrder(Closed):
    """Our one extra key of a request: how the list in the state is presented, and what to tell about it."""

    readout: Readout = Field(
        default="state",
        description="state: every question behind the whole state. alone: each question behind a state that holds only the "
        "member it names, so no order is left. window: `score` questions of four levels by the model's own shared window.",
    )
    pool: Path = Field(default="$.candidates", description="Where the state holds the list that may be reordered.")
    query: Path = Field(default="$.query", description="Where the state holds the query, for the window.")
    permutations: Count = Field(default=1, description="1: the order given. More: the mean over this many random orders.")
    seed: Seed = 0
    width: Count | None = Field(default=None, description="Documents per prompt, for the window.")
    threshold: Real | None = Field(default=None, description="Also say which `score` answers reach this level.")


class QuestionStability(BaseModel):
    """How one answer moved over the presentations."""

    agreement: float = Field(
        description="Share of presentations that decide as their mean does: the likelier side, the option, the likeliest level; "
        "with a threshold, whether the score reaches it."
    )
    sd: float | None = Field(default=None, description="Standard deviation of the score or the probability.")
    kept: bool | None = Field(default=None, description="Whether the score reaches the threshold.")
    label_mass: float | None = None


class DecisionOrderAnswer(BaseModel):
    """Our one extra key of an answer; present where the request has `order`."""

    readout: Readout
    permutations: int = Field(description="Presentations behind each answer.")
    order_free: bool = Field(description="Whether the order of the list cannot change an answer by construction.")
    questions: list[QuestionStability] = Field(description="In the order of the questions.")
