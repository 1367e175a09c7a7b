"""The public names and where each lives; `__init__.py` reads this list and imports a name on its first use."""

from .audits.attack import attack as attack
from .audits.attack_result import AttackAudit as AttackAudit, load_attack as load_attack
from .audits.audit import audit as audit
from .audits.compare import compare as compare
from .audits.comparison import Comparison as Comparison
from .audits.decisions import DecisionAudit as DecisionAudit, audit_decisions as audit_decisions, load_decisions as load_decisions
from .audits.figure import Figure as Figure
from .audits.gate import Gate as Gate, gate as gate
from .audits.load import load as load
from .audits.recommend import Recommendation as Recommendation, recommend as recommend
from .audits.result import Audit as Audit, Audits as Audits
from .audits.variance import VarianceStudy as VarianceStudy, study_variance as study_variance
from .audits.width_study import WidthStudy as WidthStudy, load_width_study as load_width_study, study_width as study_width
from .collection import Source as Source, from_records as from_records, open_collection as open_collection
from .engines import EngineOptions as EngineOptions
from .engines.kinds import open_engine as open_engine
from .errors import SteadyscoreError as SteadyscoreError
from .measures.answers import (
    answer_flip as answer_flip,
    exact_match as exact_match,
    token_f1 as token_f1,
    verdict_accuracy as verdict_accuracy,
    verdict_flip as verdict_flip,
)
from .measures.decomposition import (
    order_marginal as order_marginal,
    order_residual as order_residual,
    silver_beta as silver_beta,
    slot_residual as slot_residual,
    variance_shares as variance_shares,
    width_decomposition as width_decomposition,
    width_effect as width_effect,
)
from .measures.ensembles import borda as borda, ensembles as ensembles
from .measures.flips import change as change
from .measures.instability import (
    adjacent_ties as adjacent_ties,
    normalized_residual as normalized_residual,
    pool_psi as pool_psi,
    rank_variance as rank_variance,
    score_variance as score_variance,
    tau_b_psi as tau_b_psi,
    tau_psi as tau_psi,
    tied_pairs as tied_pairs,
    top_k_instability as top_k_instability,
    zeng_psi as zeng_psi,
)
from .measures.intervals import mean_interval as mean_interval, paired_interval as paired_interval
from .measures.measurement import Coverage as Coverage, measure as measure
from .measures.preference import (
    first_place_bias as first_place_bias,
    gold_crossing as gold_crossing,
    label_accuracy as label_accuracy,
    pair as pair,
    pair_flip as pair_flip,
    selected_quality_flip as selected_quality_flip,
    selection_flip as selection_flip,
    swap_accuracy as swap_accuracy,
    swap_flip as swap_flip,
)
from .measures.ranking import (
    average_precision as average_precision,
    best_ndcg as best_ndcg,
    mean_ndcg as mean_ndcg,
    ndcg as ndcg,
    order_spread as order_spread,
    recall as recall,
    reciprocal_rank as reciprocal_rank,
    worst_ndcg as worst_ndcg,
)
from .measures.registry import MEASURES as MEASURES
from .measures.threshold import (
    Cutoff as Cutoff,
    Threshold as Threshold,
    f1_spread as f1_spread,
    fit_cutoff as fit_cutoff,
    overlap as overlap,
    retained as retained,
    retained_f1 as retained_f1,
    retained_top_k as retained_top_k,
    retention as retention,
    set_flip_rate as set_flip_rate,
)
from .runs.folder import Run as Run
from .runs.score_file import read_scores as read_scores
from .runs.table import Scored as Scored
from .scoring.ray_launcher import Cluster as Cluster
from .scoring.rerank import Ranking as Ranking, rerank as rerank
from .scoring.score import (
    AuditConfig as AuditConfig,
    Cut as Cut,
    open_scorer as open_scorer,
    score_collection as score_collection,
)
from .scoring.scorer import Scorer as Scorer, Settings as Settings
from .terms import (
    Candidate as Candidate,
    Collection as Collection,
    Failure as Failure,
    Instance as Instance,
    Presentation as Presentation,
)
from .training.labelling import LabelConfig as LabelConfig, Labelled as Labelled, label as label
from .training.recipe import TrainConfig as TrainConfig
from .training.teachers import TeacherStudy as TeacherStudy, study_teachers as study_teachers
from .training.train import Trained as Trained, train as train
from .window.presentation import permutations as permutations

__version__: str
