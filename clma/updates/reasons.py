"""The closed list of reason codes of a submission (column `reason` of the updates table)."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["EXPLANATIONS", "Reason"]


class Reason(StrEnum):
    """Why a submission was not used, or what is to be known of one that was."""

    BAD_CLIENT_ID = "BAD_CLIENT_ID"
    BAD_EXAMPLES = "BAD_EXAMPLES"
    BAD_FORMAT = "BAD_FORMAT"
    BAD_METADATA = "BAD_METADATA"
    BAD_SIGNATURE = "BAD_SIGNATURE"
    CLIENT_PAUSED = "CLIENT_PAUSED"
    CLOCK_SKEW = "CLOCK_SKEW"
    CONFLICTING_UPDATE = "CONFLICTING_UPDATE"
    DIGEST_MISMATCH = "DIGEST_MISMATCH"
    DTYPE_MISMATCH = "DTYPE_MISMATCH"
    DTYPE_UNSUPPORTED = "DTYPE_UNSUPPORTED"
    FUTURE_ROUND = "FUTURE_ROUND"
    INCOMPLETE = "INCOMPLETE"
    KEY_REVOKED = "KEY_REVOKED"
    MISSED_DEADLINE = "MISSED_DEADLINE"
    NAMES_MISMATCH = "NAMES_MISMATCH"
    NON_FINITE = "NON_FINITE"
    NOT_SHARED = "NOT_SHARED"
    NOT_SIGNED = "NOT_SIGNED"
    SHAPE_MISMATCH = "SHAPE_MISMATCH"
    STALE_BASE = "STALE_BASE"
    STALE_ROUND = "STALE_ROUND"
    UNKNOWN_CLIENT = "UNKNOWN_CLIENT"
    ZERO_EXAMPLES = "ZERO_EXAMPLES"


EXPLANATIONS: dict[Reason, str] = {
    Reason.BAD_CLIENT_ID: "The id is no allowed id, or not that of the folder it came in.",
    Reason.BAD_EXAMPLES: "The number of examples is no whole number from 0 to 10^12.",
    Reason.BAD_FORMAT: "The tensors are no safetensors file within the limits.",
    Reason.BAD_METADATA: "update.json is not as the contract says.",
    Reason.BAD_SIGNATURE: "No key that is registered for the client made the signature.",
    Reason.CLIENT_PAUSED: "The operator has paused this client.",
    Reason.CLOCK_SKEW: "Used; the client's clock and the store's differ by more than is usual.",
    Reason.CONFLICTING_UPDATE: "A second, different update of one round; the first one counts.",
    Reason.DIGEST_MISMATCH: "The tensors are not those whose digest update.json names.",
    Reason.DTYPE_MISMATCH: "A tensor has another dtype than the federation's model.",
    Reason.DTYPE_UNSUPPORTED: "A tensor has a dtype that cannot be averaged.",
    Reason.FUTURE_ROUND: "The update is for a round that was not opened yet.",
    Reason.INCOMPLETE: "update.json or the tensors were not there when the round was sealed.",
    Reason.KEY_REVOKED: "The key that made the signature was revoked.",
    Reason.MISSED_DEADLINE: "Nothing had arrived when the round was sealed.",
    Reason.NAMES_MISMATCH: "Tensors are missing or surplus, compared with the federation's model.",
    Reason.NON_FINITE: "A tensor holds values that are NaN, infinite or beyond 1e100.",
    Reason.NOT_SHARED: "Used, without a field that the privacy policy does not share.",
    Reason.NOT_SIGNED: "The federation takes signed updates only, and this one is not.",
    Reason.SHAPE_MISMATCH: "A tensor has another shape than the federation's model.",
    Reason.STALE_BASE: "It was trained from another model than the client was sent.",
    Reason.STALE_ROUND: "The update is for an earlier round, or came after its round was sealed.",
    Reason.UNKNOWN_CLIENT: "No client of this id is registered.",
    Reason.ZERO_EXAMPLES: "Used with weight 0: the client had no examples.",
}
"""One sentence a code, for reports and for the manual."""
