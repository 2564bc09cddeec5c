package grafana

import (
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// UIDs under which dashboards and data sources link to each other.
const (
	FabricUID   = "csigscope-fabric"
	CellsUID    = "csigscope-cells"
	JobUID      = "csigscope-job"
	PipelineUID = "csigscope-pipeline"
	FolderUID   = "csigscope"
	storeUID    = "csigscope-clickhouse"
	metricsUID  = "csigscope-prometheus"
	storePlugin = "grafana-clickhouse-datasource"
)

// Options say what dashboards are made for. DefaultOptions make those of any store: without
// colours of locations, for the four signals that are defined.
type Options struct {
	// Locations get the colours that they have on the page, the first maxMappings of
	// them: the coarsest first.
	Locations []fabric.Location
	// Signals to choose from; nil stands for the defined ones.
	Signals []csig.Signal
	// Fine is the length of the finest windows that are stored, below 1 s.
	Fine time.Duration
	// MatrixPanel draws matrices with the plugin esnet-matrix-panel instead of tables.
	MatrixPanel bool
	// Store is where Grafana's server reaches ClickHouse over HTTP.
	Store StoreAddress
	// Alerts has Grafana evaluate the alert rules, which Prometheus must not do as well.
	Alerts bool
	// Prometheus is the URL at which Grafana's server reaches Prometheus.
	Prometheus string
}

// StoreAddress is what the ClickHouse data source is provisioned with.
type StoreAddress struct {
	Host, Database, User string
	Port                 int
	Secure               bool // TLS
}

// DefaultOptions reach the embedded engine and Prometheus on Grafana's own machine.
func DefaultOptions() Options {
	return Options{
		Fine:       10 * time.Millisecond,
		Store:      StoreAddress{Host: "127.0.0.1", Port: 8123, Database: "csigscope", User: "grafana"},
		Prometheus: "http://127.0.0.1:9090",
	}
}

func (o *Options) signals() []csig.Signal {
	if o.Signals != nil {
		return o.Signals
	}
	return []csig.Signal{csig.MinABWRatio, csig.MinABW, csig.MaxDelay, csig.MaxNQD}
}
