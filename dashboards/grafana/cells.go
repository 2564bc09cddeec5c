package grafana

import (
	"fmt"

	"github.com/grafana-tools/sdk"

	"github.com/csigscope/csigscope/decode/csig"
)

// cellsBoard shows the two matrices, and one cell in depth: its path, the flows that
// suffer, what was found there.
func cellsBoard(o *Options) board {
	colors := mappings(o.Locations)
	means := []panel{meanPanel(o, csig.MinABWRatio, "Mean available bandwidth, of capacity")}
	names := colored(50)
	names["align"] = "left" // what does not fit is cut off behind
	modes := matrix(o, panel{
		title: "Mode of the bottleneck (${signal:text})", width: 12, height: 18,
		about:    "The location that most heavily loaded observations of the cell name. Cells with less than 10 observations say nothing; no data is silence, not health.",
		targets:  []object{sqlTarget(modeSQL, formatTable)},
		defaults: object{"custom": names, "color": color("thresholds"), "thresholds": thresholds(unknownColor), "mappings": colors},
	})
	more := []panel{
		meanPanel(o, csig.MinABW, "Mean available bandwidth"),
		meanPanel(o, csig.MaxDelay, "Mean of the worst hop's delay"),
		meanPanel(o, csig.MaxNQD, "Mean of the worst hop's queue depth"),
	}
	return board{
		uid: CellsUID, title: "csigscope / Cells", name: "cells", refresh: "10s", from: "now-15m",
		variables: append([]sdk.TemplateVar{
			sourceVariable("datasource", "Store", storePlugin), signalVariable(o.signals()), resolutionVariable(o.Fine), levelVariable(),
			groupVariable("src", "Source"), groupVariable("dst", "Destination"), locationVariable(),
		}, thresholdVariables()...),
		panels: append(append(means, modes), append(cellPanels(o, colors), more...)...),
	}
}

// matrix turns rows of (src, dst, value) into a matrix.
func matrix(o *Options, p panel) panel {
	if o.MatrixPanel {
		p.kind = "esnet-matrix-panel"
		p.options = object{
			"inputList": false, "sourceField": "src", "targetField": "dst", "valueField1": "value", "sourceText": "From", "targetText": "To", "val1Text": "Value",
			"cellSize": 15, "cellPadding": 5, "txtLength": 50, "txtSize": 10, "nullColor": noDataColor, "defaultColor": unknownColor,
		}
		return p
	}
	p.kind, p.options = "table", tableOptions()
	p.options["frozenColumns"] = object{"left": 1}
	p.transform = []object{{"id": "groupingToMatrix", "options": object{"columnField": "dst", "rowField": "src", "valueField": "value", "emptyValue": "null"}}}
	// Lists of an override are put before those of the defaults, so that none could take a
	// link or a mapping from the column of names.
	cells := object{"mappings": p.defaults["mappings"], "links": []object{toCells("path of ${__data.fields[0]} to ${__field.name}",
		"&var-src=${__data.fields[0]:percentencode}&var-dst=${__field.name:percentencode}"+anywhere)}}
	delete(p.defaults, "mappings")
	p.overrides = []object{
		overrideBy("byRegexp", `/^(?!src\\dst$)/`, cells),
		override(`src\dst`, object{"custom.cellOptions": object{"type": "auto"}, "custom.align": "left", "custom.width": 80, "displayName": "from, to"}),
	}
	return p
}

func meanPanel(o *Options, s csig.Signal, title string) panel {
	scheme := "continuous-RdYlGr" // low values are red
	if s.Direction() == csig.Max {
		scheme = "continuous-GrYlRd"
	}
	// Without a mapping a cell without a value has the colour of the lowest one.
	defaults := object{"custom": colored(90), "unit": unitOf(s), "color": color(scheme), "decimals": 1, "mappings": []object{special("null", noDataColor)}}
	if s.Unit() == csig.Ratio {
		defaults["min"], defaults["max"], defaults["decimals"], defaults["custom"] = 0, 1, 0, colored(50)
	}
	return matrix(o, panel{
		title: title, width: 12, height: 18, targets: []object{sqlTarget(meanSQL(fmt.Sprintf("signal = %d", s)), formatTable)}, defaults: defaults,
		about: "Source groups in rows, destination groups in columns. Empty: less than 10 observations, or none. Click on a cell for its path and flows.",
	})
}

