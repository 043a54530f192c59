from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from clma.errors import CellFailedError
from clma.simulation.prepare_images import prepare_images


def test_scenarios_without_embeddings_need_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.run", None)

    prepare_images(["plant/stagger", "cifar10/skew"], tmp_path)
    prepare_images(["busi/skew"], None)


def test_missing_data_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(CellFailedError, match="scenario 'busi/same': no folder") as caught:
        prepare_images(["busi/skew", "busi/same"], tmp_path)

    assert "\n" not in str(caught.value)


@pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite_pytorch") is not None, reason="extra vision-demo"
)
def test_missing_packages_name_the_extra(tmp_path: Path) -> None:
    pd, image = pytest.importorskip("pandas"), pytest.importorskip("PIL.Image")
    (tmp_path / "busi_224").mkdir()
    image.new("L", (224, 224)).save(tmp_path / "grey.jpg")
    content = (tmp_path / "grey.jpg").read_bytes()
    table = pd.DataFrame({"label": [0, 1, 2], "image_jpeg": [content] * 3})
    table.to_parquet(tmp_path / "busi_224" / "busi_224.parquet")

    with pytest.raises(CellFailedError, match=r"pip install 'clma\[vision-demo\]'"):
        prepare_images(["busi/same"], tmp_path)
