# The server as an image: `docker build .` for the CPU, `--build-arg EXTRA=cuda12` or `cuda13` for a GPU.
ARG PYTHON_VERSION=3.12

# Installs into a virtual environment. pip, its cache and the sources remain in this stage.
FROM python:${PYTHON_VERSION}-slim AS build
ARG EXTRA=server
WORKDIR /src
RUN python -m venv /opt/gradwire /opt/build
# All packages are pinned by hashes (`make lock`), including those that build the wheel.
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
# /var/lib/gradwire holds everything that outlives a container: stored sessions and CuPy's compiled kernels. A mounted
# folder of the host must belong to user 10001.
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
# --insecure-bind permits all interfaces of the container without certificates and tokens. Publish the port on the
# host's loopback only, as docker-compose.yml does, or use docker-compose.tls.yml.
CMD ["gradwire", "serve", "--host", "0.0.0.0", "--insecure-bind"]