// unitOf is Grafana's name of the unit of a signal's values.
func unitOf(s csig.Signal) string {
	switch s.Unit() {
	case csig.BitPerSecond:
		return "bps"
	case csig.Ratio:
		return "percentunit"
	case csig.Nanosecond:
		return "ns"
	}
	return "sishort"
}

// meanColumns give the column of means the unit of the signal that is chosen: queries put
// the signal into its name, and it is shown without.
func meanColumns(o *Options) []object {
	var columns []object
	for _, s := range o.signals() {
		columns = append(columns, override("mean "+s.FullName(), object{"unit": unitOf(s), "decimals": 1, "displayName": "mean"}))
	}
	return columns
}

// cellPanels are about the chosen cell. Links lead from its path to its flows to findings.
func cellPanels(o *Options, colors []object) []panel {
	const chosen = "&${src:queryparam}&${dst:queryparam}"
	toFlows := toCells("flows that it slows down", chosen+fmt.Sprintf("&var-location=${__value.text:percentencode}&viewPanel=%d", flowsPanel))
	toFindings := toCells("findings there", chosen+fmt.Sprintf("&var-location=${__data.fields.location:percentencode}&viewPanel=%d", findingsPanel))
	share := object{"unit": "percentunit", "custom.axisPlacement": "right", "min": 0, "max": 1}
	return []panel{
		{title: "From $src to $dst", kind: "row", width: gridWidth, height: 1},
		{
			title: "Path of $src to $dst", kind: "table", id: pathPanel, width: 12, height: 9, defaults: plain(), options: tableOptions(),
			about:     "Where the path from source to destination choked: in how many windows a location was the mode of the cell.",
			targets:   []object{sqlTarget(pathSQL, formatTable)},
			overrides: []object{locationColumn(colors, toFlows)},
		},
		{
			title: "$src to $dst over time", kind: "timeseries", width: 12, height: 9, options: lineOptions(),
			targets:   []object{sqlTarget(cellSQL, formatSeries)},
			defaults:  object{"custom": lines(0), "color": color("palette-classic")},
			overrides: append(meanColumns(o), override("heavy", share), override("trimmed", share)),
		},
		{
			title: "Flows of $src to $dst", kind: "table", id: flowsPanel, width: gridWidth, height: 9, defaults: plain(), options: tableOptions(),
			about:   "The flows with the most heavily loaded observations. Stored where replay and collect keep flows.",
			targets: []object{sqlTarget(flowsSQL, formatTable)},
			overrides: append(meanColumns(o),
				locationColumn(colors, toFindings), override("bytes", object{"unit": "bytes"}), override("source", object{"links": []object{toFindings}})),
		},
		{
			title: "Findings", kind: "table", id: findingsPanel, width: gridWidth, height: 8, defaults: plain(), options: tableOptions(),
			about:     "What breaks the protocol or the configuration in this range, at the chosen location or everywhere.",
			targets:   []object{sqlTarget(findingsSQL, formatTable)},
			overrides: []object{override("severity", object{"mappings": severities(), "custom.cellOptions": object{"type": "color-text"}})},
		},
		{title: "Other signals", kind: "row", width: gridWidth, height: 1},
	}
}

func severities() []object {
	return []object{{"type": "value", "options": object{
		"error": object{"color": "red", "index": 0}, "warning": object{"color": "orange", "index": 1}, "info": object{"color": "blue", "index": 2},
	}}}
}
