// Package grafana makes csigscope's Grafana dashboards: their JSON, the files that
// provision them, and the request that pushes them.
//
// It knows what is drawn and which of the store's parameterized views answers it. It must
// never define a number: what a mean or a mode is stands in those views, and a query here
// only calls one, joins names, fills windows without rows, and orders.
//
// Dashboards are built with github.com/grafana-tools/sdk. Every panel is one of its custom
// panels, since its own models of heatmaps and tables predate the Grafana of today; a test
// has TypeScript check them against @grafana/schema. Queries are those of the data source
// plugin grafana-clickhouse-datasource, version 4.
package grafana

//go:generate go test -count=1 -run ^TestGenerated$ . -write
