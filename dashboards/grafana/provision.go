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

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// UIDs for links between dashboards and to data sources.
const (
	FabricUID   = "csigscope-fabric"
	CellsUID    = "csigscope-cells"
	JobUID      = "csigscope-job"
	PipelineUID = "csigscope-pipeline"
	FolderUID   = "csigscope"
	storeUID    = "csigscope-clickhouse"
	metricsUID  = "csigscope-prometheus"
	storePlugin = "grafana-clickhouse-datasource"
	// MatrixPanelID is csigscope's panel plugin. It is not signed.
	MatrixPanelID = "csigscope-matrix-panel"
)

// Options configure the dashboards. DefaultOptions fit any store: without location colors, for the
// four defined signals.
type Options struct {
	// Locations get the page's colors, up to 1000 of them, the coarsest first.
	Locations []fabric.Location
	// Fine is the length of the finest stored windows, below 1 s.
	Fine time.Duration
	// Thresholds are those of cell states before anybody changes them in Grafana.
	Thresholds aggregate.Thresholds
	// Tables draws matrices as tables, for a Grafana without the plugin MatrixPanelID.
	Tables bool
	// Store is ClickHouse's HTTP address as seen by Grafana's server.
	Store StoreAddress
	// Alerts makes Grafana evaluate the alert rules. Prometheus must not evaluate them as well.
	Alerts bool
	// Prometheus is Prometheus' URL as seen by Grafana's server.
	Prometheus string
}

// StoreAddress is the address in the ClickHouse data source.
type StoreAddress struct {
	Host, Database, User string
	Port                 int
	Secure               bool // TLS
}

// ParseStoreAddress parses ClickHouse's HTTP URL as seen by Grafana's server. The default is
// ClickHouse's usual port; database and user are not set.
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

// DefaultOptions uses the embedded engine and Prometheus on Grafana's own machine.
func DefaultOptions() Options {
	return Options{
		Fine:       10 * time.Millisecond,
		Thresholds: aggregate.DefaultThresholds(),
		Store:      StoreAddress{Host: "127.0.0.1", Port: 8123, Database: "csigscope", User: "grafana"},
		Prometheus: "http://127.0.0.1:9090",
	}
}

// signals are those to choose from.
var signals = []csig.Signal{csig.MinABWRatio, csig.MinABW, csig.MaxDelay, csig.MaxNQD}

// File is one file in the folder that Write creates.
type File struct {
	Path    string // relative to the folder, with slashes
	Content []byte
}

// mountedAt is where Grafana containers and packages look for provisioned dashboards.
const mountedAt = "/var/lib/grafana/dashboards/csigscope"

// Subfolder names.
const (
	dashboardsDir   = "dashboards"
	provisioningDir = "provisioning"
)

// Files returns the dashboards, the files that provision them and their data sources, and the panel
// plugin.
//
// Alert rules are left to Prometheus unless Options.Alerts is set: the rules that ship with the
// metrics are tested with promtool, firing and not firing, and an alert evaluated by two systems
// would page twice. Grafana shows them through the Prometheus data source, which is configured to
// manage them.
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

// dataSources returns the data sources for the store and Prometheus. The password comes from
// Grafana's environment, since it must not be in a repository.
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

// Write writes the files into dir, which it creates. It replaces existing files of the same names
// and keeps others.
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
		// Grafana reads the folder every few seconds and must not see an incomplete file.
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
