"""Steps of the calendar: frequencies, and the dates of steps as users write them."""
