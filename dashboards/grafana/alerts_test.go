package grafana_test

import (
	"fmt"
	"strings"
	"testing"
	"text/template"

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
	for i, g := range file.Groups {
		if g.OrgID != 1 || g.Folder == "" || g.Folder == "csigscope" || g.Interval != "1m" || len(g.Rules) != len(want[i].Rules) {
			t.Errorf("group %+v, want that of %s", g, want[i].Name)
			continue
		}
		for j, r := range g.Rules {
			of := want[i].Rules[j]
			if uids[r.UID] || len(r.UID) > 40 || r.Title != of.Alert || r.NoDataState != "OK" || r.ExecErrState != "Error" || r.IsPaused {
				t.Errorf("rule %+v, want that of %s", r, of.Alert)
			}
			uids[r.UID] = true
			if r.Labels["severity"] != of.Labels["severity"] || r.Annotations["runbook"] == "" {
				t.Errorf("%s: labels %v, annotations %v", r.Title, r.Labels, r.Annotations)
			}
			for _, text := range r.Annotations {
				expandAsGrafana(t, r.Title, text)
			}
			if len(r.Data) != 2 || r.Data[0].Model["expr"] != strings.TrimSpace(of.Expr) || r.Data[0].Model["instant"] != true ||
				r.Condition != r.Data[1].RefID || r.Data[1].Source != "__expr__" || !strings.Contains(r.Data[1].Model["expression"].(string), "$"+r.Data[0].RefID) {
				t.Errorf("%s: asks %+v", r.Title, r.Data)
			}
		}
	}
}

// expandAsGrafana expands an annotation as Grafana does, with a result of 0.25 and without any.
func expandAsGrafana(t *testing.T, rule, text string) {
	t.Helper()
	type value struct{ Value float64 }
	number := func(v any) (string, error) {
		if f, ok := v.(float64); ok {
			return fmt.Sprint("number ", f), nil
		}
		return "", fmt.Errorf("cannot convert %v to a number", v)
	}
	parsed, err := template.New(rule).Funcs(template.FuncMap{"humanize": number, "humanizeDuration": number, "humanizePercentage": number}).
		Parse("{{- $labels := .Labels -}}{{- $values := .Values -}}{{- $value := .Value -}}" + text)
	if err != nil {
		t.Fatalf("%s: %v", rule, err)
	}
	for _, values := range []map[string]value{{}, {"A": {0.25}}} {
		var out strings.Builder
		if err := parsed.Execute(&out, map[string]any{"Labels": map[string]string{"location": "l"}, "Values": values, "Value": "[ var='A' value=0.25 ]"}); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
		if strings.Contains(out.String(), "var='A'") || len(values) > 0 && strings.Contains(text, "{{ $value") && !strings.Contains(out.String(), "0.25") {
			t.Errorf("%s says %q", rule, out.String())
		}
	}
}
