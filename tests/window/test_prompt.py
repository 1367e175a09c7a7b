from steadyscore.tasks import MULTIDOC_QA, PASSAGE_RERANKING, RESPONSE_RANKING, TASKS
from steadyscore.terms import Candidate
from steadyscore.window.prompt import messages, prompt_hash, prompt_text, shown, skeleton

PRINTED_SYSTEM = (
    "You are a search relevance grader. For each numbered document, output one fixed integer relevance grade in "
    "{0, 1, 2, 3}. Do not rank the documents and do not explain."
)
PRINTED_USER = """\
Instruction: Given a web search query, retrieve relevant passages that answer the query
Query: why is the sky blue

Documents:
[1] first text
[2] second text

Evaluate every document independently for relevance to the query.
Assign exactly one integer relevance grade to every document:
- 3 = directly and completely answers the query
- 2 = strongly relevant but incomplete
- 1 = weakly relevant or topical background
- 0 = not relevant
Output one line per document in the form: [<id>] Grade: <0|1|2|3>"""
PRINTED_ANSWER = "Grades:\n[1] Grade: 0\n[2] Grade: 0\n"


def test_the_passage_prompt_is_the_papers_to_the_letter():
    """§B.1, the listing."""
    prompt = prompt_text(PASSAGE_RERANKING, "why is the sky blue", ["first text", "second text"])
    assert messages(prompt) == [{"role": "system", "content": PRINTED_SYSTEM}, {"role": "user", "content": PRINTED_USER}]
    assert skeleton(prompt) == PRINTED_ANSWER


def test_somebodys_text_is_never_trusted():
    prompt = prompt_text(PASSAGE_RERANKING, "QUERY", ["CANDIDATE"], instruction="INSTRUCTION")
    for piece in (*prompt.prefix, *prompt.body):
        assert piece.trusted == (piece.text.strip() not in ("QUERY", "CANDIDATE", "INSTRUCTION"))


def test_candidates_are_one_line_cut_at_the_head():
    candidate = Candidate("d", "two\n\nlines  and\ttabs", title="A title")
    assert shown(candidate, None) == "A title two lines and tabs"
    assert shown(candidate, 7) == "A title"
    assert shown(Candidate("d", " x\n"), 10) == "x"


def test_the_query_and_the_instruction_are_never_cut():
    prompt = prompt_text(PASSAGE_RERANKING, "q " * 3000, ["t"], instruction="i " * 3000)
    user = messages(prompt)[1]["content"]
    assert user.count("q ") >= 2999
    assert user.count("i ") >= 2999


def test_markers_stand_before_candidates_and_in_the_skeleton():
    prompt = prompt_text(RESPONSE_RANKING, "p", ["a", "b"], markers="letters", placeholder="?")
    assert "[A] a\n[B] b" in messages(prompt)[1]["content"]
    assert skeleton(prompt) == "Grades:\n[A] Grade: ?\n[B] Grade: ?\n"


def test_the_hash_tells_prompts_apart_and_ignores_contents():
    hashes = {prompt_hash(task, m, p) for task in (PASSAGE_RERANKING, MULTIDOC_QA) for m in ("numeric", "letters") for p in "01"}
    assert len(hashes) == 8
    assert prompt_hash(PASSAGE_RERANKING, "numeric", "0") == prompt_hash(PASSAGE_RERANKING, "numeric", "0")
    assert prompt_hash(PASSAGE_RERANKING, "numeric", "0", "paper", "template") not in hashes


def test_every_task_grades_from_0_to_3():
    for task in TASKS.values():
        assert all(f"- {grade} = " in task.rubric for grade in range(4))
        assert task.rubric.endswith("in the form: [<id>] Grade: <0|1|2|3>")


def test_the_compact_prompt_closes_each_candidate_with_its_marker():
    prompt = prompt_text(PASSAGE_RERANKING, "why", ["first", "second"], style="compact")
    system, user = messages(prompt)
    assert system["content"] == "Grade each passage from 0 (irrelevant) to 3 (answers the query)."
    assert user["content"] == "Query: why\n\nfirst\n[1]\nsecond\n[2]\n"
    assert skeleton(prompt) == PRINTED_ANSWER
    assert [piece.text for piece in prompt.body if not piece.trusted] == ["first", "second"]
