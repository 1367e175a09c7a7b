"""The measure functions and where each lives; `__init__.py` reads this list and imports a name on its first use."""

from .answers import (
    answer_flip as answer_flip,
    exact_match as exact_match,
    token_f1 as token_f1,
    verdict_accuracy as verdict_accuracy,
    verdict_flip as verdict_flip,
)
from .decomposition import (
    collection_shares as collection_shares,
    order_marginal as order_marginal,
    order_residual as order_residual,
    silver_beta as silver_beta,
    slot_residual as slot_residual,
    variance_shares as variance_shares,
    width_decomposition as width_decomposition,
    width_effect as width_effect,
)
from .preference import change as change
from .instability import (
    adjacent_ties as adjacent_ties,
    buckets as buckets,
    delta_ndcg as delta_ndcg,
    gold_rank_variance as gold_rank_variance,
    normalized_residual as normalized_residual,
    pool_psi as pool_psi,
    rank_variance as rank_variance,
    score_variance as score_variance,
    tau_b_psi as tau_b_psi,
    tau_psi as tau_psi,
    tie_sensitivity as tie_sensitivity,
    tied_pairs as tied_pairs,
    top_k_changed as top_k_changed,
    top_k_instability as top_k_instability,
    zeng_psi as zeng_psi,
    zeng_psi_corpus as zeng_psi_corpus,
)
from .intervals import mean_interval as mean_interval, paired_interval as paired_interval
from .measurement import Coverage as Coverage, measure as measure
from .preference import (
    benchmark_range as benchmark_range,
    benchmark_sd as benchmark_sd,
    first_place_bias as first_place_bias,
    gold_crossing as gold_crossing,
    label_accuracy as label_accuracy,
    label_accuracy_at_k as label_accuracy_at_k,
    pair as pair,
    pair_flip as pair_flip,
    selected_quality_flip as selected_quality_flip,
    selection_flip as selection_flip,
    swap_accuracy as swap_accuracy,
    swap_flip as swap_flip,
)
from .ranking import (
    average_precision as average_precision,
    best_ndcg as best_ndcg,
    chance_ndcg as chance_ndcg,
    delta_ndcg_pool as delta_ndcg_pool,
    mean_ndcg as mean_ndcg,
    ndcg as ndcg,
    order_spread as order_spread,
    recall as recall,
    reciprocal_rank as reciprocal_rank,
    worst_ndcg as worst_ndcg,
)
from .registry import MEASURES as MEASURES
from .retained_sets import (
    chance_overlap as chance_overlap,
    churned_relevance as churned_relevance,
    empty_sets as empty_sets,
    f1_spread as f1_spread,
    overlap as overlap,
    overlap_nonempty as overlap_nonempty,
    retained as retained,
    retained_f1 as retained_f1,
    retained_top_k as retained_top_k,
    retention as retention,
    set_flip_rate as set_flip_rate,
)
from .threshold import Cutoff as Cutoff, Threshold as Threshold, fit_cutoff as fit_cutoff
from .views import borda as borda, ensembles as ensembles
