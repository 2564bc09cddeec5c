package grafana

import "github.com/grafana-tools/sdk"

// jobBoard is for the owner of a job, who knows it as a group: whether its steps congest
// the fabric, how much room there is between them, and what its packets met.
func jobBoard(o *Options) board {
	colors := mappings(o.Locations)
	seconds := object{"unit": "s", "color": color("thresholds"), "thresholds": thresholds("text"), "noValue": "none"}
	return board{
		uid: JobUID, title: "csigscope / Job", name: "job", refresh: "30s", from: "now-5m",
		variables: []sdk.TemplateVar{
			sourceVariable("datasource", "Store", storePlugin), signalVariable(o.signals()), resolutionVariable(o.Fine), levelVariable(), groupVariable("group", "Group"),
		},
		panels: []panel{
			{
				title: "Steps of $group", kind: "stat", width: 24, height: 4, points: stepPoints,
				about:   "A step begins where a busy window follows a quiet one: half of the way from the quietest tenth of the windows to the busiest tenth tells them apart. Period: from start to start, median. Idle: quiet before a step, median and all together. Nothing shorter than two windows is seen: choose a short range for short steps.",
				targets: []object{sqlTarget(stepSQL, formatTable)}, defaults: seconds,
				overrides: []object{override("steps", object{"unit": "short"})},
				options: object{
					"graphMode": "none", "colorMode": "value", "justifyMode": "auto", "orientation": "auto", "textMode": "value_and_name", "wideLayout": true,
					"showPercentChange": false, "percentChangeColorMode": "standard", "reduceOptions": object{"values": false, "calcs": []string{"lastNotNull"}, "fields": ""},
				},
			},
			{
				title: "Traffic seen and heavily loaded share", kind: "timeseries", width: 12, height: 9, points: stepPoints, options: lineOptions(),
				about:     "Bytes of the observed packets that the group sends or receives, of one signal, and which share met heavy load.",
				targets:   []object{sqlTarget(activitySQL, formatSeries)},
				defaults:  object{"custom": lines(20), "color": color("palette-classic"), "unit": "bps", "min": 0},
				overrides: []object{override("heavy", object{"unit": "percentunit", "custom.axisPlacement": "right", "min": 0, "max": 1})},
			},
			{
				title: "Period and idle gap of each step", kind: "timeseries", width: 12, height: 9, points: stepPoints, options: lineOptions(),
				targets:  []object{sqlTarget(periodSQL, formatTable)},
				defaults: object{"custom": stepMarks(), "color": color("palette-classic"), "unit": "s", "min": 0},
			},
			{
				title: "Codes of ${signal:text}", kind: "heatmap", width: 24, height: 10, points: 200,
				about:    "How often each code of the signal was seen in a window: two humps are two paths, or work and rest. What a code stands for is in the tables of the configuration.",
				targets:  []object{sqlTarget(codesSQL, formatSeries)},
				defaults: object{"custom": object{"hideFrom": hidden(), "scaleDistribution": object{"type": "linear"}}},
				options:  heatOptions("Viridis", "short", "observations", false),
			},
			{
				title: "Worst flows of $group", kind: "table", width: 24, height: 10, defaults: saying("no flows", plain()), options: tableOptions(),
				about:   "The flows with the most heavily loaded observations. Stored where replay and collect keep flows.",
				targets: []object{sqlTarget(jobFlowsSQL, formatTable)},
				overrides: append(meanColumns(o), override("bytes", object{"unit": "bytes"}),
					locationColumn(colors, toCells("findings there", "&var-location=${__data.fields.location:percentencode}&viewPanel=22"))),
			},
		},
	}
}

// stepPoints are enough for windows that are much shorter than a step.
const stepPoints = 2000

func stepMarks() object {
	return object{"drawStyle": "points", "pointSize": 6, "showPoints": "always", "spanNulls": false, "hideFrom": hidden()}
}
