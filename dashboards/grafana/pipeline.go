package grafana

import (
	"strings"

	"github.com/grafana-tools/sdk"
)

// series is one expression of a panel. $job and $instance are added to each selector.
type series struct{ expr, legend string }

// pipelinePanel is a panel of Prometheus series.
type pipelinePanel struct {
	title, about, unit string
	series             []series
	counts             string // part of the names of series that count something
}

var pipelinePanels = []pipelinePanel{
	{title: "Frames of taps", about: "A tap that sees nothing looks like a healthy fabric.", unit: "pps", series: []series{{`rate(csigscope_tap_frames_total{$of}[$__rate_interval])`, "{{instance}} {{tap}}"}}},
	{
		title: "Taps that are down, drops", about: "Frames that the kernel had no room for, and, as 1, links that are down.", unit: "pps", counts: "down", series: []series{
			{`rate(csigscope_tap_kernel_drops_total{$of}[$__rate_interval])`, "{{instance}} {{tap}} drops"}, {`(csigscope_tap_up{$of} == bool 0) > 0`, "{{instance}} {{tap}} down"},
		},
	},
	{title: "Tags and reflections found", unit: "ops", series: []series{{`sum by (instance, kind) (rate(csigscope_decode_found_total{$of}[$__rate_interval]))`, "{{instance}} {{kind}}"}}},
	{title: "Observations", about: "Observations that came, were stored, or had no room of their own.", unit: "ops", series: []series{
		{`sum by (instance) (rate(csigscope_observations_total{$of}[$__rate_interval]))`, "{{instance}} all"},
		{`sum by (instance) (rate(csigscope_observations_stored_total{$of}[$__rate_interval]))`, "{{instance}} stored"},
		{`sum by (instance) (rate(csigscope_observations_overflow_total{$of}[$__rate_interval]))`, "{{instance}} overflow"},
	}},
	{
		title: "Observations dropped, by reason", unit: "ops",
		series: []series{{`sum by (instance, reason) (rate(csigscope_observations_dropped_total{$of}[$__rate_interval])) > 0`, "{{instance}} {{reason}}"}},
	},
	{title: "Behind the traffic", about: "Delay of each producer's watermark behind the clock: windows close that much later.", unit: "s", series: []series{{`csigscope_watermark_lag_seconds{$of}`, "{{instance}} {{producer}}"}}},
	{title: "From the end of a window until queries see its rows", unit: "s", series: []series{
		{`histogram_quantile(0.5, sum by (instance, le) (rate(csigscope_window_queryable_seconds_bucket{$of}[$__rate_interval])))`, "{{instance}} half"},
		{`histogram_quantile(0.99, sum by (instance, le) (rate(csigscope_window_queryable_seconds_bucket{$of}[$__rate_interval])))`, "{{instance}} 99 %"},
	}},
	{title: "Rows to the store", unit: "ops", series: []series{
		{`rate(csigscope_store_rows_total{$of}[$__rate_interval])`, "{{instance}} written"}, {`sum by (instance, reason) (rate(csigscope_store_rows_lost_total{$of}[$__rate_interval])) > 0`, "{{instance}} lost: {{reason}}"},
	}},
	{title: "Waiting in the outbox", unit: "s", series: []series{{`csigscope_outbox_age_seconds{$of}`, "{{instance}}"}}},
	{title: "Outbox and spool, of their limits", unit: "percentunit", series: []series{
		{`csigscope_outbox_bytes{$of} / csigscope_outbox_limit_bytes{$of}`, "{{instance}} outbox"}, {`csigscope_spool_bytes{$of} / csigscope_spool_limit_bytes{$of}`, "{{instance}} spool"},
	}},
	{title: "Exporters", about: "Seconds since the last request of each exporter to any collector, and the offset of its clock.", unit: "s", series: []series{
		{`time() - max by (exporter) (csigscope_exporter_last_seen_timestamp_seconds{$of})`, "{{exporter}} silent for"}, {`csigscope_exporter_clock_offset_seconds{$of}`, "{{exporter}} clock"},
	}},
	{
		title: "Refused of exporters", unit: "ops",
		series: []series{{`sum by (instance, reason) (rate(csigscope_ingest_refused_total{$of}[$__rate_interval])) > 0`, "{{instance}} {{reason}}"}},
	},
	{title: "Requests to the query API", about: "By status; refused ones by reason.", unit: "reqps", series: []series{
		{`sum by (instance, code) (rate(csigscope_api_requests_total{$of}[$__rate_interval]))`, "{{instance}} {{code}}"},
		{`sum by (instance, reason) (rate(csigscope_api_refused_total{$of}[$__rate_interval])) > 0`, "{{instance}} refused: {{reason}}"},
	}},
	{title: "How long the query API takes", about: "95 % of the answers take at most this long, not counting those that wait for a window.", unit: "s", series: []series{
		{`histogram_quantile(0.95, sum by (instance, endpoint, le) (rate(csigscope_api_request_duration_seconds_bucket{$of}[$__rate_interval])))`, "{{instance}} {{endpoint}}"},
	}},
	{title: "Watchers of the query API", about: "Those that read too slowly get a notice and start again.", unit: "short", series: []series{
		{`csigscope_api_watchers{$of}`, "{{instance}}"}, {`increase(csigscope_api_lagging_total{$of}[5m]) > 0`, "{{instance}} lagging in 5 min"},
	}},
	{title: "Heavy share", about: "Of the last minute, by signal.", unit: "percentunit", series: []series{{`csigscope_heavy_ratio{$of}`, "{{instance}} {{signal}} {{source}}"}}},
	{title: "Worst bottlenecks", unit: "percentunit", series: []series{{`topk(10, csigscope_bottleneck_heavy_ratio{$of})`, "{{signal}} {{location}}"}}},
	{title: "State in memory", unit: "bytes", series: []series{{`sum by (instance) (csigscope_aggregate_state_bytes{$of})`, "{{instance}} windows"}, {`process_resident_memory_bytes{$of}`, "{{instance}} process"}}},
	{
		title: "Age of the last commit, restarts of the engine", unit: "s", counts: "restarts", series: []series{
			{`time() - csigscope_commit_last_timestamp_seconds{$of}`, "{{instance}} commit"}, {`increase(csigscope_engine_restarts_total{$of}[1h])`, "{{instance}} restarts in an hour"},
		},
	},
}

