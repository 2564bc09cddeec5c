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
	means := []panel{meanPanel(o, csig.MinABWRatio, "Mean available bandwidth, of capacity", 12)}
	modes := matrix(o, panel{
		title: "Mode of the bottleneck (${signal:text})", width: 12, height: 16,
		about:    "The location that most heavily loaded observations of the cell name. Cells with less than 10 observations say nothing; no data is silence, not health.",
		targets:  []object{sqlTarget(modeSQL, formatTable)},
		defaults: object{"custom": colored(), "color": color("thresholds"), "thresholds": thresholds(unknownColor), "mappings": colors},
	})
	more := []panel{
		meanPanel(o, csig.MinABW, "Mean available bandwidth", 8),
		meanPanel(o, csig.MaxDelay, "Mean of the worst hop's delay", 8),
		meanPanel(o, csig.MaxNQD, "Mean of the worst hop's queue depth", 8),
	}
	return board{
		uid: CellsUID, title: "csigscope / Cells", name: "cells", refresh: "10s", from: "now-15m",
		variables: []sdk.TemplateVar{
			sourceVariable("datasource", "Store", storePlugin), signalVariable(o.signals()), resolutionVariable(o.Fine), levelVariable(),
			groupVariable("src", "Source"), groupVariable("dst", "Destination"), locationVariable(),
		},
		panels: append(append(means, modes), append(cellPanels(colors), more...)...),
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
	p.defaults["links"] = []object{toCells("path of ${__data.fields[0]} to ${__field.name}",
		"&var-src=${__data.fields[0]:percentencode}&var-dst=${__field.name:percentencode}")}
	p.overrides = []object{override(`src\dst`, object{
		"custom.cellOptions": object{"type": "auto"}, "links": []object{}, "displayName": "from, to", "mappings": []object{},
	})}
	return p
}

func meanPanel(o *Options, s csig.Signal, title string, width int) panel {
	unit, scheme := "short", "continuous-RdYlGr" // low values are red
	defaults := object{"custom": colored()}
	switch s.Unit() {
	case csig.BitPerSecond:
		unit = "bps"
	case csig.Ratio:
		unit, defaults["min"], defaults["max"] = "percentunit", 0, 1
	case csig.Nanosecond:
		unit = "ns"
	}
	if s.Direction() == csig.Max {
		scheme = "continuous-GrYlRd"
	}
	defaults["unit"], defaults["color"], defaults["decimals"] = unit, color(scheme), 1
	return matrix(o, panel{
		title: title, width: width, height: 16, targets: []object{sqlTarget(meanSQL(fmt.Sprintf("signal = %d", s)), formatTable)}, defaults: defaults,
		about: "Source groups in rows, destination groups in columns. Empty: less than 10 observations, or none. Click on a cell for its path and flows.",
	})
}

// cellPanels are about the chosen cell. Links lead from its path to its flows to findings.
func cellPanels(colors []object) []panel {
	const chosen = "&${src:queryparam}&${dst:queryparam}"
	toFlows := toCells("flows that it slows down", chosen+fmt.Sprintf("&var-location=${__value.text:percentencode}&viewPanel=%d", flowsPanel))
	toFindings := toCells("findings there", chosen+fmt.Sprintf("&var-location=${__data.fields.location:percentencode}&viewPanel=%d", findingsPanel))
	plain := object{"custom": object{"align": "auto", "inspect": true, "cellOptions": object{"type": "auto"}}, "color": color("thresholds"), "thresholds": thresholds("text")}
	share := object{"unit": "percentunit", "custom.axisPlacement": "right", "min": 0, "max": 1}
	return []panel{
		{title: "From $src to $dst", kind: "row", width: gridWidth, height: 1},
		{
			title: "Path of $src to $dst", kind: "table", id: pathPanel, width: 12, height: 9, defaults: plain, options: tableOptions(),
			about:     "Where the path from source to destination choked: in how many windows a location was the mode of the cell.",
			targets:   []object{sqlTarget(pathSQL, formatTable)},
			overrides: []object{locationColumn(colors, toFlows)},
		},
		{
			title: "$src to $dst over time", kind: "timeseries", width: 12, height: 9, options: lineOptions(),
			targets:   []object{sqlTarget(cellSQL, formatSeries)},
			defaults:  object{"custom": lines(0), "color": color("palette-classic"), "unit": "sishort"},
			overrides: []object{override("heavy", share), override("trimmed", share)},
		},
		{
			title: "Flows of $src to $dst", kind: "table", id: flowsPanel, width: gridWidth, height: 9, defaults: plain, options: tableOptions(),
			about:   "The flows with the most heavily loaded observations; :: is what all others come to. Stored where replay and collect keep flows.",
			targets: []object{sqlTarget(flowsSQL, formatTable)},
			overrides: []object{
				locationColumn(colors, toFindings), override("bytes", object{"unit": "bytes"}), override("mean", object{"unit": "sishort"}),
				override("source", object{"links": []object{toFindings}}),
			},
		},
		{
			title: "Findings", kind: "table", id: findingsPanel, width: gridWidth, height: 8, defaults: plain, options: tableOptions(),
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
