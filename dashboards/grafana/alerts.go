package grafana

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/csigscope/csigscope/dashboards/metrics"
)

// alertInterval is the evaluation interval of a rule group.
const alertInterval = "1m"

// alertRange is how far an instant query may look back, in s; ranges in its expression are relative
// to its end.
const alertRange = 600

// alertFolder is the folder of the rules. Grafana finds it by its title only, and makes it before that
// of the dashboards, whose title it must not have: there would be two folders of that title.
const alertFolder = "csigscope alerts"

// numberOf defines $value as Prometheus does, where it is a number. In Grafana it is a text with all
// values. An evaluation without a result has no value, but its annotations are expanded too.
const numberOf = "{{ $value := 0.0 }}{{ with $values.A }}{{ $value = .Value }}{{ end }}"

// alertRules returns the Prometheus rules in Grafana's form, for installations without Prometheus
// alerting.
func alertRules() (object, error) {
	all, err := metrics.Rules()
	if err != nil {
		return nil, err
	}
	var groups []object
	for _, g := range all {
		var rules []object
		for i := range g.Rules {
			rules = append(rules, alertRule(&g.Rules[i]))
		}
		groups = append(groups, object{"orgId": 1, "name": g.Name, "folder": alertFolder, "interval": alertInterval, "rules": rules})
	}
	return object{"apiVersion": 1, "groups": groups}, nil
}

// alertRule fires for each series in the expression's result, whatever its value, as in Prometheus.
// An empty result is no alert.
func alertRule(r *metrics.Rule) object {
	annotations := object{}
	for key, text := range r.Annotations {
		if strings.Contains(text, "$value") {
			text = numberOf + text
		}
		annotations[key] = text
	}
	labels := object{}
	for key, text := range r.Labels {
		labels[key] = text
	}
	return object{
		"uid": strings.ToLower(r.Alert), "title": r.Alert, "condition": "B", "for": cmp.Or(r.For, "0s"),
		"noDataState": "OK", "execErrState": "Error", "isPaused": false, "labels": labels, "annotations": annotations,
		"data": []object{
			alertQuery("A", metricsUID, object{"expr": strings.TrimSpace(r.Expr), "instant": true, "range": false}),
			alertQuery("B", "__expr__", object{"type": "math", "expression": "is_number($A) || is_inf($A)"}),
		},
	}
}

func alertQuery(ref, source string, model object) object {
	kind := "prometheus"
	if source != metricsUID {
		kind = source
	}
	model["refId"], model["datasource"] = ref, object{"type": kind, "uid": source}
	return object{"refId": ref, "datasourceUid": source, "relativeTimeRange": object{"from": alertRange, "to": 0}, "model": model}
}

// alertsFile returns the file that provisions the rules.
func alertsFile() (File, error) {
	content, err := alertRules()
	if err != nil {
		return File{}, err
	}
	text, err := encodeYAML(content)
	if err != nil {
		return File{}, fmt.Errorf("make alert rules: %w", err)
	}
	return File{provisioningDir + "/alerting/csigscope.yaml", text}, nil
}
