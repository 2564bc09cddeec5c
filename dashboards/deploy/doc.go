// Package deploy holds the files that deploy csigscope with ClickHouse, Prometheus and
// Grafana: an image, a Compose file, Kubernetes manifests. It has no code: its tests hold
// the files against the schemas of those who read them, against each other, and against
// what they are made from. They were never run on a cluster or with the images.
package deploy

//go:generate go test -count=1 -run ^TestGenerated$ . -write