// alertsPage has a section for each alert, under its name.
const alertsPage = "https://github.com/csigscope/csigscope/blob/main/dashboards/metrics/ALERTS.md"

// pipelineBoard shows csigscope itself with data from Prometheus. Conditions that need action are
// in the alert rules, whose state the first panel lists.
func pipelineBoard() board {
	source := object{"type": "prometheus", "uid": "${prometheus}"}
	b := board{
		uid: PipelineUID, title: "csigscope / Pipeline", name: "pipeline", refresh: "30s", from: "now-1h",
		variables: []sdk.TemplateVar{sourceVariable("prometheus", "Prometheus", "prometheus"), labelVariable("job", "Job", source), labelVariable("instance", "Instance", source)},
		panels: []panel{{
			title: "Alerts", kind: "table", width: gridWidth, height: 6, source: source, options: tableOptions(),
			about: "Rules that fire or are about to, as Prometheus evaluates them, from dashboards/metrics/alerts. Rules that Grafana evaluates (dashboards write --alerts) are not here, but on its page Alerting.",
			targets: []object{{
				"refId": "A", "datasource": source, "expr": `ALERTS{alertname=~"Csigscope.*"}`, "instant": true, "range": false, "format": "table", "editorMode": "code",
			}},
			defaults: plain(),
			overrides: []object{
				hide("Time"), hide("__name__"), hide("Value"), named("alertstate", "state"),
				override("alertname", object{"displayName": "alert", "custom.width": 260, "links": []object{{
					"title": "checks and first steps", "targetBlank": true, "url": alertsPage + "#${__value.text}",
				}}}),
			},
		}},
	}
	for _, p := range pipelinePanels {
		var targets []object
		for i, s := range p.series {
			targets = append(targets, object{
				"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "range": true, "instant": false,
				"expr": strings.ReplaceAll(s.expr, "{$of}", `{job=~"$job", instance=~"$instance"}`), "legendFormat": s.legend,
			})
		}
		defaults := object{"custom": pipelineLines(), "color": color("palette-classic"), "unit": p.unit}
		var overrides []object
		if p.counts != "" {
			overrides = []object{overrideBy("byRegexp", "/"+p.counts+"/", object{"unit": "short", "custom.axisPlacement": "right"})}
		}
		b.panels = append(b.panels, panel{
			title: p.title, about: p.about, kind: "timeseries", width: gridWidth / 2, height: 8, source: source, targets: targets, options: lineOptions(),
			defaults: defaults, overrides: overrides,
		})
	}
	return b
}

func pipelineLines() object {
	l := lines(5)
	l["lineInterpolation"], l["axisSoftMin"] = "linear", 0 // clock offsets have either sign
	return l
}

// labelVariable selects values of a label, all by default.
func labelVariable(name, label string, source object) sdk.TemplateVar {
	query := "label_values(csigscope_build_info, job)"
	if name != "job" {
		query = `label_values(csigscope_build_info{job=~"$job"}, ` + name + ")"
	}
	v := variable(name, label, "query", object{"query": query, "refId": name}, refreshRange)
	v.Datasource, v.Multi, v.IncludeAll = source, true, true
	v.Current = current("All", "$__all")
	return v
}
