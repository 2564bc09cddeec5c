// Package grafana generates csigscope's Grafana dashboards: their JSON, the files that provision
// them, and the requests that push them.
//
// It knows what each panel shows and which of the store's parameterized views supplies it. It must
// never define a number: means and modes are defined in those views. A query here only calls a
// view, joins names, fills windows without rows, and sorts.
//
// Dashboards are built with github.com/grafana-tools/sdk. Every panel is one of its custom panels,
// since its models of heatmaps and tables are older than current Grafana; a test checks them with
// TypeScript against @grafana/schema. Queries are for the data source plugin
// grafana-clickhouse-datasource, version 4.
package grafana

//go:generate go test -count=1 -run ^TestGenerated$ . -write
