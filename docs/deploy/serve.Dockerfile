# The image of a server (python -m plait serve), for Kubernetes, KServe or a machine with Docker:
#   docker build -f docs/deploy/serve.Dockerfile -t plait-serve .
#   docker run -p 8080:8080 -v ./models:/models:ro plait-serve
# Build it in plait's folder. To have the models inside:
#   FROM plait-serve
#   COPY models /models

FROM python:3.11-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM python:3.11-slim
# gcc compiles the networks' fused kernels, before the server says that it is ready
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 plait \
    && mkdir -p /models
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/plait-*.whl)[serve,onnx,images]" \
    && python -c "import plait; print('plait', plait.__version__)" \
    && rm -rf /wheels
USER 1000
WORKDIR /home/plait
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/v2/health/ready')"]
ENTRYPOINT ["python", "-m", "plait", "serve"]
CMD ["/models", "--host", "0.0.0.0", "--port", "8080"]
