# The server as an image: `docker build .` for the CPU, `--build-arg EXTRA=cuda12` or `cuda13` for a GPU.
ARG PYTHON_VERSION=3.12

# Installs into a virtual environment; pip, its cache and the sources stay behind in this stage.
FROM python:${PYTHON_VERSION}-slim AS build
ARG EXTRA=server
WORKDIR /src
RUN python -m venv /opt/gradwire /opt/build
# What is installed is pinned by hashes (`make lock`), what builds it as well.
COPY requirements requirements
RUN /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.lock
RUN /opt/gradwire/bin/pip install --no-cache-dir --require-hashes -r requirements/${EXTRA}.lock
COPY pyproject.toml README.md LICENSE ./
COPY client client
COPY engine engine
COPY server server
RUN /opt/build/bin/python -m hatchling build --target wheel --directory /opt/build/dist
RUN /opt/gradwire/bin/pip install --no-cache-dir --no-deps /opt/build/dist/*.whl

FROM python:${PYTHON_VERSION}-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/gradwire --create-home gradwire
COPY --from=build /opt/gradwire /opt/gradwire
# All that outlives a container is below /var/lib/gradwire: what was answered of each session, and CuPy's compiled
# kernels. A folder of the host that is mounted there must be user 10001's.
ENV PATH=/opt/gradwire/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    GRADWIRE_PORT=50051 \
    GRADWIRE_STATE_DIR=/var/lib/gradwire/state \
    GRADWIRE_DURABILITY=log \
    CUPY_CACHE_DIR=/var/lib/gradwire/cupy
USER gradwire
WORKDIR /var/lib/gradwire
VOLUME ["/var/lib/gradwire"]
EXPOSE 50051
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 \
    CMD ["python", "-m", "gradwire_server.app.healthcheck"]
# Without certificates and tokens, serving on all of the container's interfaces must be asked for by name. Publish the
# port on the host's loopback only, as docker-compose.yml does, or see docker-compose.tls.yml.
CMD ["gradwire", "serve", "--host", "0.0.0.0", "--insecure-bind"]
