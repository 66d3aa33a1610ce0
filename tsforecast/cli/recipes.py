"""Recipes: the settings behind the published rows, one file of options for each data set, model and name."""

from pathlib import Path
from typing import NamedTuple

import tsforecast
from tsforecast.cli import parsing

FOLDER = Path(tsforecast.__file__).parent / "recipes"
BEST = "best"


class RecipeFile(NamedTuple):
    """What a file of options is for."""

    dataset: str
    model: str
    name: str

    @property
    def path(self) -> Path:
        """Return the file, whether it exists or not."""
        stem = self.model if self.name == BEST else f"{self.model}.{self.name}"
        return FOLDER / self.dataset / f"{stem}.yaml"


def published() -> list[RecipeFile]:
    """Return all recipes that the package brings: `best` first, then `paper`, then the others."""
    found = []
    for path in FOLDER.glob("*/*.yaml"):
        model, _, name = path.stem.partition(".")
        found.append(RecipeFile(path.parent.name, model, name or BEST))
    return sorted(found, key=lambda recipe: (recipe.name != BEST, recipe.name != "paper", recipe.name, recipe))


def find(model: str, dataset: str | None, name: str) -> Path:
    """Return the file of a recipe."""
    every = [recipe for recipe in published() if recipe.model == model]
    datasets = sorted({recipe.dataset for recipe in every})
    names = [recipe.name for recipe in every if recipe.dataset == dataset]
    if not every:
        others = sorted({recipe.model for recipe in published()})
        raise ValueError(f"--recipe: there are no recipes of {model!r}, only of {', '.join(others)}")
    if dataset is None:
        raise ValueError(f"--recipe {name} needs --dataset NAME, one of {', '.join(datasets)}")
    if not names:
        raise ValueError(
            f"--recipe: there are no recipes of {model!r} on {dataset!r}, only on {', '.join(datasets)}; "
            f"--config FILE takes the options of any file, such as those in {FOLDER}"
        )
    if name not in names:
        raise ValueError(parsing.unknown(f"recipe of {model!r} on {dataset!r} called", name, names))
    return RecipeFile(dataset, model, name).path
