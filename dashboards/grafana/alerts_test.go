package grafana_test

import (
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/dashboards/grafana"
	"github.com/csigscope/csigscope/dashboards/metrics"
)

// provisionedAlerts is the tested part of Grafana's file of alert rules.
type provisionedAlerts struct {
	APIVersion int `yaml:"apiVersion"`
	Groups     []struct {
		OrgID    int    `yaml:"orgId"`
		Name     string `yaml:"name"`
		Folder   string `yaml:"folder"`
		Interval string `yaml:"interval"`
		Rules    []struct {
			UID          string            `yaml:"uid"`
			Title        string            `yaml:"title"`
			Condition    string            `yaml:"condition"`
			For          string            `yaml:"for"`
			NoDataState  string            `yaml:"noDataState"`
			ExecErrState string            `yaml:"execErrState"`
			IsPaused     bool              `yaml:"isPaused"`
			Labels       map[string]string `yaml:"labels"`
			Annotations  map[string]string `yaml:"annotations"`
			Data         []struct {
				RefID     string                 `yaml:"refId"`
				Source    string                 `yaml:"datasourceUid"`
				TimeRange struct{ From, To int } `yaml:"relativeTimeRange"`
				Model     map[string]any         `yaml:"model"`
			} `yaml:"data"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

// TestAlertRules checks that Grafana's rules equal Prometheus' one by one, and are written only on
// request.
func TestAlertRules(t *testing.T) {
	find := func(o grafana.Options) (text []byte) {
		files, err := grafana.Files(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasPrefix(f.Path, "provisioning/alerting/") {
				text = f.Content
			}
		}
		return text
	}
	o := grafana.DefaultOptions()
	if find(o) != nil {
		t.Error("alert rules by default: with those of Prometheus each alert would come twice")
	}
	o.Alerts = true
	var file provisionedAlerts
	d := yaml.NewDecoder(strings.NewReader(string(find(o))))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	want, err := metrics.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if file.APIVersion != 1 || len(file.Groups) != len(want) || len(want) < 4 {
		t.Fatalf("%d groups of version %d, want %d", len(file.Groups), file.APIVersion, len(want))
	}
	uids := make(map[string]bool)
	bare := regexp.MustCompile(`\$value\b`)
	for i, g := range file.Groups {
		if g.OrgID != 1 || g.Folder == "" || g.Interval != "1m" || len(g.Rules) != len(want[i].Rules) {
			t.Errorf("group %+v, want that of %s", g, want[i].Name)
			continue
		}
		for j, r := range g.Rules {
			of := want[i].Rules[j]
			if uids[r.UID] || len(r.UID) > 40 || r.Title != of.Alert || r.NoDataState != "OK" || r.ExecErrState != "Error" || r.IsPaused {
				t.Errorf("rule %+v, want that of %s", r, of.Alert)
			}
			uids[r.UID] = true
			if r.Labels["severity"] != of.Labels["severity"] || r.Annotations["runbook"] == "" || bare.MatchString(r.Annotations["summary"]) {
				t.Errorf("%s: labels %v, annotations %v", r.Title, r.Labels, r.Annotations)
			}
			if len(r.Data) != 2 || r.Data[0].Model["expr"] != strings.TrimSpace(of.Expr) || r.Data[0].Model["instant"] != true ||
				r.Condition != r.Data[1].RefID || r.Data[1].Source != "__expr__" || !strings.Contains(r.Data[1].Model["expression"].(string), "$"+r.Data[0].RefID) {
				t.Errorf("%s: asks %+v", r.Title, r.Data)
			}
		}
	}
}
