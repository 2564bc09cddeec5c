package grafana

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

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
	// MatrixPanelID is the panel plugin that ships with csigscope. It is not signed.
	MatrixPanelID = "csigscope-matrix-panel"
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
	// Tables draws matrices as tables, for a Grafana that does not load the plugin MatrixPanelID.
	Tables bool
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

// ParseStoreAddress reads the URL at which Grafana's server reaches ClickHouse over HTTP. The
// port is ClickHouse's usual one unless it is given; database and user are left open.
func ParseStoreAddress(text string) (a StoreAddress, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" || u.User != nil {
		return a, fmt.Errorf("%q: expected a URL such as http://127.0.0.1:8123", text)
	}
	a.Host, a.Secure = u.Hostname(), u.Scheme == "https"
	usual := "8123"
	if a.Secure {
		usual = "8443"
	}
	if a.Port, err = strconv.Atoi(cmp.Or(u.Port(), usual)); err != nil {
		return a, fmt.Errorf("%q: %w", text, err)
	}
	return a, nil
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

// File is one file of the folder that Write makes.
type File struct {
	Path    string // below the folder, with slashes
	Content []byte
}

// Where a container or a package of Grafana looks for dashboards that provisioning names.
const mountedAt = "/var/lib/grafana/dashboards/csigscope"

// Names of the folder's parts.
const (
	dashboardsDir   = "dashboards"
	provisioningDir = "provisioning"
)

// Files are the dashboards, what provisions them and their data sources, and the panel plugin.
//
// Alert rules are left to Prometheus unless Options.Alerts is set: those that ship beside
// the metrics are tested in both directions with promtool, and one alert that two systems
// evaluate would page twice. Grafana shows them through the Prometheus data source, which
// is told to manage them.
func Files(o Options) ([]File, error) {
	all, err := Dashboards(o)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, d := range all {
		files = append(files, File{path.Join(dashboardsDir, d.Name+".json"), d.JSON})
	}
	for _, p := range []struct {
		name    string
		content object
	}{{"dashboards/csigscope.yaml", dashboardProvider()}, {"datasources/csigscope.yaml", dataSources(&o)}} {
		text, err := encodeYAML(p.content)
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", p.name, err)
		}
		files = append(files, File{path.Join(provisioningDir, p.name), text})
	}
	if !o.Tables {
		plugin, err := pluginFiles()
		if err != nil {
			return nil, err
		}
		files = append(files, plugin...)
	}
	if o.Alerts {
		alerts, err := alertsFile()
		if err != nil {
			return nil, err
		}
		files = append(files, alerts)
	}
	return files, nil
}

func encodeYAML(content object) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(content), e.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func dashboardProvider() object {
	return object{"apiVersion": 1, "providers": []object{{
		"name": "csigscope", "type": "file", "folder": "csigscope", "folderUid": FolderUID,
		"allowUiUpdates": false, "disableDeletion": false, "updateIntervalSeconds": 30,
		"options": object{"path": mountedAt, "foldersFromFilesStructure": false},
	}}}
}

// dataSources reach the store and Prometheus. The password comes from Grafana's own
// environment, since a file in a repository is no place for it.
func dataSources(o *Options) object {
	return object{"apiVersion": 1, "datasources": []object{
		{
			"name": "csigscope", "uid": storeUID, "type": storePlugin, "access": "proxy", "editable": false,
			"jsonData": object{
				"host": o.Store.Host, "server": o.Store.Host, "port": o.Store.Port, "protocol": "http", "secure": o.Store.Secure,
				"username": o.Store.User, "defaultDatabase": o.Store.Database, "dialTimeout": "10", "queryTimeout": "60",
			},
			"secureJsonData": object{"password": "$CSIGSCOPE_STORE_PASSWORD"},
		},
		{
			"name": "csigscope-prometheus", "uid": metricsUID, "type": "prometheus", "access": "proxy", "editable": false, "url": o.Prometheus,
			"jsonData": object{"httpMethod": "POST", "timeInterval": "15s", "manageAlerts": true},
		},
	}}
}

// Write writes the files below dir, which it makes. Files that are there already are
// replaced, others stay.
func Write(dir string, o Options) ([]string, error) {
	files, err := Files(o)
	if err != nil {
		return nil, err
	}
	var written []string
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return written, fmt.Errorf("write dashboards: %w", err)
		}
		// Grafana reads the folder every few seconds: it must not see half a file.
		if err := os.WriteFile(path+".new", f.Content, 0o644); err != nil {
			return written, fmt.Errorf("write dashboards: %w", err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			return written, fmt.Errorf("write dashboards: %w", err)
		}
		written = append(written, path)
	}
	return written, nil
}
