"""A trained predictor as a model of MLflow. `tsforecast export` copies this file beside the predictor.

MLflow runs it when the model is loaded ("models from code"), so nothing is pickled. It needs
`pip install 'tsforecast[mlflow]'`.
"""

from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from tsforecast.forecasting.predictor import load_predictor, with_prediction_length


class ForecastModel(PythonModel):
    """Forecasts of a data frame, as `StateSpacePredictor.predict_frame` makes them."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the predictor; no code of its files is run."""
        self.predictor = load_predictor(context.artifacts["predictor"])

    def predict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return forecasts behind the end of a frame in long format, with the columns of the training data.

        Args:
            context: Not used.
            model_input: Rows of all series.
            params: `prediction_length`, `quantiles`, `num_samples` (where quantiles are not exact), `start` ("common"
                or "each").

        Raises:
            ValueError: If the frame is not as expected, or a parameter out of its range.
        """
        chosen = dict(params or {})
        length = int(chosen.pop("prediction_length", self.predictor.prediction_length))
        if length < 1:
            raise ValueError(f"expected prediction_length of at least 1, got {length}")
        same = length == self.predictor.prediction_length
        predictor = self.predictor if same else with_prediction_length(self.predictor, length)
        return predictor.predict_frame(model_input, **chosen)


mlflow.models.set_model(ForecastModel())  # pyright: ignore[reportPrivateImportUsage]
