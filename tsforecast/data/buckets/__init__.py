"""Tables beyond memory: buckets of Parquet, and series that are read again in every walk."""
