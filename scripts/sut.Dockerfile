# The program (reference server, doubles, harness) as an image for docker-compose.yml.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -o /overbook .

FROM debian:12-slim
USER nobody
COPY --from=build /overbook /overbook
ENTRYPOINT ["/overbook"]
