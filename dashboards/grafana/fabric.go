package grafana

import (
	"fmt"

	"github.com/grafana-tools/sdk"
)

// Target panels of data links.
const (
	pathPanel        = 20
	flowsPanel       = 21
	findingsPanel    = 22
	sufferersPanelID = 23
)

// asEncoded ends the addresses of links. Grafana 13 percent-decodes a link twice before it searches
// it for scripts: a group's name with & or # then ends the variable early, and one with + changes.
// It does not decode an address that cannot be decoded, such as one with this fragment, which
// browsers do not send and no dashboard reads.
const asEncoded = "#%"

// anywhere clears the selected location: Grafana keeps a variable that a link to the same dashboard
// omits, and few other cells have flows through that location.
const anywhere = "&var-location="

// choices are the variables that all boards of the store have.
const choices = "&${signal:queryparam}&${resolution:queryparam}&${level:queryparam}&${datasource:queryparam}"

// toCells returns a link to the cells board with all present choices, and the variables in set. The
// board that it is on has thresholds.
func toCells(title, set string) object {
	return toCellsByDefault(title, "&${onset:queryparam}&${clear:queryparam}"+set)
}

// toCellsByDefault is toCells for a board without thresholds: Grafana would leave their variables in
// the address as they are.
func toCellsByDefault(title, set string) object {
	return object{"title": title, "targetBlank": false, "url": "/d/" + CellsUID + "?${__url_time_range}" + choices + set + asEncoded}
}

// toSufferers returns a link from a location to the cells that it slows down.
func toSufferers() object {
	return toCells("cells that suffer from it", fmt.Sprintf("&var-location=${__value.text:percentencode}&viewPanel=%d", sufferersPanelID))
}

// fabricBoard shows where the fabric is congested, since when, and how complete the data is.
func fabricBoard(o *Options) board {
	colors := mappings(o.Locations)
	return board{
		uid: FabricUID, title: "csigscope / Fabric", name: "fabric", refresh: "10s", from: "now-15m",
		variables: append([]sdk.TemplateVar{
			sourceVariable("datasource", "Store", storePlugin), signalVariable(signals), resolutionVariable(o.Fine), rowsVariable(), levelVariable(),
		}, thresholdVariables(o.Thresholds)...),
		panels: []panel{
			verdictPanel(), knownPanel(),
			heatPanel(),
			{
				title: "Top locations", kind: "table", width: 10, height: 11,
				about:     "Locations by how many heavy observations name them. The share is of all heavy observations of the range.",
				targets:   []object{sqlTarget(topSQL, formatTable)},
				defaults:  plain(),
				overrides: []object{locationColumn(colors, toSufferers()), named("heavy", "heavy"), override("share", object{"unit": "percentunit", "custom.width": 160, "custom.cellOptions": object{"type": "gauge", "mode": "basic"}, "min": 0, "max": 1})},
				options:   tableOptions(),
			},
			{
				title: "Mode of the bottleneck, by cell", kind: "state-timeline", width: 24, height: 20,
				about:   "The 30 cells with the most heavy observations. No data is silence, not health.",
				targets: []object{sqlTarget(statesSQL, formatTable)}, points: 200,
				defaults: object{
					"custom": object{"fillOpacity": 90, "lineWidth": 0, "hideFrom": hidden()}, "color": color("thresholds"),
					"thresholds": thresholds(unknownColor), "mappings": colors,
					"displayName": "${__field.labels.src} to ${__field.labels.dst}",
					"links":       []object{toCells("path of this cell", "&var-src=${__field.labels.src:percentencode}&var-dst=${__field.labels.dst:percentencode}"+anywhere)},
				},
				transform: []object{{"id": "partitionByValues", "options": object{"fields": []string{"src", "dst"}, "keepFields": false, "naming": object{"asLabels": true}}}},
				options: object{
					"alignValue": "left", "mergeValues": true, "rowHeight": 0.9, "showValue": "auto", "legend": legend(false), "tooltip": tooltip("single"),
				},
			},
			coveragePanel(),
		},
	}
}

// verdictPanel begins the first row: whether, where and since when the fabric is congested. Its
// colors never show silence as healthy.
func verdictPanel() panel {
	counts := []object{pattern("^no data$", "text"), pattern("^0 of", "green"), pattern(" of ", "orange")}
	return panel{
		title: "Congestion (${signal:text})", kind: "stat", width: 14, height: 4,
		about:   "Cells are congested by the thresholds above: at the end of the range, and in any window of its last 300. Links are congested by the tags that name them, in the last 300 windows. Since is when the first of the worst location's cells became congested.",
		targets: []object{sqlTarget(verdictSQL, formatTable)}, defaults: statDefaults(), options: sized(statOptions("/.*/")),
		overrides: []object{
			override("congested at the end", object{"mappings": counts}), override("congested in last 300 windows", object{"mappings": counts}),
			override("congested links", object{"mappings": []object{pattern("^no", "text"), pattern("^0$", "green"), pattern("^[0-9]", "orange")}}),
			override("since", object{"unit": "dateTimeAsLocal", "noValue": "none"}),
			override("worst location", object{"links": []object{toSufferers()}}),
		},
	}
}

