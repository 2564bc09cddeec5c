// Package deploy holds the files that deploy csigscope with ClickHouse, Prometheus and Grafana: an
// image, a Compose file, and a Kubernetes DaemonSet for exporters. It has no code. Its tests check
// the files against their readers' schemas, against each other, and against the sources of
// generated files. The files have never been run with the images or on a cluster.
package deploy

//go:generate go test -count=1 -run ^TestGenerated$ . -write
