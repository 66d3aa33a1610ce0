"""Pictures of video: film strips, GIFs, switches and collisions, scores by horizon.

Frames are black and white or grey, between 0 and 1. Figures belong to no window and to no global state, as those of
`tsforecast.plots`, whose `save_figure` writes them. Blue is what a model has seen, orange what it makes up.
"""

from tsforecast.film.animation import gif
from tsforecast.film.charts import horizon_plot, switch_plot
from tsforecast.film.paint import FORECAST, SEEN
from tsforecast.film.strip import film_strip, imputation_strip

__all__ = ["FORECAST", "SEEN", "film_strip", "gif", "horizon_plot", "imputation_strip", "switch_plot"]
