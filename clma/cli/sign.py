"""``clma client sign``: describe a plant's data and send the description."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from clma.cli.options import ClientOption, JsonOption, NameOption, StoreOption, show
from clma.client.sign import send_signature
from clma.encoders.named import named_encoder
from clma.errors import InvalidUpdateError
from clma.signatures.fmcl import SignatureNoise, sign_by_class_means
from clma.signatures.signature import Signature

__all__ = ["client_sign"]

MIN_EXAMPLES = 5
"""A mean of fewer samples is nearly one of them."""


def client_sign(
    store: StoreOption,
    federation: NameOption,
    client: ClientOption,
    samples: Annotated[Path, typer.Option("--samples", help="Samples, (n, ...), a .npy file.")],
    labels: Annotated[Path, typer.Option("--labels", help="Class of each, (n,), a .npy file.")],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder", help="flatten, sensor-stats:RANGES.toml or package.module:function."
        ),
    ],
    min_examples: Annotated[
        int, typer.Option("--min-examples", min=1, help="Smaller classes stay at the plant.")
    ] = MIN_EXAMPLES,
    noise: Annotated[
        float, typer.Option("--noise", min=0, help="Gaussian noise, in units of --clip-norm.")
    ] = 0.0,
    clip_norm: Annotated[
        float | None, typer.Option("--clip-norm", help="Longest embedding; needed with --noise.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="The plant's private key, to sign with.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would leave the plant.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Send what a frozen encoder makes of a plant's data: a mean and a share for each class."""
    if noise > 0 and clip_norm is None:
        raise typer.BadParameter("--noise needs --clip-norm")
    windows = _read(samples)
    signature = sign_by_class_means(
        windows,
        _read(labels),
        named_encoder(encoder, sample_shape=windows.shape[1:]),
        min_examples=min_examples,
        noise=None
        if clip_norm is None
        else SignatureNoise(clip_norm, noise, np.random.default_rng()),
    )
    if dry_run:
        show(
            {"federation": federation, "client_id": client, **_facts(signature)},
            f"would leave {client}: {_text(signature)}; encoder {signature.encoder}",
            as_json=as_json,
        )
        return
    receipt = send_signature(store, federation, client, signature, key=key)
    for note in receipt.notes:
        typer.echo(note, err=True)
    verb = "was sent before" if receipt.duplicate else "is sent"
    show(
        {**_facts(signature), **dataclasses.asdict(receipt)},
        f"signature of {client} {verb} ({receipt.digest[:12]}): {_text(signature)}",
        as_json=as_json,
    )


def _read(path: Path) -> NDArray[Any]:
    try:
        # Refuses arrays of Python objects, which would have to be unpickled.
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError) as error:
        raise InvalidUpdateError(
            f"{path}: no .npy file of numbers ({' '.join(str(error).split())})"
        ) from None
    if array.ndim == 0:
        raise InvalidUpdateError(f"{path}: one number, wanted an array with one row a sample")
    return array


def _facts(signature: Signature) -> dict[str, Any]:
    return {
        "kind": signature.kind,
        "encoder": signature.encoder,
        "classes": signature.arrays["classes"].tolist(),
        "shares": [round(share, 6) for share in signature.arrays["shares"].tolist()],
        "n_features": int(signature.arrays["means"].shape[1]),
        "size_bytes": signature.size_bytes,
    }


def _text(signature: Signature) -> str:
    n_classes, n_features = signature.arrays["means"].shape
    noun = "class" if n_classes == 1 else "classes"
    return f"means of {n_features} features and shares of {n_classes} {noun}"
