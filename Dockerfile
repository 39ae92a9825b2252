# syntax=docker/dockerfile:1
# docker build -t sojourn .                     the binary alone
# docker build -t sojourn:handlers --target handlers .   beside Node and Python, for activity handlers in those languages

FROM node:20-bookworm-slim AS web
WORKDIR /src/web
COPY web/package.json web/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY web/ ./
COPY VERSION /src/VERSION
RUN npm run build

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
COPY --from=web /src/web/dist web/dist
RUN CGO_ENABLED=0 GOEXPERIMENT=jsonv2 go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X github.com/sojourn-run/sojourn/internal/release.Stamp=$(cat VERSION)" \
      -o /sojourn ./cmd/sojourn

FROM debian:12-slim AS base
# Built twice from the same sources and packages, these files have the same bytes: logs and caches go, and useradd writes the day of
# this variable into the file of passwords.
ARG SOURCE_DATE_EPOCH=0
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates tzdata \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
      /var/log/apt /var/log/alternatives.log /var/log/dpkg.log /tmp/* \
 && groupadd --system --gid 7700 sojourn \
 && useradd --system --uid 7700 --gid sojourn --home-dir /data --shell /usr/sbin/nologin sojourn \
 && install -d -o sojourn -g sojourn /data
# The release is read beside the executable, so image and binary cannot disagree.
COPY --from=build /src/VERSION /usr/local/lib/sojourn/VERSION
COPY --from=build /sojourn /usr/local/lib/sojourn/sojourn
COPY deploy/healthy /usr/local/lib/sojourn/healthy
RUN ln -s ../lib/sojourn/sojourn /usr/local/bin/sojourn
ENV SOJOURN_ADDR=0.0.0.0:7700 \
    SOJOURN_DATA_DIR=/data \
    SOJOURN_LOG_FORMAT=json
USER 7700:7700
WORKDIR /data
VOLUME /data
EXPOSE 7700
# The role comes from SOJOURN_CONTAINER_TYPE, or from a subcommand: docker run sojourn worker. The binary is process 1, so
# SIGTERM reaches it; give it 40 s (docker run --stop-timeout 40) for its drain of at most 25.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["/usr/local/lib/sojourn/healthy"]
ENTRYPOINT ["/usr/local/lib/sojourn/sojourn"]

FROM base AS handlers
USER root
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=web /usr/local/bin/node /usr/local/bin/node
USER 7700:7700

# The last stage is what a plain build gives: the one without handlers.
FROM base
