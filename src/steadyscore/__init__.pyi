"""The public names and where each lives; `__init__.py` reads this list and imports a name on its first use."""

from . import measures as measures
from .studies.attack import attack as attack
from .studies.attack_result import AttackAudit as AttackAudit, load_attack as load_attack
from .audits.audit import audit as audit
from .audits.compare import compare as compare
from .audits.comparison import Comparison as Comparison
from .results.figure import Figure as Figure
from .audits.gate import Gate as Gate, gate as gate
from .audits.audits import load as load, load_all as load_all
from .audits.recommend import Recommendation as Recommendation, recommend as recommend
from .results.audit import Audit as Audit
from .audits.audits import Audits as Audits
from .studies.variance import VarianceStudy as VarianceStudy, study_variance as study_variance
from .studies.width import WidthStudy as WidthStudy, load_width_study as load_width_study, study_width as study_width
from .collection import Source as Source, from_records as from_records, open_collection as open_collection
from .decision_models.audit import audit_decisions as audit_decisions
from .decision_models.result import DecisionAudit as DecisionAudit, load_decisions as load_decisions
from .engines import EngineOptions as EngineOptions
from .engines.kinds import open_engine as open_engine
from .errors import SteadyscoreError as SteadyscoreError
from .measures.threshold import Threshold as Threshold
from .runs.folder import Run as Run
from .runs.score_file import read_scores as read_scores
from .runs.table import Scored as Scored
from .scoring.config import AuditConfig as AuditConfig, Cut as Cut
from .scoring.config import open_scorer as open_scorer
from .scoring.parts import Cluster as Cluster
from .scoring.rerank import Ranking as Ranking, rerank as rerank
from .scoring.score import score_collection as score_collection
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
from .studies.teachers import TeacherStudy as TeacherStudy, study_teachers as study_teachers
from .training.train import Trained as Trained, train as train
from .window.presentation import permutations as permutations

__version__: str
