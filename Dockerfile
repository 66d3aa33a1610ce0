# The live service of a store (docs/howto/serve.md). The store and a token are given when it runs:
#
#   docker build --tag tsforecast .
#   docker run --publish 8000:8000 --volume "$PWD/store:/store" --volume "$PWD/token:/run/secrets/token:ro" tsforecast
#
# The user 1000 must be able to write the store and to read the token.

FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.12-slim
# The compiler builds the kernels of filters, once, below.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
# The PyTorch of the CPU; the one that pip takes otherwise brings gigabytes of CUDA.
RUN python -m pip install --no-cache-dir "torch>=2.10,<2.14" --index-url https://download.pytorch.org/whl/cpu
COPY --from=build /wheel /wheel
RUN python -m pip install --no-cache-dir "$(ls /wheel/*.whl)[serve]" && rm -r /wheel \
    && useradd --uid 1000 --create-home forecaster && install --directory --owner=forecaster /store
USER forecaster
RUN python -c "from tsforecast.core.kernels.building import build; assert build()"
VOLUME /store
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["tsforecast"]
CMD ["live", "serve", "/store", "--host", "0.0.0.0", "--token_file", "/run/secrets/token"]
