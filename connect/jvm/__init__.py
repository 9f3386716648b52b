"""The Java that Spark and the embedded broker run in, and the jars they load."""
