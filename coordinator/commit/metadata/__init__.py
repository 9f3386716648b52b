"""Manifests and manifest lists of Iceberg tables.

``prepared_manifests`` writes manifests for new files, ``manifests`` adds and merges those of a
snapshot, ``head_files`` reads those of the present one. Imports only ``rules``.

- Avro files: ``avro_files``; files of an attempt that are written together: ``pending_files``
- entries of new files: ``content_files``
- row ids of format version 3: ``row_lineage``
"""
