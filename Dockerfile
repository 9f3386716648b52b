# One node: REST API, worker (Spark in local mode) and coordinator.
# A tag can be moved to another image, a digest cannot: without PYTHON_DIGEST nothing is built.
ARG PYTHON_DIGEST
FROM python:3.11-slim-bookworm@${PYTHON_DIGEST} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY control_schemas control_schemas
COPY connect connect
COPY worker worker
COPY coordinator coordinator
RUN python -m pip wheel --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm@${PYTHON_DIGEST}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/runtime.lock /tmp/runtime.lock
RUN python -m pip install --no-cache-dir --require-hashes -r /tmp/runtime.lock && rm /tmp/runtime.lock
COPY --from=build /wheels /tmp/wheels
RUN python -m pip install --no-cache-dir --no-deps /tmp/wheels/*.whl && rm -rf /tmp/wheels
RUN useradd --create-home --uid 10001 icefloe && install -d -o icefloe /var/lib/icefloe
USER icefloe
ENV ICEFLOE_CACHE_DIR=/var/lib/icefloe/cache PYTHONUNBUFFERED=1
# what the worker puts beside Spark's own jars, checked against the lock file
RUN python -m connect.jvm.jars resolve spark-kafka iceberg-spark
# a worker that was killed is back in half the time
RUN python -m worker.spark.archiving
WORKDIR /var/lib/icefloe
VOLUME /var/lib/icefloe/state
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "--", "icefloe"]
CMD ["node", "--properties", "/etc/icefloe/node.properties"]
