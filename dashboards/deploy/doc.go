// Package deploy holds the files that deploy csigscope with ClickHouse, Prometheus and
// Grafana: an image, a Compose file, and a Kubernetes DaemonSet for exporters. It has no code:
// its tests hold the files against the schemas of their readers, against each other, and
// against the sources of generated files. They were never run with the images or on a cluster.
package deploy

//go:generate go test -count=1 -run ^TestGenerated$ . -write
