"""steadyscore audits, trains and serves LLM scorers whose decisions hold still when the candidates are reordered."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"

_MODULES = {
    "audits.audit": "audit",
    "audits.attack": "attack",
    "audits.attack_result": "AttackAudit load_attack",
    "audits.load": "load",
    "audits.decisions": "DecisionAudit audit_decisions load_decisions",
    "audits.result": "Audit Audits",
    "audits.compare": "compare",
    "audits.comparison": "Comparison",
    "audits.variance": "VarianceStudy study_variance",
    "audits.gate": "Gate gate",
    "audits.recommend": "Recommendation recommend",
    "audits.width_study": "WidthStudy load_width_study study_width",
    "audits.figure": "Figure",
    "terms": "Candidate Collection Failure Instance Presentation",
    "errors": "SteadyscoreError",
    "collection": "Source from_records open_collection",
    "scoring.rerank": "Ranking rerank",
    "engines": "EngineOptions",
    "engines.address": "open_engine",
    "training.train": "Trained train",
    "training.recipe": "TrainConfig",
    "training.labelling": "LabelConfig Labelled label",
    "training.teachers": "TeacherStudy study_teachers",
    "scoring.scorer": "Scorer Settings",
    "scoring.ray_launcher": "Cluster",
    "runs.table": "Scored",
    "runs.score_file": "read_scores",
    "runs.folder": "Run",
    "scoring.score": "AuditConfig Cut open_scorer score_collection",
    "measures.measurement": "Coverage Cutoff Threshold measure",
    "measures.registry": "MEASURES",
    "window.presentation": "permutations",
    "measures.ranking": "average_precision best_ndcg mean_ndcg ndcg order_spread recall reciprocal_rank worst_ndcg",
    "measures.instability": "adjacent_ties normalized_residual pool_psi rank_variance score_variance tau_b_psi tau_psi "
    "tied_pairs top_k_instability zeng_psi",
    "measures.flips": "change",
    "measures.threshold": "f1_spread fit_cutoff overlap retained retained_f1 retained_top_k retention set_flip_rate",
    "measures.preference": "gold_crossing label_accuracy pair pair_flip selected_quality_flip selection_flip",
    "measures.answers": "answer_flip exact_match token_f1 verdict_accuracy verdict_flip",
    "measures.decomposition": "order_marginal order_residual silver_beta slot_residual variance_shares "
    "width_decomposition width_effect",
    "measures.intervals": "mean_interval paired_interval",
    "measures.ensembles": "borda ensembles",
}
"""Module -> its public names. Imported on first use: `import steadyscore` costs nothing."""

_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
