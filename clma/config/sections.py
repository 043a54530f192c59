"""The settings as pydantic models: every one with its default and its range.

Unknown keys are refused: a misspelt threshold must not silently be the default.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from clma.methods import METHODS, required

__all__ = [
    "AggregationConfig",
    "ChoiceRule",
    "ClientConfig",
    "CohortingConfig",
    "DriftConfig",
    "FederationConfig",
    "GivenCohorts",
    "IdentityConfig",
    "OnboardingConfig",
    "PrivacyConfig",
    "RoundConfig",
]

_FOUND_THEIR_OWN = frozenset({"given", "local", "ifca", "pacfl", "fecfl"})
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
ModelAdapter = Literal["torch", "keras", "sklearn"]
"""Whose models a federation's weights belong to."""

Share = Literal["weights", "flag", "examples", "loss", "loss_vector", "signature", "choice"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RoundConfig(_Section):
    """When a round is due and how many clients it needs."""

    hours_open: Annotated[float, Field(gt=0, le=24 * 31)] = 20.0
    """Hours from opening to the deadline."""
    quorum: Annotated[int, Field(ge=1)] = 1
    """Fewest accepted updates; with less the round is held."""
    cohort_quorum: Annotated[int, Field(ge=1)] = 1
    """Fewest voting members of a cohort; with less that cohort keeps its model."""
    extra_requests: Annotated[int, Field(ge=0)] = 1
    """Clients that have to ask before a round is closed early; 0: requests are refused."""
    extra_after_hours: Annotated[float, Field(ge=0)] = 6.0
    """A round is not closed early before it was open for so long."""
    extra_wait_hours: Annotated[float, Field(ge=0)] = 1.0
    """How long after the first request the round waits for updates of the clients that asked."""


class DriftConfig(_Section):
    """The client's drift detector (algorithms: 7.2; Algorithm 2 for `loss_threshold`)."""

    detector: Literal["quiet_level", "anchored", "loss_threshold"] = "anchored"
    """`quiet_level`: against the worst of the last quiet losses; `anchored`: against the previous
    one; `loss_threshold`: the same by an absolute rise (Algorithm 2)."""
    loss_point: Literal["before", "after"] = "before"
    """Loss of the received model on fresh data before training, or of the trained one after it."""
    gamma: Annotated[float, Field(gt=0)] = 0.1
    """`loss_threshold`: absolute rise of the loss, in its own units."""
    patience: Annotated[int, Field(ge=1)] = 1
    """`loss_threshold`: rounds in a row above the last quiet loss."""
    anchor_fraction: Annotated[float, Field(ge=0)] = 0.05
    """`anchored`, `quiet_level`: a, share of the first recorded loss."""
    relative_rise: Annotated[float, Field(ge=0)] = 0.25
    """`anchored`, `quiet_level`: rho, share of the loss that is compared with."""
    z_score: Annotated[float, Field(ge=0)] = 3.0
    """`anchored`, `quiet_level`: z, standard errors of a difference of two mean losses; 0: off."""
    creep: bool = False
    """Also flag a slow rise: `anchored` over the lowest of the last five losses, `quiet_level` of
    three rounds over the three before."""
    recheck: bool = False
    """`quiet_level`: flag again when the model received after a flag left more than three
    quarters of the rise."""
    noise_ceiling: Annotated[float, Field(gt=0)] = 0.5
    """`quiet_level`: most that the noise excuses, as a share of the first recorded loss."""
    confirm: bool = True
    """A moved client says next round whether its origin's model is still bad; if not, it goes
    home."""
    confirm_rounds: Annotated[int, Field(ge=1, le=8)] = 1
    """Rounds after a move in which it is asked."""
    unstable_moves: Annotated[int, Field(ge=0)] = 0
    """A client that changes cohort more often than this within `unstable_window` rounds is parked:
    it votes nowhere and its flag is not followed. 0: nobody is parked."""
    unstable_window: Annotated[int, Field(ge=1, le=1000)] = 8
    """Rounds over which moves are counted."""
    unstable_rest: Annotated[int, Field(ge=1)] = 5
    """Rounds for which a client is parked; in the last one it joins a known cohort that its update
    points to."""
    probation: bool = False
    """A client's first update votes nowhere; it is compared with the known cohorts, and the client
    joins one that it points to. Not in the first round."""


class ChoiceRule(_Section):
    """When another cohort's model is clearly better than the client's own (`CohortingConfig`)."""

    ratio: Annotated[float, Field(gt=0, le=1)] = 0.5
    z_score: Annotated[float, Field(ge=0)] = 3.0


class CohortingConfig(_Section):
    """How quarantined clients become cohorts (algorithms: 1.4, 7.3 to 7.5)."""

    method: Literal[
        "cosine",
        "signed_ks",
        "single",
        "singletons",
        "given",
        "local",
        "ifca",
        "feddrift",
        "feddrift_eager",
        "cfl",
        "pacfl",
        "fecfl",
    ] = "cosine"
    """`cosine`: directions of updates; `signed_ks`: Algorithm 3; `single`: one cohort, flags are
    ignored (FedAvg); `singletons`: one cohort per drifted client; `given`: `schedule` decides;
    `local`: one cohort per client from the start. `ifca`, `feddrift`, `feddrift_eager`, `cfl`,
    `pacfl` and `fecfl` are the methods of those names."""
    selector: Literal["default", "all", "last_layers", "name_filter"] = "default"
    include: tuple[str, ...] = ()
    """`name_filter`: glob patterns of tensor names to use; empty means all."""
    exclude: tuple[str, ...] = ()
    """`name_filter` and `default`: glob patterns of tensor names to leave out."""
    last_layers: Annotated[int, Field(ge=1)] = 1
    layer_order: tuple[str, ...] = ()
    """`last_layers`: layer names, first to last; a safetensors file does not keep their order."""
    reference: Literal["sent", "consensus"] = "sent"
    """`sent`: the model that the client was sent, groups within one origin cohort; `consensus`:
    last round's average over all accepted updates, one pool (Algorithm 1 as listed)."""
    distance: Literal["exact", "sketch"] = "exact"
    """`exact`: inner products of whole updates; `sketch`: of short random projections, for units of
    many hundreds of clients, whose time then no longer grows with the square of their number."""
    metric: Literal["cosine", "madd"] = "cosine"
    """`cosine` method: angles between updates, or mean absolute differences of them (MADD)."""
    sketch_features: Annotated[int, Field(ge=64, le=4096, multiple_of=64)] = 256
    """`sketch`: numbers per client; a cosine is off by about one over their square root."""
    output_weight: Fraction = 0.0
    """Share of the output layer's own cosine in the similarity of updates: opposite drifts have in
    common that old labels are unlearned, all over the model but there."""
    output_layer: str = ""
    """Name of that layer, which its tensors' names begin with; empty: found from the shapes of all
    tensors, and where they leave a doubt only whole updates count; `none`: there is none."""
    max_groups: Annotated[int, Field(ge=1)] = 6
    """Most groups of a split. Clients that drift in more ways at once than this, each alone, wait
    in quarantine for one night (`cosine`): flags without a shift look like that."""
    pair_threshold: Annotated[float, Field(ge=-1, le=1)] = 0.40
    """Where no split stands out (always for two), clients of at least this mean cosine stay
    together."""
    silhouette_floor: Annotated[float, Field(ge=-1, le=1)] = 0.25
    """Below it no split stands out (n >= 4)."""
    silhouette_floor_three: Annotated[float, Field(ge=-1, le=1)] = 0.20
    """The same for n = 3."""
    split_ceiling: Annotated[float, Field(ge=-1, le=1)] = 1.0
    """No two groups of a split that stands out have a mean cosine of at least this; 1 does not ask.
    Not for `madd`."""
    center: bool = True
    """`signed_ks`: centre before the projection."""
    variance_kept: Annotated[float, Field(gt=0, le=1)] = 0.95
    """`signed_ks`: share of the eigenvalue sum that the kept components reach."""
    clusterer: Literal["silhouette_kmeans", "fixed_kmeans"] = "silhouette_kmeans"
    """`signed_ks`: how the projected points are grouped."""
    fixed_k: Annotated[int, Field(ge=1)] = 2
    """`fixed_kmeans`: groups per side."""
    recall: bool = True
    """Join a known cohort that the movement points to, instead of founding one."""
    recall_threshold: Annotated[float, Field(ge=-1, le=1)] = 0.40
    birth_witness: bool = False
    """Compare a group with the updates that founded cohorts out of its own origin, too: the way to
    a cohort's model turns aside as the model learns on, its birth does not."""
    recall_margin: Annotated[float, Field(ge=0, le=2)] = 0.0
    """How much better the best cohort has to fit than the second; where several fit, none is known
    to be right."""
    recall_first: bool = False
    """Recall clients one by one before the others are grouped: two of opposite drifts can look
    alike, and their mean then points between the cohorts that they belong to."""
    merge: bool = False
    """Cohorts whose models went the same way, from where their lines parted, become one; a cohort
    whose founders all go home the night after ends."""
    merge_cosine: Annotated[float, Field(ge=-1, le=1)] = 0.5
    """`merge`: smallest cosine between their ways."""
    merge_rounds: Annotated[int, Field(ge=1)] = 2
    """`merge`: rounds in a row in which they were so alike."""
    max_remembered: Annotated[int, Field(ge=0)] = 0
    """Dormant cohorts that a movement is compared with, those that were left last; 0: all."""
    max_live_cohorts: Annotated[int, Field(ge=0)] = 0
    """Most cohorts with members. A group that would need one more waits in quarantine, on its last
    good model. 0: no limit."""
    recall_cooldown: Annotated[int, Field(ge=0)] = 1
    """Rounds after a move in which a client is not recalled to the cohort that it left."""
    n_models: Annotated[int, Field(ge=1, le=64)] = 4
    """`ifca`: k, cohorts from the first round on."""
    merge_distance: Annotated[float, Field(ge=0)] = 0.5
    """`feddrift`: largest rise of the loss, in its own units, between cohorts that become one."""
    isolation_rounds: Annotated[int, Field(ge=0)] = 1
    """`feddrift`: rounds in which only its founder trains a new cohort, and it is not merged."""
    max_models: Annotated[int, Field(ge=2, le=256)] = 64
    """`ifca`, `feddrift`, `feddrift_eager`, `choice`: most models that a client is sent to choose
    from."""
    choice: Literal["none", "one", "all"] = "none"
    """`cosine`: whether clients compare other cohorts' models with their own and train the better
    one: `one` other model at most a night, or `all` of them when a client drifts or was moved."""
    choice_ratio: Annotated[float, Field(gt=0, le=1)] = 0.5
    """`choice`: another model is clearly better at no more than this share of the own one's loss,
    """
    choice_z: Annotated[float, Field(ge=0)] = 3.0
    """and beyond so many standard errors of the mean difference, sample by sample."""
    choice_rounds: Annotated[int, Field(ge=0)] = 3
    """`choice`: nights after a move in which further cohorts' models are compared."""
    choice_every: Annotated[int, Field(ge=0)] = 4
    """`choice`: nights from one comparison with a larger cohort's model to the next; 0: never."""
    warm_up_rounds: Annotated[int, Field(ge=0)] = 5
    """`cfl`: rounds before the first split."""
    mean_norm_share: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """`cfl`: a cohort is ripe when its mean update is shorter than this share of its longest one
    so far (epsilon 1)."""
    member_norm_share: Annotated[float, Field(gt=0)] = 0.6
    """`cfl`: and its longest update is longer than this share of it (epsilon 2)."""
    min_separation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """`cfl`: smallest gap between the halves of a split (gamma max); 0 does not ask."""
    features: Literal["own", "encoder"] = "own"
    """`pacfl`, `fecfl`: what a signature is made of: a client's samples (`pacfl`), or what the
    untrained model makes of them (`fecfl`), as published; or what the frozen encoder of the fleet
    makes of them, which FMCL signs with."""
    n_directions: Annotated[int, Field(ge=1, le=64)] = 3
    """`pacfl`: p, main directions that a client sends of each class, and terms of `sum`."""
    proximity: Literal["sum", "smallest", "reference"] = "sum"
    """`pacfl`: which of the principal angles between two clients' data count; `reference` is the
    shortcut of the published code."""
    max_angle_deg: Annotated[float, Field(ge=0)] = 0.0
    """`pacfl`: beta, largest mean proximity of groups that become one, in degrees; 0: as many
    groups as stand apart by silhouette."""
    max_feature_distance: Annotated[float, Field(ge=0, le=2)] = 0.0
    """`fecfl`: alpha, largest cosine distance of mean features, between groups that become one, and
    between a client's data now and when it was placed; 0: at first as many groups as stand apart by
    silhouette, and then alpha is how far apart the parts of those groups were."""
    schedule: tuple[GivenCohorts, ...] = ()
    """`given`: from which round on which client belongs to which label."""

    @model_validator(mode="after")
    def _check_choice(self) -> CohortingConfig:
        if self.choice != "none" and self.method != "cosine":
            raise ValueError(
                f"cohorting.choice = {self.choice!r} goes with method 'cosine', got {self.method!r}"
            )
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> CohortingConfig:
        if (self.method == "given") != bool(self.schedule):
            raise ValueError("cohorting.schedule and method = 'given' go together")
        rounds = [entry.from_round for entry in self.schedule]
        if rounds != sorted(set(rounds)):
            raise ValueError(f"cohorting.schedule must have rising rounds, got {rounds}")
        return self


class GivenCohorts(_Section):
    """Known cohorts from one round on: client id to a label of the operator's choice."""

    from_round: Annotated[int, Field(ge=1)]
    labels: dict[str, str]


class OnboardingConfig(_Section):
    """First cohorts from signatures of the clients' data, before anybody trains (FMCL)."""

    method: Literal["none", "fmcl"] = "none"
    """`fmcl`: clients are grouped once by class means of a frozen encoder, whoever comes later goes
    to the nearest cohort; `none`: all start in one cohort."""
    encoder: Annotated[str, Field(pattern=r"^[\x21-\x7e]{0,256}$")] = ""
    """Fingerprint of the encoder that all clients use, as 'clma client sign --dry-run' prints it;
    empty: that of the clients that were placed, and before that of the most."""
    overlap: Literal["none", "sum", "penalize", "additive"] = "additive"
    """How classes that only one of two clients has count: not at all, by making them nearer
    (`sum`), or farther (`penalize`: by division; `additive`: by a term of its own)."""
    penalty: Annotated[float, Field(ge=0)] = 1.0
    """`additive`: distance of clients that agree in all that they share, and share nothing."""
    center: Literal["none", "global", "zscore"] = "zscore"
    """What is taken away from class means before angles are measured: nothing, their mean, or their
    mean and, feature by feature, their spread."""
    percentile: Annotated[float, Field(ge=0, le=100)] = 95.0
    """Of the distances of pairs with a shared class, for pairs without."""
    linkage: Literal["average", "weighted", "complete"] = "average"
    n_groups: Annotated[int, Field(ge=0)] = 0
    """First cohorts; 0: as many as stand apart by silhouette."""
    silhouette_floor: Annotated[float, Field(ge=-1, le=1)] = 0.3
    """Below it all clients are one cohort."""
    alike_within: Annotated[float, Field(ge=0)] = 1.0
    """Mean distance from which on one cohort is no finding but a lack of signal; two clients are
    one cohort up to it."""


class AggregationConfig(_Section):
    """How a cohort's model is made from its members' updates."""

    method: Literal[
        "weighted_mean",
        "clipped_mean",
        "median",
        "trimmed_mean",
        "geometric_median",
        "krum",
        "robust",
    ] = "clipped_mean"
    """`robust` goes by the number of voters: 1 weighted mean, 2 clipped mean, 3 and 4 median, 5 and
    more trimmed mean."""
    weight: Literal["examples", "equal"] = "examples"
    """What a voter counts. `median`, `trimmed_mean` and `krum` count every voter once; with
    `examples`, one that names none has no vote there either."""
    clip_factor: Annotated[float, Field(gt=0)] = 3.0
    """`clipped_mean`: longest update, in median lengths of those that moved."""
    trim_fraction: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """`trimmed_mean`: share of the voters whose values are dropped at each end, rounded down."""
    n_byzantine: Annotated[int, Field(ge=0)] = 1
    """`krum`: voters that may lie, f; a cohort of fewer than 2 f + 3 voters keeps its model."""
    n_selected: Annotated[int, Field(ge=1)] = 1
    """`krum`: voters whose mean is the model, m; more than one is multi-Krum, and needs m + f + 2
    voters."""
    outlier_check: bool = False
    """Hold a voter out of the round's model whose update points against those of its cohort, though
    it flagged no drift; from four voters on. Configurations from before there was a check have
    none."""
    outlier_cosine: Annotated[float, Field(ge=-1, le=0)] = -0.2
    """`outlier_check`: only at a lower cosine to the coordinate median of the cohort's updates."""
    outlier_z: Annotated[float, Field(le=0)] = -4.0
    """`outlier_check`: and only if the cosine lies so many times their spread (1.4826 median
    absolute deviations) below the median of all voters' cosines."""
    server_optimizer: Literal["none", "flash", "adaptive_fedavg"] = "none"
    """`none`: the model is what the rule comes to; `flash`: it is a step from the model that was
    sent (Panchal et al. 2023); `adaptive_fedavg`: clients are told a learning rate (Canonaco et
    al. 2021)."""
    server_learning_rate: Annotated[float, Field(gt=0)] = 0.01
    """`flash`: eta."""


class ClientConfig(_Section):
    """What the server asks of a client's training."""

    proximal_mu: Annotated[float, Field(ge=0)] = 0.0
    """Strength of the pull to the model that was sent (FedProx); 0 is none."""


class PrivacyConfig(_Section):
    """What may leave a client. `flag` covers the drift flag and the confirm bit."""

    share: tuple[Share, ...] = ("weights", "flag", "examples")


class IdentityConfig(_Section):
    """How a client shows that an update is its own."""

    updates: Literal["signed", "unsigned"] = "signed"
    """`signed`: only what one of the client's registered keys signed counts; `unsigned`: whoever
    can write to the inbox can speak for any client."""
    max_clock_skew_hours: Annotated[float, Field(gt=0)] = 24.0
    """Difference between a client's clock and the store's from which on it is noted; it decides
    nothing."""


class FederationConfig(_Section):
    """One federation, as its operator wrote it."""

    federation: Annotated[str, Field(pattern=NAME_PATTERN)]
    preset: str = "clma"
    """Where the settings started from; for people, it decides nothing."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Part of every seeded generator, with the federation's name and the round."""
    model_factory: Annotated[str, Field(pattern=r"^([A-Za-z_][\w.]*:[A-Za-z_]\w*)?$")] = ""
    """`package.module:factory` that turns published weights into something that predicts."""
    model_arguments: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Keyword arguments of the factory."""
    model_adapter: ModelAdapter = "torch"
    """What the factory makes: a ``torch.nn.Module``, a ``keras.Model``, or a scikit-learn estimator
    that is prepared (`clma.adapters.sklearn.prepare`)."""
    round: RoundConfig = RoundConfig()
    drift: DriftConfig = DriftConfig()
    cohorting: CohortingConfig = CohortingConfig()
    onboarding: OnboardingConfig = OnboardingConfig()
    aggregation: AggregationConfig = AggregationConfig()
    client: ClientConfig = ClientConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    identity: IdentityConfig = IdentityConfig()

    def choice_rule(self) -> ChoiceRule | None:
        """Return when a model of choice counts as better; None: if its mean loss is smaller."""
        if self.cohorting.choice == "none":
            return None
        return ChoiceRule(ratio=self.cohorting.choice_ratio, z_score=self.cohorting.choice_z)

    @property
    def signature_kind(self) -> str | None:
        """Which signature of their data clients send; None: none."""
        if self.onboarding.method != "none":
            return self.onboarding.method
        method = self.cohorting.method
        return method if METHODS[method].needs_signature else None

    @model_validator(mode="after")
    def _check_onboarding(self) -> FederationConfig:
        onboarding, method = self.onboarding.method, self.cohorting.method
        if onboarding != "none" and method in _FOUND_THEIR_OWN:
            raise ValueError(
                f"onboarding.method = {onboarding!r} forms the first cohorts, "
                f"and so does cohorting.method = {method!r}"
            )
        return self

    @model_validator(mode="after")
    def _check_policy(self) -> FederationConfig:
        method, choice = self.cohorting.method, self.cohorting.choice
        onboarding = self.onboarding.method
        missing = required(method, choice, onboarding) - set(self.privacy.share)
        if missing:
            asked = f"method {method!r}" if choice == "none" else f"cohorting.choice = {choice!r}"
            if missing == {"signature"} and onboarding != "none":
                asked = f"onboarding.method = {onboarding!r}"
            raise ValueError(
                f"{asked} needs {', '.join(sorted(missing))}, "
                f"privacy.share names only {', '.join(self.privacy.share) or 'nothing'}"
            )
        return self


CohortingConfig.model_rebuild()
FederationConfig.model_rebuild()
