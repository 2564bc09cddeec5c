package grafana

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/csigscope/csigscope/dashboards/metrics"
)

// alertInterval is how often Grafana evaluates a group.
const alertInterval = "1m"

// alertRange is what an instant query may look back on, in s; ranges in its expression
// count from its end.
const alertRange = 600

// alertRules are the rules of Prometheus as Grafana evaluates them, for installations in
// which Prometheus evaluates none.
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
		groups = append(groups, object{"orgId": 1, "name": g.Name, "folder": "csigscope", "interval": alertInterval, "rules": rules})
	}
	return object{"apiVersion": 1, "groups": groups}, nil
}

// alertRule fires for each series that the expression answers, whatever its value, as in
// Prometheus. No answer is no alert.
func alertRule(r *metrics.Rule) object {
	annotations := object{}
	for key, text := range r.Annotations {
		// In Prometheus $value is a number, here a text of all values.
		annotations[key] = strings.ReplaceAll(text, "$value", "$values.A.Value")
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

// alertsFile provisions the rules.
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
