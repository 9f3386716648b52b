"""The config topic and the status topic: records, their fold, stores."""
