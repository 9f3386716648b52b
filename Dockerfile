# One node: REST API, worker (Spark in local mode) and coordinator.
# PYTHON_DIGEST is required: unlike a tag, a digest always identifies the same image.
ARG PYTHON_DIGEST
FROM python:3.11-slim-bookworm@${PYTHON_DIGEST} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY control_schemas control_schemas
COPY connect connect
COPY worker worker
COPY coordinator coordinator
RUN python -m pip wheel --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm@${PYTHON_DIGEST} AS node
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*
# with the libraries of all extras
COPY requirements/runtime.lock /tmp/runtime.lock
RUN python -m pip install --no-cache-dir --no-deps --require-hashes -r /tmp/runtime.lock && rm /tmp/runtime.lock
COPY --from=build /wheels /tmp/wheels
RUN python -m pip install --no-cache-dir --no-deps /tmp/wheels/*.whl && rm -rf /tmp/wheels
RUN useradd --create-home --uid 10001 icefloe && install -d -o icefloe /var/lib/icefloe
USER icefloe
ENV ICEFLOE_CACHE_DIR=/var/lib/icefloe/cache PYTHONUNBUFFERED=1 CONNECT_ICEFLOE_LOG_OUTPUT=stdout
# jars of worker and maintenance in addition to Spark's own, verified against the lock file
RUN python -m connect.jvm.jars resolve spark-kafka iceberg-spark iceberg-aws jdbc
# class data archive: halves the start time of a worker
RUN python -m worker.spark.archiving
WORKDIR /var/lib/icefloe
VOLUME /var/lib/icefloe/state
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "--", "icefloe"]
CMD ["node", "--properties", "/etc/icefloe/node.properties"]

# JupyterLab with the node's Python, Spark and jars, and DuckDB; see compose/README.md.
FROM node AS notebook
USER root
COPY requirements/notebook.lock /tmp/notebook.lock
RUN python -m pip install --no-cache-dir --no-deps --require-hashes -r /tmp/notebook.lock && rm /tmp/notebook.lock
USER icefloe
EXPOSE 8888
ENTRYPOINT ["tini", "--", "jupyter", "lab"]
CMD ["--ip=0.0.0.0", "--no-browser", "--notebook-dir=/notebooks"]

# what `docker build` makes without --target
FROM node
