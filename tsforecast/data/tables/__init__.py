"""Tables as people write them: roles of columns, cells as numbers and dates, series of the rows."""