// sized sets the text sizes of a row; all panels use the size that fits the longest text.
func sized(options object) object {
	options["text"] = object{"titleSize": 13, "valueSize": 20}
	return options
}

// knownPanel shows how much of the range is covered by data.
func knownPanel() panel {
	stored := object{"title": "show the newest 15 minutes that are stored", "targetBlank": false, "url": "/d/" + FabricUID +
		"?from=${__data.fields.from_ms}&to=${__data.fields.to_ms}" + choices}
	return panel{
		title: "Known", kind: "stat", width: 10, height: 4,
		about:   "Coverage is the share of the range with observations, less the parts that are known to be missing. A tap of the last day is silent when it took in no packet in the range. Click on the time of the newest rows to see the 15 minutes before it.",
		targets: []object{sqlTarget(knownSQL, formatTable)}, defaults: statDefaults(), options: sized(statOptions("/^(coverage|silent taps|newest rows)$/")),
		overrides: []object{
			override("coverage", object{"unit": "percentunit", "decimals": 1, "noValue": "no data", "thresholds": object{"mode": "absolute", "steps": []object{
				{"color": "red", "value": nil}, {"color": "orange", "value": 0.5}, {"color": "green", "value": 0.95},
			}}}),
			override("silent taps", object{"mappings": []object{pattern("^0 of", "green"), pattern(" of ", "red")}}),
			override("newest rows", object{"unit": "dateTimeFromNow", "noValue": "nothing stored", "links": []object{stored}}),
		},
	}
}

func statDefaults() object {
	return object{"color": color("thresholds"), "thresholds": thresholds("text"), "noValue": "no data"}
}

// statOptions shows the fields that match a regular expression.
func statOptions(fields string) object {
	return object{
		"graphMode": "none", "colorMode": "value", "justifyMode": "auto", "orientation": "auto", "textMode": "value_and_name", "wideLayout": true,
		"showPercentChange": false, "percentChangeColorMode": "standard",
		"reduceOptions": object{"values": false, "calcs": []string{"lastNotNull"}, "fields": fields},
	}
}

// pattern maps texts that match a regular expression to a color.
func pattern(expression, color string) object {
	return object{"type": "regex", "options": object{"pattern": "/" + expression + "/", "result": object{"color": color, "index": 0}}}
}

// locationColumn gives the column of locations its usual colors.
func locationColumn(colors []object, link object) object {
	return override("location", object{
		"mappings": colors, "links": []object{link}, "custom.width": 140, "thresholds": thresholds(unknownColor),
		"custom.cellOptions": object{"type": "color-background", "mode": "basic"},
	})
}

func heatPanel() panel {
	return panel{
		title: "Bottlenecks over time", kind: "heatmap", width: 14, height: 11, points: 300,
		about:    "The share of each window's heavy observations that name the location: the mode is the brightest of a column. Where it is empty, nothing was heavy, or there are no data: see the coverage.",
		targets:  []object{sqlTarget(heatSQL, formatSeries)},
		defaults: object{"custom": object{"hideFrom": hidden(), "scaleDistribution": object{"type": "linear"}}, "unit": "percentunit"},
		options:  mostAtHalf(heatOptions("Oranges", "percentunit", "share of heavy observations", true)),
	}
}

// mostAtHalf gives the last color to every location named by more than half of a window: a finer
// distinction is not needed, and one window with a single location would make all others dark.
func mostAtHalf(options object) object {
	options["color"].(object)["max"] = 0.5
	return options
}

// heatOptions returns the options of a heatmap whose rows come from the query. The panel hides
// values up to filterValues.le; without that it would draw windows without observations.
func heatOptions(scheme, unit, value string, fromTop bool) object {
	return object{
		"calculate":    false,
		"cellGap":      1,
		"cellValues":   object{"unit": unit},
		"color":        object{"mode": "scheme", "scheme": scheme, "fill": "dark-orange", "exponent": 0.5, "scale": "exponential", "steps": 64, "reverse": false, "min": 0},
		"exemplars":    object{"color": "rgba(255,0,255,0.7)"},
		"filterValues": object{"le": 1e-9},
		"legend":       object{"show": true},
		"rowsFrame":    object{"layout": "auto", "value": value},
		"showValue":    "never",
		"tooltip":      object{"mode": "single", "yHistogram": false, "showColorScale": true},
		"yAxis":        object{"axisPlacement": "left", "reverse": fromTop},
	}
}

func coveragePanel() panel {
	share := object{"unit": "percentunit", "custom.axisPlacement": "right", "min": 0, "max": 1, "color": object{"mode": "fixed", "fixedColor": "purple"}}
	return panel{
		title: "Coverage", kind: "timeseries", width: 24, height: 8,
		about:     "Observations of all signals per window, by kind, and the share of each window that at least one producer lacks. No bar at all is silence: taps that see nothing look like a healthy fabric.",
		targets:   []object{sqlTarget(coverageSQL, formatSeries)},
		defaults:  object{"custom": lines(10), "color": color("palette-classic"), "unit": "short", "min": 0},
		overrides: []object{override("missing", share)},
		options:   lineOptions(),
	}
}
